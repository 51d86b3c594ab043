// See the header. One mutex guards the state machine, the jobs and the figures; bytes are copied
// and checksums computed without it. The thread writes buffers, and says so afterwards; the engine
// thread reads them when all ranks have said so, and writes live slots, which no thread reads then.
#include "runtime/experts/expert_mover.h"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <variant>

#include "base/check.h"
#include "base/log.h"
#include "base/system/thread_time.h"

namespace braid {
namespace {

// The experts of a layer in memory. A slot's bytes are gate and up, then down.
struct MoverLayer {
  int32_t number = 0;  // of the model
  MoeFfnWeights* weights = nullptr;

  int64_t up_bytes() const { return 2 * weights->gate_up.matrix.matrix_bytes(); }
  int64_t slot_bytes() const { return up_bytes() + weights->down.matrix.matrix_bytes(); }
  // f(bytes of the slot, at) for the parts of [begin, end) that lie together.
  template <class F>
  void ForParts(int32_t slot, int64_t begin, int64_t end, F f) const {
    const int64_t up = up_bytes();
    if (begin < up) {
      const int64_t part = std::min(end, up);
      f(weights->gate_up.matrix.data + slot * up + begin, begin, part - begin);
    }
    if (end > up) {
      const int64_t from = std::max(begin, up);
      std::byte* down = weights->down.matrix.data;
      f(down + slot * weights->down.matrix.matrix_bytes() + from - up, from, end - from);
    }
  }
  void Read(int32_t slot, int64_t begin, int64_t end, std::byte* out) const {
    ForParts(slot, begin, end, [&](const std::byte* bytes, int64_t at, int64_t count) {
      std::memcpy(out + at - begin, bytes, static_cast<size_t>(count));
    });
  }
  void Write(int32_t slot, const std::byte* in) const {
    ForParts(slot, 0, slot_bytes(), [&](std::byte* bytes, int64_t at, int64_t count) {
      std::memcpy(bytes, in + at, static_cast<size_t>(count));
    });
  }
};

std::vector<MoverLayer> LayersOf(const ModelSpec& spec, const ModelWeights& weights) {
  std::vector<MoverLayer> layers;
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    if (!std::holds_alternative<MoeFfn>(spec.layers[i].ffn)) continue;
    const auto& moe = std::get<MoeFfnWeights>(weights.layers[i].ffn);
    layers.push_back({static_cast<int32_t>(i), const_cast<MoeFfnWeights*>(&moe)});
  }
  return layers;
}

std::vector<LayerSlots> FirstPlacement(const ExpertMover::Parts& parts, const ExpertShape& shape,
                                       const std::vector<MoverLayer>& layers) {
  std::vector<LayerSlots> placement;
  for (const MoverLayer& layer : layers) {
    const auto at = static_cast<size_t>(layer.number);
    const auto& given = parts.slots.placement;
    placement.push_back(at < given.size() && !given[at].empty() ? given[at] : InOrder(shape));
  }
  return placement;
}

ExpertShape ShapeOfAll(const ExpertMover::Parts& parts) {
  for (const LayerSpec& layer : parts.spec.layers) {
    if (const MoeFfn* moe = std::get_if<MoeFfn>(&layer.ffn)) {
      return ShapeOf(parts.slots, moe->experts, parts.group);
    }
  }
  CHECK(false, "a model without experts has none to move");
}

MoveLimits LimitsOf(const ExpertMover::Parts& parts, const std::vector<MoverLayer>& layers) {
  MoveLimits limits{.slot_bytes = {},
                    .buffer_bytes = ExpertMover::BufferBytes(parts.spec, parts.weights),
                    .step_bytes = parts.limits.step_bytes,
                    .header_bytes = sizeof(PieceHeader)};
  for (const MoverLayer& layer : layers) limits.slot_bytes.push_back(layer.slot_bytes());
  return limits;
}

int64_t MessageBytes(const MovePiece& piece) {
  return int64_t{sizeof(PieceHeader)} + piece.end - piece.begin;
}

// A step's messages in one direction, one after the other.
struct Messages {
  Buffer memory;
  std::vector<MutableBytes> parts;  // by partner

  Messages(int64_t step_bytes, int32_t ranks)
      : memory(step_bytes), parts(static_cast<size_t>(ranks)) {}

  void Divide(std::span<const int64_t> bytes) {
    int64_t at = 0;
    for (size_t i = 0; i < bytes.size(); ++i) {
      parts[i] = {memory.data() + at, static_cast<size_t>(bytes[i])};
      at += bytes[i];
    }
    CHECK(at <= memory.bytes(), "messages of {} bytes in a step of {}", at, memory.bytes());
  }
};

}  // namespace

struct ExpertMover::State {
  // The pieces of a round. The thread exchanges them whether or not the round was dropped.
  struct Job {
    int64_t attempt = 0;
    int64_t first_tick = 0;
    std::vector<std::vector<MovePiece>> steps;
  };
  using Place = std::pair<int32_t, int32_t>;  // layer (by index) and slot

  const Parts parts;
  const std::vector<MoverLayer> layers;
  const ExpertShape shape;
  Buffer buffer;

  mutable std::mutex mutex;
  std::condition_variable changed;
  Rebalance rebalance;
  std::map<Place, std::byte*> places;  // in the buffer, of the round under way
  std::deque<Job> jobs;
  int64_t ticks = 0;
  bool ending = false;
  MoveProgress figures;

  // Of the thread.
  std::optional<Error> lost;  // the group for moves has ended
  Messages sent, received;
  std::thread thread;

  explicit State(const Parts& p)
      : parts(p),
        layers(LayersOf(p.spec, p.weights)),
        shape(ShapeOfAll(p)),
        buffer(BufferBytes(p.spec, p.weights)),
        rebalance(shape, p.group.rank(), FirstPlacement(p, shape, layers), LimitsOf(p, layers),
                  p.limits.round_steps_max),
        sent(p.limits.step_bytes, shape.ranks),
        received(p.limits.step_bytes, shape.ranks),
        thread([this] { Run(); }) {}

  int32_t rank() const { return parts.group.rank(); }
  bool speaks() const { return parts.rank == 0; }
  const MoverLayer& layer(int32_t index) const { return layers[static_cast<size_t>(index)]; }
  int32_t Local(int32_t slot) const { return slot % shape.slots_per_rank(); }

  // Places for what the round brings to this rank.
  void StartRound() {
    places.clear();
    std::byte* next = buffer.data();
    const MoveRound& round = rebalance.round();
    for (size_t i = 0; i < round.layers.size(); ++i) {
      for (const SlotMove& move : round.moves[i]) {
        const bool buffered = Travels(move.kind) || move.kind == MoveKind::kSameRank;
        if (!buffered || shape.RankOf(move.slot) != rank()) continue;
        places[{round.layers[i], move.slot}] = next;
        next += layer(round.layers[i]).slot_bytes();
      }
    }
    CHECK(next <= buffer.data() + buffer.bytes(), "a round of more than {} bytes", buffer.bytes());
    jobs.push_back({rebalance.attempt(), ticks + 1, round.steps});
    changed.notify_all();
  }

  void Run() {
    ::pthread_setname_np(::pthread_self(), "braid-mover");
    std::unique_lock lock(mutex);
    while (true) {
      changed.wait(lock, [&] { return !jobs.empty() || ending; });
      if (jobs.empty()) return;
      const Job job = std::move(jobs.front());
      jobs.pop_front();
      const size_t steps = std::max<size_t>(1, job.steps.size());
      for (size_t s = 0; s < steps; ++s) {
        const int64_t tick = job.first_tick + static_cast<int64_t>(s);
        changed.wait(lock, [&] { return ticks >= tick || ending; });
        if (ticks < tick) return;
        RunStep(lock, job, s);
        figures.cpu_ns = ThreadCpuNs();
      }
    }
  }

  bool Current(const Job& job) const {
    return rebalance.moving() && rebalance.attempt() == job.attempt;
  }

  void RunStep(std::unique_lock<std::mutex>& lock, const Job& job, size_t step) {
    static const std::vector<MovePiece> kNone;
    const std::vector<MovePiece>& pieces = step < job.steps.size() ? job.steps[step] : kNone;
    if (lost) return FailJob(job, lost->message);
    const bool current = Current(job);
    MoveStep work;
    std::vector<std::byte*> staged;
    std::vector<PieceHeader> headers;
    if (current) {
      work = rebalance.NextStep();
      for (const SlotCopy& copy : work.stage) staged.push_back(places.at({copy.layer, copy.to}));
      for (const MovePiece& piece : work.sends) headers.push_back(rebalance.Describe(piece));
    }
    lock.unlock();
    for (size_t i = 0; i < staged.size(); ++i) {
      const MoverLayer& of = layer(work.stage[i].layer);
      of.Read(Local(work.stage[i].from), 0, of.slot_bytes(), staged[i]);
    }
    Status status;
    if (!pieces.empty()) {
      Pack(pieces, headers);
      status = Exchange();
    }
    lock.lock();
    if (!status) {
      lost = status.error();
      return FailJob(job, lost->message);
    }
    if (current && !pieces.empty()) Unpack(lock, job, pieces);
    if (current && Current(job)) rebalance.EndStep();
  }

  void FailJob(const Job& job, const std::string& why) {
    if (Current(job)) rebalance.Fail(why);
  }

  // Messages of known sizes: pieces with their headers. Without `headers`, those of this rank's
  // pieces, the round was dropped, and what is sent says so.
  void Pack(const std::vector<MovePiece>& pieces, std::vector<PieceHeader>& headers) {
    std::vector<int64_t> out(static_cast<size_t>(shape.ranks)), in = out;  // bytes, by partner
    for (const MovePiece& piece : pieces) {
      const int32_t from = shape.RankOf(piece.source), to = shape.RankOf(piece.slot);
      const int64_t bytes = MessageBytes(piece);
      if (from == rank()) out[static_cast<size_t>(to)] += bytes;
      if (to == rank()) in[static_cast<size_t>(from)] += bytes;
    }
    sent.Divide(out);
    received.Divide(in);
    std::vector<size_t> at(out.size());
    auto next = headers.begin();
    for (const MovePiece& piece : pieces) {
      if (shape.RankOf(piece.source) != rank()) continue;
      const auto to = static_cast<size_t>(shape.RankOf(piece.slot));
      std::byte* message = sent.parts[to].data() + at[to];
      at[to] += static_cast<size_t>(MessageBytes(piece));
      PieceHeader header = kDroppedPiece;
      if (!headers.empty()) {
        header = *next++;
        std::byte* data = message + sizeof(header);
        layer(piece.layer).Read(Local(piece.source), piece.begin, piece.end, data);
        header.checksum = ChecksumOf(header, {data, static_cast<size_t>(piece.end - piece.begin)});
      }
      std::memcpy(message, &header, sizeof(header));
    }
  }

  Status Exchange() {
    const std::vector<Bytes> send(sent.parts.begin(), sent.parts.end());
    return parts.group.AllToAllV(send, received.parts);
  }

  // Bytes are in the buffer before the state machine knows of them.
  void Unpack(std::unique_lock<std::mutex>& lock, const Job& job,
              const std::vector<MovePiece>& pieces) {
    std::vector<size_t> at(received.parts.size());
    for (const MovePiece& piece : pieces) {
      if (shape.RankOf(piece.slot) != rank()) continue;
      if (!Current(job)) return;
      std::byte* place = places.at({piece.layer, piece.slot});
      const auto from = static_cast<size_t>(shape.RankOf(piece.source));
      const std::byte* message = received.parts[from].data() + at[from];
      const auto count = static_cast<size_t>(piece.end - piece.begin);
      at[from] += sizeof(PieceHeader) + count;
      lock.unlock();
      PieceHeader header;
      std::memcpy(&header, message, sizeof(header));
      const std::byte* bytes = message + sizeof(header);
      const uint64_t checksum = ChecksumOf(header, {bytes, count});
      std::memcpy(place + piece.begin, bytes, count);
      lock.lock();
      if (!Current(job)) return;
      if (header == kDroppedPiece) return;  // this rank will drop the round too, by the votes
      const bool expected = header.attempt == job.attempt && header.layer == piece.layer &&
                            header.slot == piece.slot && header.begin == piece.begin &&
                            header.end == piece.end;
      if (!expected && header.checksum == checksum) {
        rebalance.Fail(fmt::format(
            "a piece for slot {} of layer {} in attempt {} arrived where slot {} of "
            "layer {} in attempt {} was expected",
            header.slot, header.layer, header.attempt, piece.slot, piece.layer, job.attempt));
      } else if (rebalance.Receive(header, checksum)) {
        figures.bytes += static_cast<int64_t>(count);
      }
    }
  }

  void Note(const MoveChange& change) {
    if (change.kind == MoveChange::kNone) return;
    figures.moving = rebalance.moving();
    if (change.kind == MoveChange::kSwap) {
      ++figures.swaps;
      if (rebalance.moving()) return;
      ++figures.done;
      if (speaks()) LogInfo("experts lie where placement {} says", figures.begun);
      return;
    }
    ++figures.dropped;
    figures.failure = rebalance.failure().empty() ? "another rank failed, or it took too long"
                                                  : rebalance.failure();
    if (!speaks() && rebalance.failure().empty()) return;
    LogWarning("rank {}: experts stay where they are, placement {} was dropped: {}", parts.rank,
               figures.begun, figures.failure);
  }
};

int64_t ExpertMover::BufferBytes(const ModelSpec& spec, const ModelWeights& weights) {
  int64_t most = 0;
  for (const MoverLayer& layer : LayersOf(spec, weights)) {
    most = std::max(most, layer.weights->down.matrix.count * layer.slot_bytes());
  }
  return most;
}

ExpertMover::ExpertMover(const Parts& parts) : state_(std::make_unique<State>(parts)) {}

// The thread ends with what the steps so far allow, which the other ranks' threads do too.
ExpertMover::~ExpertMover() {
  {
    std::lock_guard lock(state_->mutex);
    state_->ending = true;
  }
  state_->changed.notify_all();
  state_->thread.join();
}

void ExpertMover::Begin(const std::vector<LayerSlots>& next) {
  State& s = *state_;
  std::lock_guard lock(s.mutex);
  if (s.rebalance.moving()) return;
  Status status;
  if (next.size() != s.layers.size()) {
    status = Error{ErrorCode::kInvalid, fmt::format("a placement of {} layers; the model has {} "
                                                    "with experts",
                                                    next.size(), s.layers.size())};
  } else {
    status = s.rebalance.Begin(next);
  }
  ++s.figures.begun;
  if (!status) {
    ++s.figures.dropped;
    s.figures.failure = status.error().message;
    if (s.speaks()) LogWarning("experts stay where they are: {}", s.figures.failure);
    return;
  }
  s.figures.moving = s.rebalance.moving();
  if (s.figures.moving) {
    s.StartRound();
  } else {
    ++s.figures.done;
  }
}

void ExpertMover::Step() {
  std::lock_guard lock(state_->mutex);
  ++state_->ticks;
  state_->changed.notify_all();  // a round that was dropped has steps too
}

MoveVote ExpertMover::vote() const {
  std::lock_guard lock(state_->mutex);
  return state_->rebalance.vote();
}

void ExpertMover::Apply(std::span<const MoveVote> votes, ThreadPool& pool) {
  State& s = *state_;
  std::unique_lock lock(s.mutex);
  if (!s.rebalance.moving()) return;
  const std::vector<int32_t> layers = s.rebalance.round().layers;
  const MoveChange change = s.rebalance.Apply(votes);
  s.Note(change);
  if (change.kind != MoveChange::kSwap) return;
  std::vector<const std::byte*> from;
  for (const SlotCopy& copy : change.copies) from.push_back(s.places.at({copy.layer, copy.from}));
  lock.unlock();  // the thread has nothing to do before StartRound
  pool.Run(std::ssize(change.copies), [&](int64_t i, int) {
    const SlotCopy& copy = change.copies[static_cast<size_t>(i)];
    s.layer(copy.layer).Write(s.Local(copy.to), from[static_cast<size_t>(i)]);
  });
  for (const int32_t index : layers) {
    const MoverLayer& layer = s.layer(index);
    std::vector<int32_t> choices =
        ChooseReplicas(s.shape, s.rebalance.placement()[static_cast<size_t>(index)], layer.number,
                       s.rank(), *layer.weights);
    if (s.parts.loads != nullptr) {
      s.parts.loads->SetChoices(static_cast<size_t>(index), s.shape, std::move(choices));
    }
  }
  lock.lock();
  if (s.rebalance.moving()) s.StartRound();
}

std::vector<LayerSlots> ExpertMover::placement() const {
  std::lock_guard lock(state_->mutex);
  return state_->rebalance.placement();
}

BesideStep BesideStepOf(const ExpertMover* mover) {
  if (mover == nullptr) return {};
  const MoveProgress progress = mover->progress();
  return {.ended = progress.done + progress.dropped,
          .under_way = progress.moving,
          .cpu_ns = progress.cpu_ns};
}

MoveProgress ExpertMover::progress() const {
  std::lock_guard lock(state_->mutex);
  return state_->figures;
}

}  // namespace braid

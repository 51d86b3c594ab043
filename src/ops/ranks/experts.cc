// Experts on several ranks. A token's row goes once to every rank that has some of its experts;
// each expert's row comes back by itself. Tokens are sent in rounds, which bounds the memory.
//
// A row travels as the experts' products read it (ops/ranks/sent_rows.h).
//
// With Ranks::sums a rank adds the rows of a token's experts, in their order, and one row comes
// back; those of several ranks are added in the order of ranks.
//
// Rows go in one of two forms. Counted: ranks first tell each other how many rows come, which is a
// message more. In parcels of a fixed number of rows, of which those that are not used say so: a
// round then ends before the first token for which a rank's parcel has no room.
#include <algorithm>
#include <vector>

#include "base/math.h"
#include "ops/ranks.h"
#include "ops/ranks/sent_rows.h"

namespace braid::ops {
namespace {

// Of the experts' rows of a round on one rank.
constexpr int64_t kRoundBytes = int64_t{64} << 20;
constexpr int64_t kRoundTokensLeast = 16, kRoundTokensMost = 4096;

// One rank's exchanges. Sizes of the workspace are those of the worst round: all tokens of all
// ranks go to all ranks.
class Exchange {
 public:
  Exchange(const OpContext& context, const DividedExpertsArgs& args)
      : context_(context),
        args_(args),
        group_(*context.ranks->experts),
        ranks_(group_.size()),
        hidden_(args.x.cols),
        own_slots_(args.down->count),
        sums_(context.ranks->sums),
        rows_(context.device, args.gate_up->format, hidden_),
        record_(rows_.floats() + (sums_ ? 2 : 1) * args.top_k),
        round_(RoundTokens()),
        parcel_rows_(std::min<int64_t>(context.ranks->parcel_rows, round_)) {
    Workspace& ws = *context.workspace;
    const int64_t slots = std::min<int64_t>(args.top_k, own_slots_), pairs = round_ * ranks_;
    header_ = ws.Take<int32_t>(HeaderInts());
    headers_ = ws.Take<int32_t>(HeaderInts() * ranks_);
    at_ = ws.Take<int32_t>(round_ * args.top_k);
    packed_ = ws.Take<std::byte>(rows_.scratch_bytes());
    sent_ = ws.Take<float>(ranks_ * ParcelFloats(round_));
    received_ = ws.Take<float>(ranks_ * ParcelFloats(round_));
    back_ = ws.TakeMatrix(round_ * args.top_k, hidden_);
    x_ = ws.TakeMatrix(pairs, hidden_);
    x_at_ = ws.Take<int32_t>(pairs * slots);
    y_ = ws.TakeMatrix(pairs * slots, hidden_);
    ids_ = ws.Take<int32_t>(pairs * slots);
    ones_ = ws.Take<float>(pairs * slots);
  }

  // Whether more rounds follow, of this rank's tokens or of another's.
  bool Round() {
    if (context_.workspace->measuring()) {
      Compute(x_.rows, y_.rows);
      if (!sums_) Add(0, round_);
      return false;
    }
    const int64_t first = done_;
    done_ = RoundEnd(first);
    Pack(first, done_ - first);
    const bool more = done_ < args_.x.rows;
    if (!Take(parcel_rows_ > 0 ? SendParcels(more) : SendCounted(more))) return false;
    Unpack();
    Return();
    if (!Take(group_.AllToAllV(send_, receive_))) return false;
    sums_ ? AddSums(first, done_ - first) : Add(first, done_ - first);
    return more_;
  }

 private:
  // Records for each rank, and whether more rounds follow.
  int64_t HeaderInts() const { return ranks_ + 1; }
  // Whether more rounds follow, then records.
  int64_t ParcelFloats(int64_t rows) const { return 1 + rows * record_; }

  int64_t RoundTokens() const {
    if (args_.round_tokens > 0) return args_.round_tokens;
    const int64_t slots = std::min<int64_t>(args_.top_k, own_slots_);
    const int64_t token = ranks_ * slots * hidden_ * static_cast<int64_t>(sizeof(float));
    return std::clamp(kRoundBytes / token, kRoundTokensLeast, kRoundTokensMost);
  }

  bool Take(Status status) {
    context_.ranks->status = std::move(status);
    return context_.ranks->status.ok();
  }

  int64_t SlotOf(int32_t expert) const { return args_.slot_of ? args_.slot_of[expert] : expert; }

  // The tokens of a round are [first, this).
  int64_t RoundEnd(int64_t first) {
    const int64_t end = std::min(first + round_, args_.x.rows);
    if (parcel_rows_ == 0) return end;
    rows_back_.assign(static_cast<size_t>(ranks_), 0);  // here the records for each rank
    for (int64_t t = first; t < end; ++t) {
      goes_.assign(static_cast<size_t>(ranks_), false);
      for (int64_t j = 0; j < args_.top_k; ++j) {
        goes_[static_cast<size_t>(SlotOf(args_.ids[t * args_.top_k + j]) / own_slots_)] = true;
      }
      for (size_t rank = 0; rank < goes_.size(); ++rank) {
        if (goes_[rank] && ++rows_back_[rank] > parcel_rows_) return t;
      }
    }
    return end;
  }

  // Of a record: the rank's slots, and with sums the experts' weights.
  int32_t* SlotsOf(float* record) const {
    return reinterpret_cast<int32_t*>(record + rows_.floats());
  }
  float* WeightsOf(float* record) const { return record + rows_.floats() + args_.top_k; }

  // The tokens' records, by rank: inputs, then slots of the rank, -1 where there are none. Notes
  // where each expert's row will be: rows come back in the order of records and of their experts,
  // or one for each record.
  void Pack(int64_t first, int64_t tokens) {
    const int64_t k = args_.top_k;
    rows_back_.assign(static_cast<size_t>(ranks_), 0);
    packed_at_.assign(static_cast<size_t>(tokens), nullptr);
    if (sums_) std::fill_n(at_, tokens * k, -1);
    float* record = sent_;
    int32_t row = 0;
    for (int64_t rank = 0; rank < ranks_; ++rank) {
      const int32_t first_row = row;
      if (parcel_rows_ > 0) record = ParcelOf(sent_, rank) + 1;
      header_[rank] = 0;
      for (int64_t t = 0; t < tokens; ++t) {
        const int32_t* ids = args_.ids + (first + t) * k;
        int32_t* slots = SlotsOf(record);
        std::fill_n(slots, k, -1);
        int64_t here = 0;
        for (int64_t j = 0; j < k; ++j) {
          const int64_t slot = SlotOf(ids[j]);
          if (slot / own_slots_ != rank) continue;
          if (sums_) WeightsOf(record)[here] = args_.weights[(first + t) * k + j];
          slots[here++] = static_cast<int32_t>(slot - rank * own_slots_);
          if (!sums_) at_[t * k + j] = row++;
        }
        if (here == 0) continue;
        if (sums_) *std::find(at_ + t * k, at_ + (t + 1) * k, -1) = row++;
        PackRow(first + t, record, packed_at_[static_cast<size_t>(t)]);
        record += record_;
        ++header_[rank];
      }
      rows_back_[static_cast<size_t>(rank)] = row - first_row;
      for (int64_t r = header_[rank]; r < parcel_rows_; ++r, record += record_) {
        SlotsOf(record)[0] = -1;
      }
    }
  }

  // A token's row is the same for every rank.
  void PackRow(int64_t token, float* record, const float*& packed_at) {
    if (packed_at == nullptr) {
      rows_.Pack(args_.x.row(token), packed_, record);
      packed_at = record;
    } else {
      std::copy_n(packed_at, rows_.floats(), record);
    }
  }

  static MutableBytes BytesOf(float* data, int64_t floats) {
    return std::as_writable_bytes(std::span(data, static_cast<size_t>(floats)));
  }
  int64_t Counted(int64_t from, int64_t to) const { return headers_[from * HeaderInts() + to]; }

  float* ParcelOf(float* parcels, int64_t rank) const {
    return parcels + rank * ParcelFloats(parcel_rows_);
  }

  Status SendCounted(bool more) {
    header_[ranks_] = more ? 1 : 0;
    RETURN_IF_ERROR(group_.AllGather(
        std::as_bytes(std::span(header_, static_cast<size_t>(HeaderInts()))),
        std::as_writable_bytes(std::span(headers_, static_cast<size_t>(HeaderInts() * ranks_)))));
    send_.clear();
    receive_.clear();
    came_.clear();
    more_ = false;
    float *out = sent_, *in = received_;
    for (int64_t rank = 0; rank < ranks_; ++rank) {
      const int64_t to = Counted(group_.rank(), rank), from = Counted(rank, group_.rank());
      send_.push_back(BytesOf(out, to * record_));
      receive_.push_back(BytesOf(in, from * record_));
      came_.push_back({in, from});
      more_ = more_ || headers_[rank * HeaderInts() + ranks_] != 0;
      out += to * record_;
      in += from * record_;
    }
    return group_.AllToAllV(send_, receive_);
  }

  Status SendParcels(bool more) {
    send_.clear();
    receive_.clear();
    came_.clear();
    for (int64_t rank = 0; rank < ranks_; ++rank) {
      float *out = ParcelOf(sent_, rank), *in = ParcelOf(received_, rank);
      *reinterpret_cast<int32_t*>(out) = more ? 1 : 0;
      send_.push_back(BytesOf(out, ParcelFloats(parcel_rows_)));
      receive_.push_back(BytesOf(in, ParcelFloats(parcel_rows_)));
      came_.push_back({in + 1, parcel_rows_});
    }
    RETURN_IF_ERROR(group_.AllToAllV(send_, receive_));
    more_ = false;
    for (int64_t rank = 0; rank < ranks_; ++rank) {
      more_ = more_ || *reinterpret_cast<const int32_t*>(ParcelOf(received_, rank)) != 0;
    }
    return {};
  }

  // The records' rows, and a row for each of their experts, by sender.
  void Unpack() {
    int64_t pairs = 0, rows = 0;
    pairs_.clear();
    for (const auto& [records, count] : came_) {
      const int64_t before = pairs;
      float* record = records;
      for (int64_t r = 0; r < count; ++r, record += record_) {
        const int32_t* slots = SlotsOf(record);
        for (int64_t j = 0; j < args_.top_k && slots[j] >= 0; ++j, ++pairs) {
          CHECK(pairs < y_.rows && slots[j] < own_slots_, "slot {} of {}", slots[j], own_slots_);
          x_at_[pairs] = static_cast<int32_t>(rows);
          ids_[pairs] = slots[j];
        }
        if (slots[0] >= 0) rows_.Unpack(record, x_.row(rows++));
      }
      pairs_.push_back(pairs - before);
    }
    if (pairs > 0) Compute(rows, pairs);
    if (sums_) Sum();
  }

  // The rows of each record become one, in the place of the first.
  void Sum() {
    int64_t pair = 0, sum = 0;
    for (size_t rank = 0; rank < came_.size(); ++rank) {
      const int64_t before = sum;
      float* record = came_[rank].first;
      for (int64_t r = 0; r < came_[rank].count; ++r, record += record_) {
        const int32_t* slots = SlotsOf(record);
        if (slots[0] < 0) continue;
        float* to = y_.row(sum++);
        for (int64_t j = 0; j < args_.top_k && slots[j] >= 0; ++j, ++pair) {
          const float weight = WeightsOf(record)[j];
          const float* from = y_.row(pair);
          for (int64_t c = 0; c < hidden_; ++c) to[c] = (j == 0 ? 0 : to[c]) + weight * from[c];
        }
      }
      pairs_[rank] = sum - before;
    }
  }

  // A weight of 1 of a single expert leaves its row as it is.
  void Compute(int64_t rows, int64_t pairs) {
    if (!context_.workspace->measuring()) std::fill_n(ones_, pairs, 1.0f);
    Experts(context_, {.x = x_.first_rows(rows),
                       .x_at = x_at_,
                       .gate_up = args_.gate_up,
                       .down = args_.down,
                       .ids = ids_,
                       .weights = ones_,
                       .top_k = 1,
                       .limit = args_.limit,
                       .out = y_.first_rows(pairs)});
  }

  void Return() {
    send_.clear();
    receive_.clear();
    int64_t out = 0, in = 0;
    for (int64_t rank = 0; rank < ranks_; ++rank) {
      const int64_t to = pairs_[static_cast<size_t>(rank)];
      const int64_t from = rows_back_[static_cast<size_t>(rank)];
      send_.push_back(BytesOf(y_.row(out), to * y_.stride));
      receive_.push_back(BytesOf(back_.row(in), from * back_.stride));
      out += to;
      in += from;
    }
  }

  void AddSums(int64_t first, int64_t tokens) {
    for (int64_t t = 0; t < tokens; ++t) {
      float* out = args_.out.row(first + t);
      std::fill_n(out, hidden_, 0.0f);
      for (int64_t j = 0; j < args_.top_k && at_[t * args_.top_k + j] >= 0; ++j) {
        const float* sum = back_.row(at_[t * args_.top_k + j]);
        for (int64_t c = 0; c < hidden_; ++c) out[c] += sum[c];
      }
    }
  }

  void Add(int64_t first, int64_t tokens) {
    if (context_.workspace->measuring() || tokens == 0) return;
    AddRows(context_, {.rows = back_,
                       .at = at_,
                       .weights = args_.weights + first * args_.top_k,
                       .k = args_.top_k,
                       .out = args_.out.some_rows(first, tokens)});
  }

  const OpContext& context_;
  const DividedExpertsArgs& args_;
  Communicator& group_;
  const int64_t ranks_, hidden_, own_slots_;
  const bool sums_;
  const SentRows rows_;
  const int64_t record_;       // floats: a row and slots of a rank, with sums the weights too
  const int64_t round_;        // tokens
  const int64_t parcel_rows_;  // 0: rows are counted
  int64_t done_ = 0;           // tokens
  bool more_ = false;          // rounds follow, of this rank's tokens or of another's
  int32_t *header_, *headers_;
  int32_t* at_;        // [tokens, top_k]: rows of back_
  std::byte* packed_;  // scratch of rows_
  float *sent_, *received_;
  Matrix back_, x_, y_;
  int32_t *ids_, *x_at_;
  float* ones_;
  std::vector<int64_t> rows_back_, pairs_;  // by rank
  std::vector<bool> goes_;                  // a token to each rank
  std::vector<const float*> packed_at_;  // of each token: its row in the first record that has it
  struct Records {
    float* first;
    int64_t count;
  };
  std::vector<Records> came_;  // by rank
  std::vector<Bytes> send_;
  std::vector<MutableBytes> receive_;
};

}  // namespace

void DividedExperts(const OpContext& context, const DividedExpertsArgs& args) {
  const Communicator* group = context.ranks == nullptr ? nullptr : context.ranks->experts;
  if (group == nullptr || group->size() == 1) {
    if (args.x.rows == 0) return;
    return Experts(context, {.x = args.x,
                             .gate_up = args.gate_up,
                             .down = args.down,
                             .ids = args.ids,
                             .weights = args.weights,
                             .top_k = args.top_k,
                             .limit = args.limit,
                             .out = args.out});
  }
  if (!context.ranks->status.ok()) return;
  WorkspaceScope scope(*context.workspace);
  Exchange exchange(context, args);
  while (exchange.Round()) {
  }
}

}  // namespace braid::ops

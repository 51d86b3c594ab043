// See the header.
#include "comm/step_times.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/clock.h"
#include "base/system/thread_time.h"

namespace braid {

// What a rank has for itself is copied by the caller, so it counts as computed.
class StepTimes::TimedGroup final : public Communicator {
 public:
  TimedGroup(Communicator& group, StepTimes& times, int32_t number)
      : Communicator(group.rank(), group.size()), group_(group), times_(times), number_(number) {}

 private:
  Status Exchange(std::span<const Bytes> send, std::span<const MutableBytes> receive) override {
    const auto own = static_cast<size_t>(rank());
    send_.assign(send.begin(), send.end());
    receive_.assign(receive.begin(), receive.end());
    send_[own] = {};
    receive_[own] = {};
    times_.EndPart(number_);
    Status status = group_.AllToAllV(send_, receive_);
    times_.BeginPart();
    return status;
  }

  Communicator& group_;
  StepTimes& times_;
  const int32_t number_;
  std::vector<Bytes> send_;
  std::vector<MutableBytes> receive_;
};

std::unique_ptr<Communicator> StepTimes::Timed(Communicator& group, int32_t number) {
  return std::make_unique<TimedGroup>(group, *this, number);
}

void StepTimes::Begin(int64_t tokens) {
  step_ = {.tokens = tokens, .moves_before = beside_.ended, .moving = beside_.under_way};
  open_ = true;
  step_from_ns_ = MonotonicNs();
  BeginPart();
}

void StepTimes::BeginPart() { part_from_ns_ = ThreadCpuNs(); }

void StepTimes::EndPart(int32_t group) {
  if (open_) step_.parts.push_back({group, ThreadCpuNs() - part_from_ns_});
}

void StepTimes::End(const BesideStep& beside) {
  EndPart(StepPart::kEnd);
  open_ = false;
  step_.wall_ns = MonotonicNs() - step_from_ns_;
  step_.moving = step_.moving || beside.under_way || beside.ended != beside_.ended;
  step_.beside_ns = beside.cpu_ns - beside_.cpu_ns;
  beside_ = beside;
  std::lock_guard lock(mutex_);
  ended_.push_back(std::exchange(step_, {}));
}

std::vector<RankStep> StepTimes::Take() {
  std::lock_guard lock(mutex_);
  std::vector<RankStep> steps(std::make_move_iterator(ended_.begin()),
                              std::make_move_iterator(ended_.end()));
  ended_.clear();
  return steps;
}

Result<GroupStep> SlowestOf(std::span<const RankStep> ranks) {
  const RankStep& first = ranks.front();
  GroupStep group{.tokens = first.tokens, .moves_before = first.moves_before, .parts = first.parts};
  for (size_t r = 0; r < ranks.size(); ++r) {
    const RankStep& rank = ranks[r];
    const bool alike =
        rank.tokens == first.tokens &&
        std::ranges::equal(rank.parts, first.parts, {}, &StepPart::group, &StepPart::group);
    if (!alike) {
      return Error{
          ErrorCode::kInternal,
          fmt::format("rank {} made {} parts of a step of {} tokens, rank 0 {} of one of "
                      "{}: they do not exchange alike",
                      r, rank.parts.size(), rank.tokens, first.parts.size(), first.tokens)};
    }
    group.moving = group.moving || rank.moving;
    group.beside_ns = std::max(group.beside_ns, rank.beside_ns);
    group.wall_ns = std::max(group.wall_ns, rank.wall_ns);
    for (size_t i = 0; i < rank.parts.size(); ++i) {
      group.parts[i].cpu_ns = std::max(group.parts[i].cpu_ns, rank.parts[i].cpu_ns);
    }
  }
  for (const StepPart& part : group.parts) group.cpu_ns += part.cpu_ns;
  return group;
}

}  // namespace braid

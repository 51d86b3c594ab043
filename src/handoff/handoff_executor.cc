// A mirror of the block tables of slots that compute for partners; see the header.
#include "handoff/handoff_executor.h"

#include "base/check.h"

namespace braid::handoff {

// Passes the step's end on, when the final blocks have been copied.
class HandoffExecutor::Tap final : public EventSink {
 public:
  explicit Tap(HandoffExecutor& executor) : executor_(executor) {}
  // Movers post here later, from their threads: it stays the same.
  void PassTo(EventSink& to) {
    CHECK(to_ == nullptr || to_ == &to);
    if (to_ == nullptr) to_ = &to;
  }
  void Post(Event event) override {
    if (const auto* done = std::get_if<StepDone>(&event)) executor_.SendFinal(*done);
    to_->Post(std::move(event));
  }

 private:
  HandoffExecutor& executor_;
  EventSink* to_ = nullptr;
};

HandoffExecutor::HandoffExecutor(Executor& inner, Partners& partners, const SchedulerConfig& config)
    : inner_(inner),
      partners_(partners),
      geometry_(config.cache),
      mirrors_(static_cast<size_t>(config.running_max)),
      requests_(static_cast<size_t>(config.running_max)),
      tap_(std::make_unique<Tap>(*this)) {
  CHECK(config.dp_ranks == 1);
}

HandoffExecutor::~HandoffExecutor() = default;

Result<std::vector<Event>> HandoffExecutor::Exchange(std::vector<Event> local) {
  for (const Event& event : local) {
    if (const auto* abort = std::get_if<braid::Abort>(&event)) partners_.Abort(abort->id);
    const auto* stop = std::get_if<StopRequested>(&event);
    if (stop != nullptr && stop->now) partners_.Leave();
  }
  return inner_.Exchange(std::move(local));
}

void HandoffExecutor::Launch(Plan plan, EventSink& events) {
  Follow(plan);
  for (const PageMove& move : plan.moves) {
    if (!move.in() || move.place != Place::kPeer) continue;
    const Request* request = requests_[move.slot];
    CHECK(request != nullptr && request->id == move.request);
    partners_.Expect(move.id, *request);
  }
  tap_->PassTo(events);
  inner_.Launch(std::move(plan), *tap_);
}

void HandoffExecutor::Follow(const Plan& plan) {
  for (const Admission& admission : plan.admissions) {
    Mirror& mirror = mirrors_[admission.slot];
    const Request& request = *admission.request;
    requests_[admission.slot] = &request;
    mirror.next = -1;
    if (request.role != RequestRole::kPrefill) continue;
    const int32_t from = partners_.WantedFrom(request.id);
    if (from < 0) continue;
    mirror.request = request.id;
    mirror.next = from / kBlockTokens;
    mirror.prompt = static_cast<int32_t>(request.prompt.size());
    mirror.blocks.assign(geometry_.groups.size(), {});
  }
  for (const TableUpdate& update : plan.tables) {
    Mirror& mirror = mirrors_[update.slot];
    if (mirror.next < 0) continue;
    auto& table = mirror.blocks[static_cast<size_t>(update.group.value)];
    const auto index = static_cast<size_t>(update.index);
    if (table.size() <= index) table.resize(index + 1);
    table[index] = update.block;
  }
  computed_.clear();
  for (size_t r = 0; r < plan.rows.size(); ++r) {
    const Row& row = plan.rows[r];
    if (mirrors_[row.slot].next < 0) continue;
    computed_.push_back({r, row.slot, row.start + row.token_count});
  }
}

void HandoffExecutor::SendFinal(const StepDone& done) {
  for (const Computed& computed : computed_) {
    Mirror& mirror = mirrors_[computed.slot];
    if (!done.rows[computed.row].error.empty() || computed.end >= mirror.prompt) {
      mirror.next = -1;  // its end, or its pages, come from the scheduler
      continue;
    }
    for (; mirror.next < computed.end / kBlockTokens; ++mirror.next) {
      for (size_t g = 0; g < geometry_.groups.size(); ++g) {
        if (geometry_.groups[g].kind != GroupKind::kFull) continue;
        const GroupId group(static_cast<int32_t>(g));
        partners_.Early(mirror.request, {group, mirror.next},
                        mirror.blocks[g][static_cast<size_t>(mirror.next)]);
      }
    }
  }
}

}  // namespace braid::handoff

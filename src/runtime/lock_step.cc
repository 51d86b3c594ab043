// Messages are a length of 8 bytes and, unless it is 0 or the end, as many bytes of whole records.
#include "runtime/lock_step.h"

#include <fmt/format.h>

#include <limits>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "scheduler/event_codec.h"
#include "scheduler/planning/plan_hash.h"
#include "scheduler/planning/plan_text.h"
#include "scheduler/replay.h"

namespace braid {
namespace {

constexpr uint64_t kEnd = std::numeric_limits<uint64_t>::max();

template <class T>
MutableBytes BytesOf(T& value) {
  return std::as_writable_bytes(std::span(&value, 1));
}

// The records that rank 0 sends, as they come.
class Received final : public RecordSource {
 public:
  explicit Received(Communicator& all) : all_(all) {}

  Status Begin() {
    ASSIGN_OR_RETURN(std::optional<AnyRecord> record, NextRecord());
    CHECK(record && std::holds_alternative<LogStart>(*record), "rank 0 sends no start");
    start_ = std::get<LogStart>(*std::move(record));
    return {};
  }
  const LogStart& start() const override { return start_; }

  Result<std::optional<LogRecord>> Next() override {
    ASSIGN_OR_RETURN(std::optional<AnyRecord> record, NextRecord());
    if (!record) return std::optional<LogRecord>();
    if (auto* event = std::get_if<Event>(&*record)) {
      return std::optional<LogRecord>(std::move(*event));
    }
    return std::optional<LogRecord>(std::get<PlanMark>(*record));
  }

 private:
  Result<std::optional<AnyRecord>> NextRecord() {
    while (true) {
      ASSIGN_OR_RETURN(std::optional<AnyRecord> record, records_.Next());
      if (record) return record;
      uint64_t size = 0;
      RETURN_IF_ERROR(all_.Broadcast(0, BytesOf(size)));
      if (size == kEnd) return std::optional<AnyRecord>();
      text_.resize(size);
      if (size > 0) RETURN_IF_ERROR(all_.Broadcast(0, std::as_writable_bytes(std::span(text_))));
      records_ = RecordReader(text_);
    }
  }

  Communicator& all_;
  std::string text_;
  RecordReader records_{{}};
  LogStart start_;
};

std::string Encoded(const LogStart& start) {
  std::string text;
  AppendRecord(start, text);
  return text;
}

}  // namespace

RankLeader::RankLeader(Communicator& all, const LogStart& start,
                       std::function<void(const Error&)> on_lost)
    : all_(all), on_lost_(std::move(on_lost)), pending_(Encoded(start)) {
  Send();
}

RankLeader::~RankLeader() {
  if (!pending_.empty()) Send();
  uint64_t end = kEnd;
  if (!lost_ && !all_.Broadcast(0, BytesOf(end)).ok()) LogWarning("a rank left before the end");
}

void RankLeader::Add(const Event& event) {
  if (!lost_) AppendRecord(event, pending_);
}

void RankLeader::Add(const Plan& plan) {
  if (lost_) return;
  AppendRecord(PlanMark{plan.step, HashPlan(plan)}, pending_);
  last_plan_ = plan.rows.empty() ? std::string() : PlanText(plan);
  Send();
}

void RankLeader::Send() {
  if (lost_) return;
  uint64_t size = pending_.size();
  Status status = all_.Broadcast(0, BytesOf(size));
  if (status && size > 0) {
    status = all_.Broadcast(0, std::as_writable_bytes(std::span(pending_)));
  }
  pending_.clear();
  if (status) return;
  lost_ = true;
  LogError("the group of ranks has ended: {}. The last plan: {}", status.error().message,
           last_plan_.empty() ? "none" : last_plan_);
  on_lost_(status.error());
}

Status FollowRun(Communicator& all, const LogStart& own, Executor& executor) {
  Received records(all);
  RETURN_IF_ERROR(records.Begin());
  if (Encoded(records.start()) != Encoded(own)) {
    return Error{ErrorCode::kInvalid,
                 fmt::format("rank {} was started otherwise than rank 0: it has \"{}\", rank 0 has "
                             "\"{}\"; model, flags and CPUs must be the same",
                             all.rank(), own.model, records.start().model)};
  }
  Result<ReplayReport> report = Replay(records, &executor);
  if (!report) return report.error();
  return {};
}

}  // namespace braid

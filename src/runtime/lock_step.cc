// A message of rank 0 has two parts. In the first all ranks tell all how many bytes of whole
// records they have to say: rank 0 to everybody, the others to rank 0. The second brings these; it
// is left out where nobody has any, and after the end.
#include "runtime/lock_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <span>
#include <string_view>
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
// Of the records of a message; a step's events are prompts of a few megabytes at most.
constexpr uint64_t kRecordBytesMax = uint64_t{1} << 30;

Bytes BytesOf(const uint64_t& value) { return std::as_bytes(std::span(&value, 1)); }

Bytes BytesOf(const std::string& text) { return std::as_bytes(std::span(text)); }

bool AnySays(const std::vector<uint64_t>& sizes) {
  return std::ranges::any_of(sizes, [](uint64_t size) { return size > 0; });
}

// Before room is made for what the ranks are going to send.
Status CheckSizes(const std::vector<uint64_t>& sizes) {
  for (size_t rank = 0; rank < sizes.size(); ++rank) {
    if (sizes[rank] <= kRecordBytesMax) continue;
    return Error{ErrorCode::kInternal,
                 fmt::format("rank {} has records of {} bytes to send; they must be at most {}",
                             rank, sizes[rank], kRecordBytesMax)};
  }
  return {};
}

// The records that rank 0 sends, as they come.
class Received final : public RecordSource {
 public:
  Received(Communicator& all, const FollowerParts& parts)
      : all_(all), parts_(parts), sizes_(static_cast<size_t>(all.size())) {}

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
      if (parts_.watch) parts_.watch(*event);
      return std::optional<LogRecord>(std::move(*event));
    }
    return std::optional<LogRecord>(std::get<PlanMark>(*record));
  }

 private:
  Result<std::optional<AnyRecord>> NextRecord() {
    while (true) {
      ASSIGN_OR_RETURN(std::optional<AnyRecord> record, records_.Next());
      if (record) return record;
      RETURN_IF_ERROR(Exchange());
      if (sizes_[0] == kEnd) return std::optional<AnyRecord>();
      records_ = RecordReader(text_);
    }
  }

  Status Exchange() {
    std::string reports;
    for (const Event& event : parts_.reports ? parts_.reports() : std::vector<Event>()) {
      AppendRecord(event, reports);
    }
    const uint64_t mine = reports.size();
    text_.clear();
    RETURN_IF_ERROR(all_.AllGather(BytesOf(mine), std::as_writable_bytes(std::span(sizes_))));
    if (sizes_[0] == kEnd || !AnySays(sizes_)) return {};
    RETURN_IF_ERROR(CheckSizes(sizes_));
    text_.resize(sizes_[0]);
    std::vector<Bytes> send(sizes_.size());
    std::vector<MutableBytes> receive(sizes_.size());
    send[0] = BytesOf(reports);
    receive[0] = std::as_writable_bytes(std::span(text_));
    return all_.AllToAllV(send, receive);
  }

  Communicator& all_;
  const FollowerParts& parts_;
  std::vector<uint64_t> sizes_;  // of what each rank sends
  std::string text_;
  RecordReader records_{{}};
  LogStart start_;
};

// The parts of a text, which commas divide, that the other does not have. All of it if there are
// none: then limits differ, which the text does not name.
std::string PartsNotIn(std::string_view other, std::string_view text) {
  constexpr std::string_view kComma = ", ";
  const std::string all = fmt::format("{}{}{}", kComma, other, kComma);
  std::string parts;
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view part = rest.substr(0, rest.find(kComma));
    rest.remove_prefix(std::min(rest.size(), part.size() + kComma.size()));
    if (all.find(fmt::format("{}{}{}", kComma, part, kComma)) != std::string::npos) continue;
    parts += fmt::format("{}{}", parts.empty() ? "" : kComma, part);
  }
  return parts.empty() ? std::string(text) : parts;
}

std::string Encoded(const LogStart& start) {
  std::string text;
  AppendRecord(start, text);
  return text;
}

}  // namespace

RankLeader::RankLeader(Communicator& all, const LogStart& start,
                       std::function<void(const Error&)> on_lost, EventSink* reports)
    : all_(all),
      on_lost_(std::move(on_lost)),
      reports_(reports),
      sizes_(static_cast<size_t>(all.size())),
      others_(static_cast<size_t>(all.size())),
      pending_(Encoded(start)) {
  Send();
}

RankLeader::~RankLeader() {
  if (!pending_.empty()) Send();
  const MutableBytes sizes = std::as_writable_bytes(std::span(sizes_));
  if (status_ && !all_.AllGather(BytesOf(kEnd), sizes).ok()) {
    LogWarning("a rank left before the end");
  }
}

void RankLeader::Add(const Event& event) {
  if (status_) AppendRecord(event, pending_);
}

void RankLeader::Add(const Plan& plan) {
  if (!status_) return;
  AppendRecord(PlanMark{plan.step, HashPlan(plan)}, pending_);
  last_plan_ = plan.rows.empty() ? std::string() : PlanText(plan);
  Send();
}

void RankLeader::Send() {
  if (!status_) return;
  const Status status = Exchange();
  pending_.clear();
  if (status) return;
  status_ = Error{status.error().code,
                  fmt::format("the group of ranks has ended: {}", status.error().message)};
  LogError("{}. The last plan: {}", status_.error().message,
           last_plan_.empty() ? "none" : last_plan_);
  on_lost_(status_.error());
}

// Sends what is pending, and hands on what the others report.
Status RankLeader::Exchange() {
  const uint64_t mine = pending_.size();
  RETURN_IF_ERROR(all_.AllGather(BytesOf(mine), std::as_writable_bytes(std::span(sizes_))));
  if (!AnySays(sizes_)) return {};
  RETURN_IF_ERROR(CheckSizes(sizes_));
  std::vector<Bytes> send(sizes_.size(), BytesOf(pending_));
  std::vector<MutableBytes> receive;
  for (size_t rank = 0; rank < sizes_.size(); ++rank) {
    others_[rank].resize(rank == 0 ? 0 : sizes_[rank]);
    receive.push_back(std::as_writable_bytes(std::span(others_[rank])));
  }
  send[0] = {};
  RETURN_IF_ERROR(all_.AllToAllV(send, receive));
  for (const std::string& text : others_) {
    RecordReader records(text);
    while (true) {
      ASSIGN_OR_RETURN(std::optional<AnyRecord> record, records.Next());
      if (!record) break;
      Event* event = std::get_if<Event>(&*record);
      CHECK(event != nullptr && reports_ != nullptr, "a rank reports what is no event");
      reports_->Post(std::move(*event));
    }
  }
  return {};
}

Status FollowRun(Communicator& all, const LogStart& own, Executor& executor,
                 const FollowerParts& parts) {
  Received records(all, parts);
  RETURN_IF_ERROR(records.Begin());
  if (Encoded(records.start()) != Encoded(own)) {
    return Error{
        ErrorCode::kInvalid,
        fmt::format("rank {} was started otherwise than rank 0: it has \"{}\", rank 0 has "
                    "\"{}\"; program, model, flags and CPUs must be the same",
                    all.rank(), PartsNotIn(records.start().model, own.model),
                    PartsNotIn(own.model, records.start().model))};
  }
  Result<ReplayReport> report = Replay(records, &executor, nullptr, parts.ended);
  if (!report) return report.error();
  return {};
}

}  // namespace braid

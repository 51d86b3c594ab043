// Event logs as files of records; see the header.
#include "scheduler/event_log.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "scheduler/planning/plan_hash.h"

namespace braid {
namespace {

constexpr std::string_view kMagic = "BRAIDLOG";
constexpr size_t kHeaderBytes = 12;

}  // namespace

bool IsEventLog(std::string_view begin) { return begin.starts_with(kMagic); }

Result<std::unique_ptr<EventLogWriter>> EventLogWriter::Create(const std::string& path,
                                                               const LogStart& start) {
  std::FILE* file = std::fopen(path.c_str(), "wb");
  if (file == nullptr) {
    return Error{ErrorCode::kInternal,
                 fmt::format("the event log {} cannot be written: {}", path, std::strerror(errno))};
  }
  std::unique_ptr<EventLogWriter> log(new EventLogWriter(file, path));
  log->pending_ = kMagic;
  log->pending_.append(reinterpret_cast<const char*>(&kEventCodecVersion),
                       sizeof(kEventCodecVersion));
  AppendRecord(start, log->pending_);
  RETURN_IF_ERROR(log->Flush());
  return log;
}

EventLogWriter::~EventLogWriter() {
  Status ignored = Flush();
  if (file_ != nullptr) std::fclose(file_);
}

void EventLogWriter::Add(const Event& event, int64_t at_us) {
  if (file_ == nullptr) return;
  if (std::exchange(at_us_, at_us) != at_us) AppendRecord(TimeMark{at_us}, pending_);
  AppendRecord(event, pending_);
}

void EventLogWriter::Add(const Plan& plan) {
  if (file_ != nullptr) AppendRecord(PlanMark{plan.step, HashPlan(plan)}, pending_);
}

Status EventLogWriter::Flush() {
  if (file_ == nullptr || pending_.empty()) return {};
  const bool written = std::fwrite(pending_.data(), 1, pending_.size(), file_) == pending_.size() &&
                       std::fflush(file_) == 0;
  pending_.clear();
  if (written) return {};
  const std::string reason = std::strerror(errno);
  std::fclose(std::exchange(file_, nullptr));
  return Error{ErrorCode::kInternal, fmt::format("the event log {} ends here: {}", path_, reason)};
}

Result<EventLogReader> EventLogReader::Open(const std::string& path) {
  ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path));
  EventLogReader reader(std::move(file));
  RETURN_IF_ERROR(reader.ReadStart());
  return reader;
}

Status EventLogReader::ReadStart() {
  const auto bytes = file_.bytes();
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const auto bad = [&](std::string what) {
    return Error{ErrorCode::kInvalid, fmt::format("{}: {}", file_.path(), what)};
  };
  if (!IsEventLog(text)) {
    return bad("this is no event log; `braid serve --event-log FILE` writes one");
  }
  if (text.size() < kHeaderBytes) return bad("the event log ends before its start record does");
  uint32_t version = 0;
  std::memcpy(&version, text.data() + kMagic.size(), sizeof(version));
  if (version != kEventCodecVersion) {
    return bad(fmt::format("an event log of version {}; this program reads version {}", version,
                           kEventCodecVersion));
  }
  records_ = RecordReader(text.substr(kHeaderBytes));
  auto record = records_.Next();
  if (!record) return Damaged(record.error());
  if (!record->has_value()) return bad("the event log ends before its start record does");
  auto* start = std::get_if<LogStart>(&**record);
  if (start == nullptr) return Damaged({ErrorCode::kInvalid, "it is not a start"});
  start_ = std::move(*start);
  return {};
}

Error EventLogReader::Damaged(const Error& why) const {
  return {ErrorCode::kInvalid,
          fmt::format("{}: the record before byte {} is damaged: {}", file_.path(),
                      kHeaderBytes + records_.at(), why.message)};
}

Result<std::optional<LogRecord>> EventLogReader::Next() {
  while (true) {
    auto record = records_.Next();
    if (!record) return Damaged(record.error());
    if (!record->has_value()) return std::optional<LogRecord>();
    if (auto* event = std::get_if<Event>(&**record)) {
      return std::optional<LogRecord>(std::move(*event));
    }
    if (const auto* mark = std::get_if<PlanMark>(&**record)) return std::optional<LogRecord>(*mark);
    const auto* time = std::get_if<TimeMark>(&**record);
    if (time == nullptr) return Damaged({ErrorCode::kInvalid, "it is a second start"});
    if (time->at_us < 0) return Damaged({ErrorCode::kInvalid, "its time is below 0"});
    at_us_ = time->at_us;
  }
}

}  // namespace braid

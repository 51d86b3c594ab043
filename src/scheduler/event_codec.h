// Events and plans' hashes as bytes: what an event log holds and what the ranks of a group send
// each other. Any thread.
//
// A record, little-endian: kind (1 byte), length (varint), payload, checksum of kind and payload (4
// bytes).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "base/result.h"
#include "scheduler/event.h"
#include "scheduler/scheduler.h"

namespace braid {

// Of the records' fields.
inline constexpr uint32_t kEventCodecVersion = 7;

struct LogStart {
  SchedulerConfig config;
  std::string model;  // whatever identifies it to who replays; may be empty
};

// One call of NextPlan; an empty plan counts as well, for making it may have changed something.
struct PlanMark {
  StepId step;  // invalid: the plan was empty
  uint64_t hash = 0;
};

// The time of the events that follow, up to the next mark. In event logs only: neither the
// scheduler nor the other ranks get it.
struct TimeMark {
  int64_t at_us = 0;  // of a monotonic clock
};

using AnyRecord = std::variant<LogStart, Event, PlanMark, TimeMark>;

void AppendRecord(const LogStart& start, std::string& out);
void AppendRecord(const Event& event, std::string& out);
void AppendRecord(const PlanMark& mark, std::string& out);
void AppendRecord(const TimeMark& mark, std::string& out);

class RecordReader {
 public:
  // Borrows the text.
  explicit RecordReader(std::string_view text) : text_(text) {}

  // The next record; none at the end, or where the last record is cut off. kInvalid when it is
  // damaged, with what is wrong with the record before byte at().
  Result<std::optional<AnyRecord>> Next();
  size_t at() const { return at_; }
  bool truncated() const { return truncated_; }

 private:
  std::string_view text_;
  size_t at_ = 0;
  bool truncated_ = false;
};

// The event of a record, if it is a T.
template <class T>
std::optional<T> EventIn(std::string_view record) {
  RecordReader reader(record);
  auto read = reader.Next();
  if (!read || !*read) return {};
  Event* event = std::get_if<Event>(&**read);
  T* wanted = event == nullptr ? nullptr : std::get_if<T>(event);
  return wanted == nullptr ? std::nullopt : std::optional<T>(std::move(*wanted));
}

}  // namespace braid

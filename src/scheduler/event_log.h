// A run on disk: the scheduler's figures, every event it got, and a hash of every plan it made. The
// same events give the same plans, so the file repeats the run; see scheduler/replay.h. Writers
// belong to the engine thread.
//
// Format, little-endian: "BRAIDLOG", a version (4 bytes), then records: kind (1 byte), length
// (varint), payload, checksum of kind and payload (4 bytes). The first record is the start. A file
// that ends inside a record is whole up to that record: what a crash leaves behind can be replayed.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <variant>

#include "base/system/file.h"
#include "scheduler/scheduler.h"

namespace braid {

inline constexpr uint32_t kEventLogVersion = 4;

struct LogStart {
  SchedulerConfig config;
  std::string model;  // whatever identifies it to who replays; may be empty
};

// One call of NextPlan; an empty plan counts as well, for making it may have changed something.
struct PlanMark {
  StepId step;  // invalid: the plan was empty
  uint64_t hash = 0;
};

using LogRecord = std::variant<Event, PlanMark>;

class EventLogWriter {
 public:
  // Replaces the file. kInternal when it cannot be written.
  static Result<std::unique_ptr<EventLogWriter>> Create(const std::string& path,
                                                        const LogStart& start);
  ~EventLogWriter();
  EventLogWriter(const EventLogWriter&) = delete;

  void Add(const Event& event);
  void Add(const Plan& plan);
  // Hands everything added so far to the operating system. The first error (a full disk) ends the
  // log, not the run; it is returned once.
  Status Flush();

 private:
  EventLogWriter(std::FILE* file, std::string path) : file_(file), path_(std::move(path)) {}
  std::FILE* file_;  // null after an error
  const std::string path_;
  std::string pending_;
};

class EventLogReader {
 public:
  // kNotFound, or kInvalid when it is no event log, of another version, or its start is damaged.
  static Result<EventLogReader> Open(const std::string& path);

  const LogStart& start() const { return start_; }
  // The next record, none at the end. kInvalid, with the offset, when it is damaged.
  Result<std::optional<LogRecord>> Next();
  // After the end: the last record was cut off.
  bool truncated() const { return truncated_; }

 private:
  explicit EventLogReader(MappedFile file) : file_(std::move(file)) {}
  Status ReadStart();
  Error Damaged(const char* what) const;
  // The next record's kind and payload; kind 0 at the end.
  Status TakeRecord(uint8_t& kind, std::string_view& payload);

  MappedFile file_;
  LogStart start_;
  size_t at_ = 0;  // offset of the next record
  bool truncated_ = false;
};

}  // namespace braid

// A run on disk: the scheduler's figures, every event it got, and a hash of every plan it made. The
// same events give the same plans, so the file repeats the run; see scheduler/replay.h. Writers
// belong to the engine thread.
//
// Format, little-endian: "BRAIDLOG", a version (4 bytes), then records (scheduler/event_codec.h).
// The first record is the start. A file that ends inside a record is whole up to that record: what
// a crash leaves behind can be replayed.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <variant>

#include "base/system/file.h"
#include "scheduler/event_codec.h"

namespace braid {

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
  bool truncated() const { return records_.truncated(); }

 private:
  explicit EventLogReader(MappedFile file) : file_(std::move(file)) {}
  Status ReadStart();
  Error Damaged(const Error& why) const;

  MappedFile file_;
  LogStart start_;
  RecordReader records_{{}};  // of the file's bytes, which stay where they are
};

}  // namespace braid

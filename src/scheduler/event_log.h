// A run on disk: the scheduler's figures, every event it got with its time, and a hash of every
// plan it made. The same events give the same plans, so the file repeats the run
// (scheduler/replay.h); its requests are a load for a simulated cluster (cluster/trace.h).
// Format, little-endian: "BRAIDLOG", a version (4 bytes), then records (scheduler/event_codec.h).
// The first record is the start. A time mark precedes every event whose time differs from that of
// the event before. The time of a request is when it came, so times may go back; that of any other
// event is when the scheduler got it. A file that ends inside a record is whole up to that record:
// what a crash leaves behind can be replayed. Writers belong to the engine thread.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "base/system/file.h"
#include "scheduler/event_codec.h"

namespace braid {

using LogRecord = std::variant<Event, PlanMark>;

// The tenant of requests that the program makes for itself, to warm up. Tenants of clients have
// names without brackets.
inline constexpr std::string_view kOwnTenant = "[braid]";

// Whether a file that begins so is an event log, of whatever version.
bool IsEventLog(std::string_view begin);

// Who follows a run: everything that the scheduler gets, in order, and every plan that it makes.
// Called on the engine thread.
struct RunListener {
  virtual ~RunListener() = default;
  virtual void Add(const Event& event) = 0;  // before the scheduler gets it
  virtual void Add(const Plan& plan) = 0;    // of every NextPlan, before it is launched
  virtual void Idle() = 0;                   // a few times a second while nothing happens
};

class EventLogWriter {
 public:
  // Replaces the file. kInternal when it cannot be written.
  static Result<std::unique_ptr<EventLogWriter>> Create(const std::string& path,
                                                        const LogStart& start);
  ~EventLogWriter();
  EventLogWriter(const EventLogWriter&) = delete;

  void Add(const Event& event, int64_t at_us);  // of a monotonic clock
  void Add(const Plan& plan);
  // Hands everything added so far to the operating system. The first error (a full disk) ends the
  // log, not the run; it is returned once.
  Status Flush();

 private:
  EventLogWriter(std::FILE* file, std::string path) : file_(file), path_(std::move(path)) {}
  std::FILE* file_;  // null after an error
  const std::string path_;
  std::string pending_;
  int64_t at_us_ = 0;  // of the last event
};

// Where the records of a run come from.
class RecordSource {
 public:
  virtual ~RecordSource() = default;
  virtual const LogStart& start() const = 0;
  // The next record, none at the end.
  virtual Result<std::optional<LogRecord>> Next() = 0;
  // After the end: the last record was cut off.
  virtual bool truncated() const { return false; }
};

class EventLogReader final : public RecordSource {
 public:
  // kNotFound, or kInvalid when it is no event log, of another version, or its start is damaged.
  static Result<EventLogReader> Open(const std::string& path);

  const LogStart& start() const override { return start_; }
  // kInvalid, with the offset, when a record is damaged.
  Result<std::optional<LogRecord>> Next() override;
  bool truncated() const override { return records_.truncated(); }
  // The time of the last event that Next gave: microseconds of the recorded run's monotonic clock.
  int64_t at_us() const { return at_us_; }

 private:
  explicit EventLogReader(MappedFile file) : file_(std::move(file)) {}
  Status ReadStart();
  Error Damaged(const Error& why) const;

  MappedFile file_;
  LogStart start_;
  RecordReader records_{{}};  // of the file's bytes, which stay where they are
  int64_t at_us_ = 0;
};

}  // namespace braid

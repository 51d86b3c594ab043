// Only the writer thread touches the file.
#include "server/request_log.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"

namespace braid {
namespace {

constexpr size_t kLinesMax = 8192;
constexpr int64_t kWarnEveryUs = 60'000'000;
constexpr int kWritableWaitMs = 1000;

json::value MsOrNull(int64_t us) {
  return us < 0 ? json::value(nullptr) : json::value(static_cast<double>(us) / 1000);
}

json::object RecordJson(const RequestRecord& record) {
  json::object out{{"time", record.unix_seconds},
                   {"method", record.method},
                   {"path", record.path},
                   {"status", record.status},
                   {"id", record.id}};
  if (!record.client_id.empty()) out["request_id"] = record.client_id;
  if (!record.tenant.empty()) out["tenant"] = record.tenant;
  if (!record.finish.empty()) {
    out["finish"] = record.finish;
    out["prompt_tokens"] = record.prompt_tokens;
    out["cached_tokens"] = record.cached_tokens;
    out["output_tokens"] = record.output_tokens;
    out["queue_ms"] = MsOrNull(record.queue_us);
    out["first_token_ms"] = MsOrNull(record.first_token_us);
  }
  out["total_ms"] = MsOrNull(record.total_us);
  return out;
}

}  // namespace

std::string RequestLine(const RequestRecord& record, bool json) {
  const json::object fields = RecordJson(record);
  if (json) return json::serialize(fields) + "\n";
  std::string line;
  for (const auto& [key, value] : fields) {
    if (!line.empty()) line += ' ';
    line += fmt::format("{}={}", std::string_view(key),
                        value.is_string()   ? std::string(value.get_string())
                        : value.is_double() ? fmt::format("{:.3f}", value.get_double())
                                            : json::serialize(value));
  }
  return line + "\n";
}

struct RequestLog::State {
  std::string path;
  bool json = false;
  int file = -1;
  std::atomic<int64_t>* dropped = nullptr;
  int64_t warned_us = 0;
  bool stuck = false;
  std::mutex mutex;
  std::condition_variable wake;
  std::deque<std::string> lines;
  bool reopen = false, stopping = false;
  std::thread thread;

  Status Open();
  void Run();
  void Write(std::string_view line);
  void Lose(const char* why);
};

Status RequestLog::State::Open() {
  const int opened = path == "-"
                         ? ::dup(STDOUT_FILENO)
                         : ::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0640);
  if (opened < 0) {
    return Error{ErrorCode::kUnavailable,
                 fmt::format("--request-log {}: {}", path, std::strerror(errno)), "request_log"};
  }
  if (file >= 0) ::close(file);
  file = opened;
  return {};
}

void RequestLog::State::Lose(const char* why) {
  ++*dropped;
  const int64_t now_us = MonotonicUs();
  if (warned_us != 0 && now_us - warned_us < kWarnEveryUs) return;
  warned_us = now_us;
  LogWarning("lines of the request log {} are lost: {}", path, why);
}

// Writes the whole line, or what fits before an error.
void RequestLog::State::Write(std::string_view line) {
  while (!line.empty()) {
    pollfd writable{.fd = file, .events = POLLOUT, .revents = 0};
    // Once the file cannot be written, later lines do not wait, so that stopping is quick too.
    stuck = ::poll(&writable, 1, stuck ? 0 : kWritableWaitMs) == 0;
    if (stuck) return Lose("the file is not writable");
    const ssize_t written = ::write(file, line.data(), line.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return Lose(std::strerror(errno));
    line.remove_prefix(static_cast<size_t>(written));
  }
}

void RequestLog::State::Run() {
  std::unique_lock lock(mutex);
  while (true) {
    wake.wait(lock, [&] { return stopping || reopen || !lines.empty(); });
    const bool again = std::exchange(reopen, false);
    std::deque<std::string> taken = std::exchange(lines, {});
    const bool last = stopping;
    lock.unlock();
    if (again) {
      if (const Status status = Open(); !status) LogError("{}", status.error().message);
    }
    for (const std::string& line : taken) Write(line);
    lock.lock();
    if (last && lines.empty()) return;
  }
}

RequestLog::RequestLog(std::unique_ptr<State> state) : state_(std::move(state)) {
  state_->dropped = &dropped_;
  state_->thread = std::thread([state = state_.get()] { state->Run(); });
}

Result<std::unique_ptr<RequestLog>> RequestLog::Open(const std::string& path, bool json) {
  auto state = std::make_unique<State>();
  state->path = path;
  state->json = json;
  RETURN_IF_ERROR(state->Open());
  return std::unique_ptr<RequestLog>(new RequestLog(std::move(state)));
}

RequestLog::~RequestLog() {
  {
    std::lock_guard lock(state_->mutex);
    state_->stopping = true;
  }
  state_->wake.notify_one();
  state_->thread.join();
  ::close(state_->file);
}

void RequestLog::Add(const RequestRecord& record) {
  std::string line = RequestLine(record, state_->json);
  {
    std::lock_guard lock(state_->mutex);
    if (state_->lines.size() >= kLinesMax) {
      ++dropped_;
      return;
    }
    state_->lines.push_back(std::move(line));
  }
  state_->wake.notify_one();
}

void RequestLog::Reopen() {
  {
    std::lock_guard lock(state_->mutex);
    state_->reopen = true;
  }
  state_->wake.notify_one();
}

}  // namespace braid

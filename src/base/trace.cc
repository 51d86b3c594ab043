// Chrome's trace format: complete events ("X") with microseconds, a name per thread.
#include "base/trace.h"

#include <fmt/format.h>

#include <iterator>

#include "base/check.h"

namespace braid {

Trace::Trace(int threads, int64_t events_per_thread_max, bool device)
    : events_max_(events_per_thread_max),
      device_(device),
      threads_(static_cast<size_t>(threads + (device ? 1 : 0))) {
  CHECK(threads >= 1 && events_per_thread_max >= 1);
}

void Trace::Record(int thread, std::string_view name, int64_t start_ns, int64_t count) {
  Add(static_cast<size_t>(thread), {name, start_ns, MonotonicNs(), count});
}

void Trace::RecordOnDevice(std::string_view name, int64_t start_ns, int64_t end_ns) {
  CHECK(device_, "a device is traced that was not named");
  Add(threads_.size() - 1, {name, start_ns, end_ns, 0});
}

void Trace::Add(size_t list, const Event& event) {
  std::vector<Event>& events = threads_[list];
  if (static_cast<int64_t>(events.size()) < events_max_) events.push_back(event);
}

std::string Trace::ToJson() const {
  int64_t origin_ns = INT64_MAX;
  for (const auto& events : threads_) {
    for (const Event& event : events) origin_ns = std::min(origin_ns, event.start_ns);
  }
  std::string json = "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n";
  auto out = std::back_inserter(json);
  for (size_t t = 0; t < threads_.size(); ++t) {
    fmt::format_to(out,
                   "{}{{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":1,\"tid\":{},\"args\":{{"
                   "\"name\":\"{}\"}}}}",
                   t == 0 ? "" : ",\n", t,
                   t == 0                                ? std::string("engine")
                   : device_ && t + 1 == threads_.size() ? std::string("device")
                                                         : fmt::format("compute {}", t));
    for (const Event& event : threads_[t]) {
      fmt::format_to(out,
                     ",\n{{\"name\":\"{}\",\"ph\":\"X\",\"pid\":1,\"tid\":{},\"ts\":{:.3f},"
                     "\"dur\":{:.3f},\"args\":{{\"count\":{}}}}}",
                     event.name, t, static_cast<double>(event.start_ns - origin_ns) * 1e-3,
                     static_cast<double>(event.end_ns - event.start_ns) * 1e-3, event.count);
    }
  }
  json += "\n]}\n";
  return json;
}

}  // namespace braid

// Round robin over the keys in alphabetical order.
#include "text/grammar/compile_queue.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/check.h"

namespace braid {
namespace {

// More than the trial's child has (text/grammar/trial_process.cc): what passed there passes here.
constexpr size_t kStackBytes = size_t{16} << 20;

}  // namespace

CompileQueue::CompileQueue(GrammarLibrary& library, Limits limits)
    : library_(library), limits_(limits) {
  pthread_attr_t attributes;
  CHECK(::pthread_attr_init(&attributes) == 0);
  CHECK(::pthread_attr_setstacksize(&attributes, kStackBytes) == 0);
  threads_.resize(static_cast<size_t>(limits.threads));
  for (pthread_t& thread : threads_) {
    CHECK(::pthread_create(&thread, &attributes, RunThread, this) == 0);
  }
  ::pthread_attr_destroy(&attributes);
}

void CompileQueue::Stop() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    for (auto& [id, job] : jobs_) job->cancelled = true;
  }
  work_.notify_all();
  for (const pthread_t thread : threads_) ::pthread_join(thread, nullptr);
  threads_.clear();
}

void* CompileQueue::RunThread(void* queue) {
  ::pthread_setname_np(::pthread_self(), "braid-grammar");
  static_cast<CompileQueue*>(queue)->Run();
  return nullptr;
}

Result<CompileQueue::Ticket> CompileQueue::Enter(const std::string& key, std::string grammar,
                                                 std::function<void()> wake, Spend spend) {
  std::lock_guard lock(mutex_);
  if (waiting_ >= limits_.waiting) {
    return Error{ErrorCode::kUnavailable,
                 fmt::format("{} grammars are waiting to be compiled, the limit", waiting_)};
  }
  Key& own = keys_[key];
  if (own.waiting.size() >= limits_.waiting_per_key) {
    return Error{ErrorCode::kExhausted,
                 fmt::format("{} grammars of this key are waiting to be compiled, its limit",
                             own.waiting.size())};
  }
  const int64_t id = next_id_++;
  auto job = std::make_unique<Job>();
  job->key = key;
  job->grammar = std::move(grammar);
  job->wake = std::move(wake);
  job->spend = std::move(spend);
  jobs_.emplace(id, std::move(job));
  own.waiting.push_back(id);
  ++waiting_;
  work_.notify_one();
  return Ticket(*this, id);
}

int64_t CompileQueue::NextLocked() {
  auto at = keys_.upper_bound(turn_);
  for (size_t i = 0; i < keys_.size(); ++i, ++at) {
    if (at == keys_.end()) at = keys_.begin();
    Key& key = at->second;
    if (key.waiting.empty() || key.running >= limits_.running_per_key) continue;
    turn_ = at->first;
    const int64_t id = key.waiting.front();
    key.waiting.pop_front();
    --waiting_;
    ++key.running;
    return id;
  }
  return -1;
}

void CompileQueue::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    int64_t id = -1;
    work_.wait(lock, [&] { return stopping_ || (id = NextLocked()) >= 0; });
    if (stopping_) return;
    Job& job = *jobs_.at(id);
    job.running = true;
    lock.unlock();
    GrammarLibrary::Checked checked = library_.Check(job.grammar, job.cancelled);
    if (job.spend) job.spend(checked.work_us);
    lock.lock();
    job.running = false;
    job.outcome = std::move(checked);
    Key& key = keys_.at(job.key);
    if (--key.running == 0 && key.waiting.empty()) keys_.erase(job.key);
    if (job.left) {
      jobs_.erase(id);
    } else {
      job.wake();
    }
    work_.notify_one();  // the key may have another now
  }
}

void CompileQueue::Leave(int64_t id) {
  std::lock_guard lock(mutex_);
  auto found = jobs_.find(id);
  Job& job = *found->second;
  job.cancelled = true;
  job.left = true;
  if (job.running) return;  // its thread removes it
  if (!job.outcome) {
    Key& key = keys_.at(job.key);
    std::erase(key.waiting, id);
    --waiting_;
    if (key.running == 0 && key.waiting.empty()) keys_.erase(job.key);
  }
  jobs_.erase(found);
}

std::optional<GrammarLibrary::Checked> CompileQueue::OutcomeOf(int64_t id) {
  std::lock_guard lock(mutex_);
  return jobs_.at(id)->outcome;
}

}  // namespace braid

// One mutex for all mailboxes: it is held for the length of a push or a swap.
#include "server/serving/mailbox.h"

#include "base/check.h"
#include "base/clock.h"

namespace braid {
namespace {

constexpr size_t kBytesPerToken = 200;  // a streamed token with its JSON around it
constexpr size_t kBytesPerTop = 80;     // one alternative of a log-probability

size_t BytesOf(const Output& output) {
  size_t bytes = output.tokens.size() * kBytesPerToken;
  for (const TokenLogprob& entry : output.logprobs) bytes += (1 + entry.top.size()) * kBytesPerTop;
  return bytes;
}

}  // namespace

class Mailboxes::Mailbox final : public OutputSink {
 public:
  Mailbox(RequestId id, Mailboxes& owner, Wake wake)
      : id(id), owner(owner), wake(std::move(wake)) {}
  void OnAdmitted() override { owner.Admit(*this); }
  void OnOutput(Output output) override { owner.Deliver(*this, std::move(output)); }

  const RequestId id;
  Mailboxes& owner;
  Wake wake;
  std::vector<Arrival> arrivals;
  size_t pending_bytes = 0;
  int64_t admitted_us = 0;
  bool engine_done = false;
  bool reader_done = false;
};

Mailboxes::Mailboxes() = default;
Mailboxes::~Mailboxes() = default;

OutputSink* Mailboxes::Open(RequestId id, Wake wake) {
  std::lock_guard lock(mutex_);
  auto [it, added] = boxes_.emplace(id, std::make_unique<Mailbox>(id, *this, std::move(wake)));
  CHECK(added, "request {} has a mailbox already", id.value);
  return it->second.get();
}

void Mailboxes::Deliver(Mailbox& mailbox, Output output) {
  int64_t now_us = MonotonicUs();
  std::lock_guard lock(mutex_);
  bool last = output.finish.has_value();
  if (mailbox.reader_done) {
    if (last) boxes_.erase(mailbox.id);
    return;
  }
  mailbox.engine_done = last;
  mailbox.pending_bytes += BytesOf(output);
  mailbox.arrivals.push_back({std::move(output), now_us});
  mailbox.wake();
}

void Mailboxes::Admit(Mailbox& mailbox) {
  const int64_t now_us = MonotonicUs();
  std::lock_guard lock(mutex_);
  if (mailbox.admitted_us > 0 || mailbox.reader_done) return;
  mailbox.admitted_us = now_us;
  mailbox.wake();
}

int64_t Mailboxes::AdmittedUs(RequestId id) const {
  std::lock_guard lock(mutex_);
  return boxes_.at(id)->admitted_us;
}

std::vector<Arrival> Mailboxes::Collect(RequestId id) {
  std::lock_guard lock(mutex_);
  Mailbox& mailbox = *boxes_.at(id);
  mailbox.pending_bytes = 0;
  return std::exchange(mailbox.arrivals, {});
}

size_t Mailboxes::PendingBytes(RequestId id) const {
  std::lock_guard lock(mutex_);
  return boxes_.at(id)->pending_bytes;
}

void Mailboxes::Close(RequestId id, bool submitted) {
  std::lock_guard lock(mutex_);
  auto it = boxes_.find(id);
  CHECK(it != boxes_.end(), "request {} has no mailbox", id.value);
  if (it->second->engine_done || !submitted) {
    boxes_.erase(it);
  } else {
    it->second->reader_done = true;
    it->second->wake = nullptr;
    it->second->arrivals.clear();
  }
}

}  // namespace braid

// Where the engine thread leaves a request's outputs and the network thread picks them up. A
// mailbox lives until both sides are done with it: the engine with its last output, the reader by
// Close.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "scheduler/driver.h"
#include "server/http/types.h"

namespace braid {

struct Arrival {
  Output output;
  int64_t at_us = 0;  // MonotonicUs on the engine thread
};

class Mailboxes {
 public:
  Mailboxes();
  ~Mailboxes();
  // A mailbox for one request, to be given to Driver::Submit. `wake` is called after every
  // delivery.
  OutputSink* Open(RequestId id, Wake wake);
  // What has come since the last call, in order.
  std::vector<Arrival> Collect(RequestId id);
  // When the engine first took the request up (MonotonicUs), 0 while it waits.
  int64_t AdmittedUs(RequestId id) const;
  // About how many bytes Collect would hand out.
  size_t PendingBytes(RequestId id) const;
  // The reader has gone; later outputs are dropped. For a request that was never submitted too.
  void Close(RequestId id, bool submitted);

 private:
  class Mailbox;
  void Deliver(Mailbox& mailbox, Output output);
  void Admit(Mailbox& mailbox);

  mutable std::mutex mutex_;
  std::unordered_map<RequestId, std::unique_ptr<Mailbox>> boxes_;
};

}  // namespace braid

// Passes a request's outputs from the engine thread to the network thread. A mailbox lives until
// both sides are done: the engine with its last output, the reader with Close.
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
  // When the engine first admitted the request (MonotonicUs); 0 while it waits.
  int64_t AdmittedUs(RequestId id) const;
  // Approximate bytes that Collect would return.
  size_t PendingBytes(RequestId id) const;
  // The reader is done; later outputs are dropped. `submitted`: the engine has the request.
  void Close(RequestId id, bool submitted);

 private:
  class Mailbox;
  void Deliver(Mailbox& mailbox, Output output);
  void Admit(Mailbox& mailbox);

  mutable std::mutex mutex_;
  std::unordered_map<RequestId, std::unique_ptr<Mailbox>> boxes_;
};

}  // namespace braid

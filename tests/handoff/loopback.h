// Transports that connect the engines of one process, for tests: what handoff/transport.h promises,
// and what a network may do within that. Bytes reach a place some turns after it was given; parts
// come twice, the second time damaged; connections are cut. Each transport belongs to one thread.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>

#include "handoff/transport.h"

namespace braid::handoff {

struct LoopbackFaults {
  uint64_t seed = 1;
  int32_t delay_turns = 0;  // at most, from the place of a part to its bytes
  int32_t damaged = 0;      // one of so many parts; 0: none
  bool again = false;       // every part comes once more, later, with other bytes
};

class Loopback {
 public:
  explicit Loopback(LoopbackFaults faults) : faults_(faults) {}
  ~Loopback();

  using Maker = std::function<Result<std::unique_ptr<Transport>>(Transport::Owner&)>;
  Maker maker();
  // Ends every connection.
  void Cut();

  // Parts that came again: that were refused, and that were given a place.
  std::atomic<int64_t> refused = 0, taken = 0;
  // Parts that were on their way at the same time, at most.
  std::atomic<int64_t> sending_most = 0;
  // How often a part found no place.
  std::atomic<int64_t> waited = 0;
  // No bytes arrive meanwhile.
  std::atomic<bool> held = false;
  // What the ends that listen say is lost meanwhile.
  std::atomic<bool> mute = false;
  // Bytes that arrived in a place.
  std::atomic<int64_t> written = 0;

 private:
  class End;
  struct Sending {
    End* from;
    ConnectionId at;
    Transport::Data data;
  };

  const LoopbackFaults faults_;
  std::mutex mutex_;
  std::map<uint16_t, End*> listening_;
  std::map<int64_t, End*> ends_;
  std::map<uint64_t, Sending> sending_;  // until they are over
  uint64_t sends_ = 0;
  uint16_t ports_ = 1;
  int64_t made_ = 0;
};

}  // namespace braid::handoff

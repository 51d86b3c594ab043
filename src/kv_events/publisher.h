// Publishes what can be resumed here to gateways that place requests by it: a PUB socket sends each
// batch as three frames (topic, number, batch.h), and a ROUTER socket, if there is one, repeats
// those that a gateway missed. The engine thread hands changes over; a thread of the publisher's
// own encodes and sends them. Numbers count from 0 without a gap.
//
// Nobody waits for a gateway: one that is too slow misses batches and sees it by the numbers. The
// queue, the batches that are kept and the requests that are read are bounded. So is what a gateway
// that does not read takes, in batches: 20,000, each at most what a step has stored and evicted,
// about 350 bytes for a block.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "scheduler/driver.h"

namespace braid::kv {

struct PublisherOptions {
  std::string bind;     // tcp://HOST:PORT, tcp://*:PORT, ipc://PATH; empty: connect
  std::string connect;  // a gateway's address; empty: bind
  std::string replay;   // where gateways ask for what they missed; empty: nowhere
  std::string topic;
  bool used() const { return !bind.empty() || !connect.empty(); }
  // The flags agree with each other.
  Status Check() const;
};

class Publisher final : public PrefixListener {
 public:
  static Result<std::unique_ptr<Publisher>> Start(const PublisherOptions& options);
  ~Publisher() override;  // sends what is queued, for at most a second

  void OnPrefixes(DpRankId rank, PrefixChanges changes) override;

  // Where the sockets are, with the ports that the system chose.
  const std::string& events_at() const;
  const std::string& replay_at() const;

 private:
  struct State;
  explicit Publisher(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace braid::kv

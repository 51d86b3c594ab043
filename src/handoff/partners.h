// The mover to and from other engines (docs/guides/disaggregation.md): connections by UCX, the
// rooms (handoff/rooms/), and the bytes. A thread of its own does all of it; the engine thread and
// the driver's callers leave it commands.
//
// A decode engine connects to its prefill engines, and again when a connection ends. A prefill
// engine listens. A connection that is silent for kSilenceUs is closed, and with it its rooms end.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cache/page_runs.h"
#include "handoff/asked/grammar_gate.h"
#include "handoff/pages/staging.h"
#include "handoff/pairing.h"
#include "handoff/rooms/decode_rooms.h"
#include "handoff/rooms/prefill_rooms.h"
#include "handoff/transport.h"
#include "scheduler/driver.h"
#include "scheduler/mover.h"

namespace braid::handoff {

inline constexpr int64_t kPingUs = 500'000, kSilenceUs = 5'000'000;
// Copies that leave while their prompt is computed, at most.
inline constexpr int64_t kCopiesBytesMax = int64_t{256} << 20;

struct PartnerOptions {
  Side side = Side::kDecode;
  HostPort listen;                 // prefill: where decode engines come
  std::vector<HostPort> prefills;  // decode: where prefill engines are; more: SetPrefills
  std::vector<std::string> keys = {""};  // KeysIn; the empty one where no secret is asked for
  std::string fingerprint;           // of all that must be equal: lines of "name: value"
  std::optional<PageLayout> layout;  // of the ranks of this engine; none: one rank
  DecodeLimits decode;
  PrefillLimits prefill;
  int64_t flight_bytes = Transport::kFlightBytes;  // to one partner at once; a part may exceed it
  int64_t staging_bytes = kStagingBytes;  // for copies of pages that lie apart; or two blocks
  // prefill: null: no request has a grammar that must be compiled; it outlives the partners
  GrammarGate* grammars = nullptr;
  // What carries messages and pages; tests have one of their own.
  std::function<Result<std::unique_ptr<Transport>>(Transport::Owner&)> transport =
      &Transport::Create;
};

struct PartnerStats {
  int64_t partners = 0;     // paired now
  int64_t rooms = 0;        // ever
  int64_t done = 0;         // of these, complete
  int64_t failed = 0;       // of these, not
  int64_t bytes = 0;        // of pages, that came or left
  int64_t early_bytes = 0;  // of those that left, while their prompt was computed
};

class Partners final : public Mover {
 public:
  // From now on engines that meet say what differs, while weights are loaded too. A decode engine
  // pairs; a prefill engine asks those that could be its partners to come again.
  static Result<std::unique_ptr<Partners>> Create(PartnerOptions options);
  ~Partners() override;

  // Whose requests are computed for others, on a prefill engine; from then on partners are served.
  // After Attach, and it outlives Leave.
  void Serve(Driver& driver);
  // Ends all rooms and connections, and takes no more.
  void Leave();

  // A decode engine's: prefill engines besides those of the options, in place of those that were
  // named last. A connection that stands goes on. Any thread.
  void SetPrefills(const std::vector<HostPort>& found);
  // Those of the next partners, at least one; connections that stand go on. Any thread.
  void SetKeys(std::vector<std::string> keys);

  void Attach(const Arena& arena, const CacheGeometry& geometry) override;
  // Of a kDecode request, after Expect; or of a kPrefill request that a partner asked for.
  void Start(const PageMove& move, EventSink& events) override;
  // After the loss of the arena: rooms that have pages end. Waits for copies of pages that are
  // being made, and for nothing that another engine does.
  void Drain() override;
  // With a layout: of each rank; the first one's is this. A move begins when all have started it:
  // whatever a rank did to its pages before is done.
  Mover& MoverOf(int32_t rank);

  // What HandoffExecutor sees; engine thread. The request whose pages a move brings.
  void Expect(MoveId move, const Request& request);
  void Abort(RequestId request);
  // The first token of the pages that a partner misses; -1: no partner asked for the request.
  int32_t WantedFrom(RequestId request);
  // A whole block of a prompt that is still computed: a copy of it leaves, if there is room. Not
  // of pages that lie apart: other ranks may still be at work on theirs, and the engine thread does
  // not wait for a device's copy.
  void Early(RequestId request, PartKey part, BlockId block);

  // A decode engine's: pages come, and none leave.
  bool receives() const;
  uint16_t port() const;
  PartnerStats stats() const;

 private:
  struct State;
  explicit Partners(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace braid::handoff

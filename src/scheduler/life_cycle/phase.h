// Where a request is in its life. A legal transition is an overload of Next; every other pair stops
// the program with both names. Engine thread.
#pragma once

#include <variant>

#include "base/check.h"
#include "scheduler/request.h"

namespace braid {

// Waits for its first admission.
struct Queued {
  static constexpr const char* kName = "Queued";
};
// Holds a slot and blocks; some of its prompt (or of what it replays) is not planned yet.
struct Prefilling {
  static constexpr const char* kName = "Prefilling";
};
// Holds a slot and blocks; one token per step.
struct Decoding {
  static constexpr const char* kName = "Decoding";
};
// Holds a slot and blocks, into which pages are coming: the first of its prompt's from a tier, then
// the others from another engine, or either.
struct Receiving {
  static constexpr const char* kName = "Receiving";
};
// Holds a slot and blocks; its prompt is planned to the end, and its pages go, or wait to go, to
// the engine that decodes.
struct Sending {
  static constexpr const char* kName = "Sending";
};
// Has lost its blocks, or does so when its rows in flight land; then it waits to be admitted again.
struct Preempted {
  static constexpr const char* kName = "Preempted";
};
// Has ended; keeps slot and blocks until its rows in flight land.
struct Finished {
  static constexpr const char* kName = "Finished";
  FinishReason reason;
};

using Phase = std::variant<Queued, Prefilling, Decoding, Receiving, Sending, Preempted, Finished>;

// What moves a request on.
struct Admitted {
  static constexpr const char* kName = "Admitted";
};
struct PrefillPlanned {  // the last chunk
  static constexpr const char* kName = "PrefillPlanned";
};
struct PagesAwaited {  // admitted, and pages come before any row
  static constexpr const char* kName = "PagesAwaited";
};
struct PagesArrived {
  static constexpr const char* kName = "PagesArrived";
};
struct PrefixArrived {  // pages from a tier: the rest is computed
  static constexpr const char* kName = "PrefixArrived";
};
struct HandoffPlanned {  // the last chunk of a prompt that others go on with
  static constexpr const char* kName = "HandoffPlanned";
};
struct BlocksLost {
  static constexpr const char* kName = "BlocksLost";
};
struct Ended {
  static constexpr const char* kName = "Ended";
  FinishReason reason;
};

inline Phase Next(const Queued&, const Admitted&) { return Prefilling{}; }
inline Phase Next(const Preempted&, const Admitted&) { return Prefilling{}; }
inline Phase Next(const Prefilling&, const PrefillPlanned&) { return Decoding{}; }
inline Phase Next(const Prefilling&, const HandoffPlanned&) { return Sending{}; }
inline Phase Next(const Queued&, const PagesAwaited&) { return Receiving{}; }
inline Phase Next(const Preempted&, const PagesAwaited&) { return Receiving{}; }
inline Phase Next(const Receiving&, const PrefixArrived&) { return Prefilling{}; }
inline Phase Next(const Receiving&, const PagesArrived&) { return Decoding{}; }
inline Phase Next(const Receiving&, const BlocksLost&) { return Preempted{}; }
inline Phase Next(const Prefilling&, const BlocksLost&) { return Preempted{}; }
inline Phase Next(const Decoding&, const BlocksLost&) { return Preempted{}; }
inline Phase Next(const Queued&, const Ended& e) { return Finished{e.reason}; }
inline Phase Next(const Prefilling&, const Ended& e) { return Finished{e.reason}; }
inline Phase Next(const Decoding&, const Ended& e) { return Finished{e.reason}; }
inline Phase Next(const Receiving&, const Ended& e) { return Finished{e.reason}; }
inline Phase Next(const Sending&, const Ended& e) { return Finished{e.reason}; }
inline Phase Next(const Preempted&, const Ended& e) { return Finished{e.reason}; }

template <class From, class Cause>
[[noreturn]] Phase Next(const From&, const Cause&) {
  CheckFailed(__FILE__, __LINE__, "legal transition",
              fmt::format("{} in phase {}", Cause::kName, From::kName));
}

template <class Cause>
void Move(Phase& phase, const Cause& cause) {
  phase = std::visit([&](const auto& from) -> Phase { return Next(from, cause); }, phase);
}

}  // namespace braid

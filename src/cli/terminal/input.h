// Standard input, read so that a signal of a queue takes effect at once. One thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cli/terminal/signals.h"

namespace braid {

enum class Arrived : uint8_t { kBytes, kEnd, kSignal };

// Waits for what comes first; bytes are appended to `to`, a signal is taken from the queue.
Arrived ReadInput(SignalQueue& signals, std::string& to);

// All of standard input; nothing where a signal comes before its end.
std::optional<std::string> ReadAllInput(SignalQueue& signals);

}  // namespace braid

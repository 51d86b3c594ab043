// Messages between the server and the trial process. A trial is one packet on the control
// socket, with two descriptors: a socket for the answers and a file in memory with the source. The
// answers are packets too: a report of the child, if it made one, then how the child ended.
#pragma once

#include <cstdint>

#include "text/grammar/grammar.h"

namespace braid {

struct TrialOrder {
  GrammarKind kind = GrammarKind::kJsonSchema;
  int32_t cpu_ms = 0;
  int64_t memory_bytes = 0;
  uint64_t source_bytes = 0;
};

inline constexpr size_t kTrialMessageBytesMax = 1024;

struct TrialReport {
  static constexpr char kTag = 'R';
  char tag = kTag;
  bool compiled = false;
  ErrorCode code = ErrorCode::kInvalid;  // if it was not compiled
  uint16_t message_bytes = 0;
  int64_t held_bytes = 0;
  char message[kTrialMessageBytesMax] = {};  // why it was not compiled
};

struct TrialEnd {
  static constexpr char kTag = 'E';
  char tag = kTag;
  int32_t wait_status = 0;
  int64_t cpu_us = 0;
};

}  // namespace braid

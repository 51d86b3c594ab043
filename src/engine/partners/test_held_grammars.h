// A library of grammars whose trials wait until the test lets them end. Tests only; the trials run
// on threads of the queue, all else on the test's.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "text/grammar/grammar_library.h"
#include "text/tokens/tokenizer.h"

namespace braid {

class HeldTrial final : public GrammarTrial {
 public:
  // Refuses "x+", as one that takes too much.
  GrammarVerdict Try(GrammarKind, std::string_view source,
                     const std::atomic<bool>& cancelled) override {
    ++tried;
    while (!open && !cancelled) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (cancelled) ++gave_up;
    Status status;
    if (cancelled) status = Error{ErrorCode::kUnavailable, "cancelled"};
    if (source == "x+") status = Error{ErrorCode::kExhausted, "it takes too much"};
    return {.status = status, .held_bytes = int64_t{1} << 20};
  }
  std::atomic<int> tried = 0, gave_up = 0;
  std::atomic<bool> open = false;
};

// The library has room for a grammar with one stream, and for another.
class HeldGrammarsTest : public testing::Test {
 protected:
  HeldGrammarsTest()
      : tokenizer_(*Tokenizer::Load(BRAID_SOURCE_DIR "/models/braid-tiny")),
        library_(*GrammarLibrary::Create(tokenizer_, 4066,
                                         {.bytes_max = int64_t{3} << 20, .trial = &trial_})) {}

  static std::string Regex(const std::string& source) {
    return GrammarText(GrammarKind::kRegex, source);
  }

  HeldTrial trial_;
  Tokenizer tokenizer_;
  std::unique_ptr<GrammarLibrary> library_;
};

}  // namespace braid

// Messages of an engine's KV events: a byte, whether one came by itself, its number and a length,
// then the batch. Whatever comes, what is known of the engine stays within its bounds, and a clear
// forgets all of it.
#include <algorithm>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "kv_events/stream.h"
#include "router/placement/held_blocks.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace braid;
  std::string_view input(reinterpret_cast<const char*>(data), size);
  KnownPrefixes known(64);
  HeldBlocks held;
  const auto apply = [&](const kv::EventBatch& batch) {
    held.Apply(batch, known);
    CHECK(known.size() <= known.capacity());
  };
  (void)kv::DecodeBatch(input).ok();
  kv::EventStream stream(true, apply);
  int64_t now_us = 1;
  while (input.size() > 3) {
    const auto kind = static_cast<uint8_t>(input[0]);
    const auto number = static_cast<uint8_t>(input[1]);
    const size_t length = static_cast<uint8_t>(input[2]);
    const std::string_view payload = input.substr(3, length);
    input.remove_prefix(std::min(input.size(), length + 3));
    (void)stream.Question(now_us += kind * 50'000);
    if ((kind & 1) != 0) {
      stream.OnLive(number, payload);
    } else {
      stream.OnAnswer(number, payload);
    }
  }
  apply({.dp_rank = -1, .events = {kv::BlocksCleared{}}});
  CHECK(held.size() == 0);
  return 0;
}

// A message of another engine. What is accepted is written again as it was, and what it says does
// nothing worse than to be ignored: two rooms stay sound whatever comes, and a token can be chosen
// for every request that passes the checks.
#include <cmath>
#include <string>
#include <vector>

#include "base/check.h"
#include "handoff/asked/asked_request.h"
#include "handoff/rooms/decode_rooms.h"
#include "handoff/rooms/prefill_rooms.h"
#include "ops/testing/test_context.h"
#include "runtime/sampler.h"
#include "scheduler/testing/built_record.h"

namespace braid::handoff {
namespace {

constexpr SessionId kSession{1};

constexpr int32_t kVocabulary = 100;

// The first token after the prompt, by the sampler that has no checks of its own.
void Choose(const Request& request) {
  static ops::TestContext test(Isa::kBase);
  static Sampler sampler(kVocabulary, 0, 1);
  Slot slot{.sampling = request.sampling,
            .stop = request.stop,
            .logprobs = request.logprobs,
            .prompt_count = static_cast<int32_t>(request.prompt.size()),
            .grammar = {},
            .thinking = request.thinking,
            .tokens = request.prompt,
            .blocks = {}};
  std::vector<float> logits(kVocabulary);
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = 9 * std::sin(static_cast<float>(i));
  Choice choice;
  sampler.Choose(
      test.context,
      {.slot = slot, .position = slot.length(), .forced = slot.ForcedToken(slot.length())}, logits,
      choice);
  CHECK(choice.error.empty() == (choice.token >= 0), "a token or an error");
  CHECK(choice.token < kVocabulary);
}

void Compute(Ask ask) {
  static const SchedulerConfig config{
      .cache = {.groups = {{"full", GroupKind::kFull, 64, 1}}, .page_bytes = 64, .pages = 9},
      .context_tokens_max = 256,
      .vocabulary = kVocabulary,
      .handoff = true};
  if (const auto request = RequestOf(ask, config)) Choose(*request);
  ask.request = RecordOf(kSubmitRecord, ask.request);
  if (const auto request = RequestOf(ask, config)) Choose(*request);
}

// The messages of the input, each behind its length.
void Talk(std::string_view input) {
  DecodeRooms decode{DecodeLimits{}};
  PrefillRooms prefill{PrefillLimits{}};
  DecodeRooms::Effects told;
  PrefillRooms::Effects asked;
  prefill.Joined(kSession);
  for (int32_t i = 0; i < 2; ++i) {
    decode.Open(kSession, {.parts = {{GroupId(0), 0}, {GroupId(1), i}}}, 1, told);
  }
  while (input.size() > 1) {
    const size_t size = static_cast<unsigned char>(input[0]);
    const std::optional<Message> message = Decode(input.substr(1, size));
    input.remove_prefix(std::min(input.size(), size + 1));
    if (!message) continue;
    const SessionId from = message->session;
    if (const auto* m = std::get_if<PartHead>(&message->body)) {
      if (decode.BeginWrite(from, *m, 1)) decode.EndWrite(m->room, m->part, {}, told);
    }
    if (const auto* m = std::get_if<Last>(&message->body)) decode.On(from, *m, 1, told);
    if (const auto* m = std::get_if<Refusal>(&message->body)) decode.On(from, *m, told);
    if (const auto* m = std::get_if<Unfit>(&message->body)) decode.On(from, *m, told);
    if (const auto* m = std::get_if<Ask>(&message->body)) prefill.On(from, *m, 1, asked);
    if (const auto* m = std::get_if<Cancel>(&message->body)) prefill.On(from, *m, asked);
    if (const auto* m = std::get_if<Took>(&message->body)) prefill.On(from, *m, asked);
  }
  CHECK(told.over.size() + decode.rooms().size() == 2, "a room has other than one outcome");
  CHECK(prefill.rooms().size() == asked.submit.size(), "the engine has its requests still");
  CHECK(prefill.remembered() <= static_cast<size_t>(kOpenSpanMax));
}

}  // namespace
}  // namespace braid::handoff

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace braid::handoff;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  if (const auto message = Decode(input)) {
    CHECK(Encode(*message) == input);
    if (const auto* ask = std::get_if<Ask>(&message->body)) Compute(*ask);
  }
  Talk(input);
  return 0;
}

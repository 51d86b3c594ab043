// One sentence per reason.
#include "server/dialects/reuse_json.h"

#include <fmt/core.h>

namespace braid {

std::string ExplainReuse(const PromptReuse& prompt) {
  const auto& [tokens, stored, host, known, stop] = prompt.reuse;
  const int32_t all = prompt.prompt_tokens;
  switch (stop) {
    case ReuseStop::kOff:
      return "the prefix cache was not used: it is off, or the answer needs the log-probabilities "
             "of the prompt, which only computing its tokens gives";
    case ReuseStop::kComplete:
      if (tokens == 0) {
        return fmt::format(
            "the prompt of {} tokens has no whole block of {} tokens before its last token, so "
            "nothing can be reused",
            all, kBlockTokens);
      }
      return fmt::format(
          "every whole block of {} tokens was reused; the last {} of {} tokens were recomputed, "
          "because the last token of a prompt is always recomputed",
          kBlockTokens, all - tokens, all);
    case ReuseStop::kNeverSeen:
      return fmt::format(
          "tokens {} to {} continue no stored prefix: they are new, or they differ from what was "
          "computed before under the same cache_salt",
          tokens, std::min(tokens + kBlockTokens, all) - 1);
    case ReuseStop::kEvicted:
      return fmt::format(
          "the data stored after token {} was evicted to make room for other requests; a larger "
          "--memory keeps more",
          tokens);
    case ReuseStop::kNoSnapshot:
      return fmt::format(
          "keys and values are stored up to token {}, but the recurrent state only up to token {}; "
          "this request stored a state at token {}, so the next one with the same beginning "
          "resumes there",
          known, tokens, known);
  }
  return "";
}

json::object ReuseJson(const PromptReuse& prompt) {
  return {{"prompt_tokens", prompt.prompt_tokens},
          {"reused_tokens", prompt.reuse.tokens},
          {"reused_from_disk_tokens", prompt.reuse.stored - prompt.reuse.host},
          {"reused_from_host_tokens", prompt.reuse.host},
          {"known_tokens", prompt.reuse.known},
          {"stop", NameOf(prompt.reuse.stop)},
          {"explanation", ExplainReuse(prompt)},
          {"preemptions", prompt.preemptions}};
}

}  // namespace braid

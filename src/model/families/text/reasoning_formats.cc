// How each family's models mark their thinking. Sources: their published chat templates. Aliases
// are the names that other servers give to parsers of the same tags.
#include "text/answer/reasoning.h"

namespace braid {
namespace {

constexpr ReasoningFormat kReasoningFormats[] = {
    {.name = "kimi", .evidence = "◁think▷", .tags = {.open = "◁think▷", .close = "◁/think▷"}},
    {.name = "think",
     .aliases = "qwen3 qwen3-thinking glm45 ling3 kimi_k2 deepseek-v3 deepseek_v3"},
    {.name = "deepseek_r1", .aliases = "deepseek-r1", .opens_always = true},
    {.name = "none", .tags = {.open = "", .close = ""}},
};

}  // namespace

std::span<const ReasoningFormat> ReasoningFormats() { return kReasoningFormats; }

}  // namespace braid

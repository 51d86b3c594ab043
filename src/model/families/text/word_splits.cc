// The rules by the names that llama.cpp writes into GGUF files; their content is that of the
// tokenizer.json of the models that the names stand for.
#include "text/tokens/word_split.h"

namespace braid {
namespace {

// Contractions, words, single digits, other signs, blanks.
constexpr std::string_view kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen35 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N})"
    R"(| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kBailing =
    R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n])"
    R"(|\s+(?!\S)|\s+)";
constexpr std::string_view kDeepseek =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+)"
    R"(| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kKimi =
    R"([\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*)"
    R"([\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+)"
    R"([\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr WordSplit kSplits[] = {
    {.name = "qwen2", .compose = true, .patterns = {kQwen2}},
    {.name = "qwen35", .compose = true, .patterns = {kQwen35}},
    {.name = "deepseek-v3", .patterns = {R"(\p{N}{1,3})", "[一-龥぀-ゟ゠-ヿ]+", kDeepseek}},
    {.name = "kimi-k2", .whole_words = true, .sorts_tools = true, .patterns = {kKimi}},
    {.name = "bailingmoe", .patterns = {kBailing}},
    {.name = "bailingmoe2", .patterns = {kBailing}},
};

}  // namespace

std::span<const WordSplit> WordSplits() { return kSplits; }

}  // namespace braid

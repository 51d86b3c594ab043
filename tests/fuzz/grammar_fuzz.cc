// Z-10, Z-11: a JSON schema, a regular expression or a Lark grammar, checked and compiled as the
// server does it, then followed at random. What it lets through under a schema is JSON; a matcher
// whose copy went ahead gives the mask that it gave before. The first byte chooses the kind, the
// second the tokens.
#include <fmt/core.h>

#include "base/check.h"
#include "base/json.h"
#include "base/rng.h"
#include "text/grammar/grammar.h"
#include "text/grammar/schema_limits.h"
#include "text/tokens/tokenizer.h"

namespace braid {
namespace {

constexpr int kTokensMax = 48;

struct Language {
  Language()
      : tokenizer(Must(Tokenizer::Load(BRAID_SOURCE_DIR "/models/braid-tiny"))),
        end(*tokenizer.TokenToId("<|im_end|>")),
        grammars(Must(Grammars::Create(tokenizer, end))),
        words(static_cast<size_t>((tokenizer.vocabulary_size() + 31) / 32)) {}

  template <class T>
  static T Must(Result<T> result) {
    CHECK(result, "{}", result.error().message);
    return std::move(*result);
  }

  const Tokenizer tokenizer;
  const TokenId end;
  const Grammars grammars;
  const size_t words;
};

using Mask = std::vector<uint32_t>;

std::vector<TokenId> Allowed(const Mask& mask) {
  std::vector<TokenId> ids;
  for (size_t i = 0; i < mask.size() * 32; ++i) {
    if (mask[i / 32] >> (i % 32) & 1) ids.push_back(static_cast<TokenId>(i));
  }
  return ids;
}

TokenId Pick(const std::vector<TokenId>& ids, Rng* rng) {
  return ids[static_cast<size_t>(rng->Below(static_cast<int64_t>(ids.size())))];
}

// Up to three tokens ahead on a copy.
void GoAhead(const Language& language, const GrammarMatcher& from, Rng* rng) {
  Result<GrammarMatcher> copy = from.Copy();
  if (!copy) return;
  for (int i = 0; i < 3; ++i) {
    Mask mask(language.words);
    if (!copy->Mask(mask)) return;
    const std::vector<TokenId> ids = Allowed(mask);
    if (ids.empty() || !copy->Accept(Pick(ids, rng))) return;
  }
}

// Follows the matcher; the text if it came to its end.
std::optional<std::string> Follow(const Language& language, GrammarMatcher* matcher, Rng* rng) {
  std::vector<TokenId> ids;
  for (int i = 0; i < kTokensMax; ++i) {
    Mask mask(language.words), again(language.words);
    if (!matcher->Mask(mask)) return {};
    GoAhead(language, *matcher, rng);
    CHECK(matcher->Mask(again) && mask == again, "a copy that went ahead changed the mask");
    const std::vector<TokenId> allowed = Allowed(mask);
    if (allowed.empty()) return {};
    const TokenId id = Pick(allowed, rng);
    if (id == language.end) return language.tokenizer.Decode(ids, false);
    const Status accepted = matcher->Accept(id);
    CHECK(accepted, "an allowed token was refused: {}", accepted.error().message);
    ids.push_back(id);
  }
  return {};
}

Status CheckLimits(GrammarKind kind, std::string_view source) {
  if (kind == GrammarKind::kRegex) return CheckRegex(source);
  if (kind == GrammarKind::kLark) return {};
  ASSIGN_OR_RETURN(const json::value schema, ParseJson(source, "schema"));
  return CheckSchema(schema);
}

}  // namespace
}  // namespace braid

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace braid;
  static const Language& language = *new Language;
  if (size < 2) return 0;
  const auto kind = static_cast<GrammarKind>(data[0] % 3);
  const std::string_view source(reinterpret_cast<const char*>(data) + 2, size - 2);
  Result<GrammarMatcher> matcher = [&]() -> Result<GrammarMatcher> {
    RETURN_IF_ERROR(CheckLimits(kind, source));
    return language.grammars.Compile(kind, source);
  }();
  if (!matcher) {
    CHECK(!matcher.error().message.empty());
    return 0;
  }
  Rng rng(data[1]);
  const std::optional<std::string> text = Follow(language, &*matcher, &rng);
  if (text && kind == GrammarKind::kJsonSchema) {
    boost::system::error_code error;
    (void)json::parse(*text, error);
    CHECK(!error, "not JSON: {}", *text);
  }
  return 0;
}

// Z-2: a body for any endpoint. One that is taken keeps every bound of the field table and of
// limits.h; one that is refused says why, in valid UTF-8. The first byte chooses the endpoint.
#include <fmt/core.h>

#include <cmath>
#include <limits>

#include "base/check.h"
#include "server/api/api_request.h"
#include "server/api/fields.h"
#include "server/api/limits.h"
#include "text/tokens/utf8.h"

namespace braid {
namespace {

constexpr Endpoint kEndpoints[] = {kChat,          kCompletions,       kTokenize, kDetokenize,
                                   kApplyTemplate, kResponses,         kMessages, kCountTokens,
                                   kParseCalls,    kSeparateReasoning, kAbort,    kPause};
constexpr RequestLimits kLimits{.vocabulary = 1000, .answers_max = 128};

template <class... Lambdas>
struct Overloaded : Lambdas... {
  using Lambdas::operator()...;
};

void CheckTokens(const std::vector<TokenId>& ids) {
  for (const TokenId id : ids) CHECK(id >= 0 && id < kLimits.vocabulary);
}

void CheckFields(const ApiRequest& request, Endpoint endpoint) {
  for (const Field& field : Fields()) {
    if ((field.endpoints & endpoint) == 0) continue;
    std::visit(Overloaded{
                   [&](const NumberRule& rule) {
                     const std::optional<double> value = request.*rule.member;
                     if (!value) return;
                     CHECK(std::isfinite(*value) && *value >= rule.min && *value <= rule.max, "{}",
                           field.name);
                     CHECK(!rule.above_min || *value > rule.min, "{}", field.name);
                   },
                   [&](const IntegerRule& rule) {
                     const std::optional<int64_t> value = request.*rule.member;
                     if (!value) return;
                     CHECK(*value >= rule.min && *value <= MaxOf(rule, kLimits), "{}", field.name);
                   },
                   [](const auto&) {},
               },
               field.rule);
  }
}

void CheckLists(const ApiRequest& request) {
  CHECK(request.messages.size() <= limits::kMessagesMax);
  CHECK(request.tools.size() <= limits::kToolsMax);
  CHECK(request.stop.size() <= limits::kStopStringsMax);
  for (const std::string& stop : request.stop) {
    CHECK(!stop.empty() && stop.size() <= limits::kStopStringBytesMax);
  }
  CHECK(request.stop_token_ids.size() <= limits::kStopTokensMax);
  CheckTokens(request.stop_token_ids);
  CheckTokens(request.tokens);
  CHECK(request.logit_bias.size() <= limits::kLogitBiasMax);
  for (const auto& [id, bias] : request.logit_bias) {
    CHECK(id >= 0 && id < kLimits.vocabulary);
    CHECK(std::abs(bias) <= static_cast<float>(limits::kLogitBiasAbsMax));
  }
  const int64_t choices = request.n.value_or(1);
  CHECK(static_cast<int64_t>(request.prompts.size()) * choices <= limits::kAnswersMax);
  for (const Prompt& prompt : request.prompts) {
    if (const auto* ids = std::get_if<std::vector<TokenId>>(&prompt)) CheckTokens(*ids);
  }
  CHECK(request.template_values.size() <= limits::kTemplateKeysMax + 8);
  CHECK(request.cache_salt.size() <= limits::kCacheSaltBytesMax);
}

}  // namespace
}  // namespace braid

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace braid;
  if (size == 0) return 0;
  const Endpoint endpoint = kEndpoints[data[0] % std::size(kEndpoints)];
  const std::string_view body(reinterpret_cast<const char*>(data) + 1, size - 1);
  const auto parsed = ParseApiRequest(endpoint, body, kLimits);
  if (!parsed) {
    const ApiError* error = &parsed.error();
    CHECK(error->status >= 400 && error->status < 500, "{} {}", error->status, error->message);
    CHECK(!error->message.empty() && IsValidUtf8(error->message) && IsValidUtf8(error->param));
    return 0;
  }
  const ApiRequest& request = *parsed;
  CHECK(request.endpoint == endpoint);
  CheckFields(request, endpoint);
  CheckLists(request);
  return 0;
}

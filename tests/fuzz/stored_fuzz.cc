// Requests of the Responses API that continue and refer to what is stored: bodies of two keys, one
// after the other. Whatever is taken is stored and can be continued with the same
// messages; nothing of one key is found for the other; bounds hold, and nothing is left at the end.
//
// The input is cut at zero bytes; of each piece the first byte says for whom and what, the rest is
// a body. Response number n of the input is resp_n.
#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/check.h"
#include "server/api/api_request.h"
#include "server/dialects/responses_input.h"
#include "text/tokens/utf8.h"

namespace braid {
namespace {

constexpr ResponseStore::Limits kLimits{
    .bytes = 96 << 10, .key_bytes = 32 << 10, .responses = 12, .key_responses = 4};
constexpr size_t kPiecesMax = 32;

Result<ApiRequest, ApiError> Parse(const ResponseStore& store, const std::string& key,
                                   std::string_view body) {
  RequestLimits limits{.vocabulary = 1000};
  limits.responses = {.store = &store, .key = key, .bytes_max = 24 << 10};
  auto parsed = ParseApiRequest(kResponses, body, limits);
  if (!parsed) {
    const ApiError* error = &parsed.error();
    CHECK(error->status >= 400 && error->status < 500, "{} {}", error->status, error->message);
    CHECK(!error->message.empty() && IsValidUtf8(error->message) && IsValidUtf8(error->param));
  }
  return parsed;
}

// Stores a request that was taken as the server does, with an answer.
bool Keep(const ApiRequest& request, const std::string& key, const std::string& id,
          ResponseStore* store) {
  const std::vector<StoredItem> items = NameItems(ItemsToStore(request), id);
  for (const StoredItem& item : items) {
    const Result<json::value> value = ParseJson(item.text, "item");
    CHECK(value && value->is_object(), "{}", item.text);
    CHECK(value->at("id") == json::value(item.id), "{}", item.text);
  }
  if (!store->Begin(key, id, R"({"status":"in_progress"})", items)) return false;
  const std::string out = fmt::format("msg_{}00", IdSuffix(id));
  const std::string answer =
      fmt::format(R"({{"id":"{}","type":"message","role":"assistant","content":"It is."}})", out);
  return store->Finish(key, id, R"({"status":"completed"})", {{out, answer}});
}

// The next turn has all messages of the one before, its answer and its question.
void CheckContinued(const ResponseStore& store, const ApiRequest& request, const std::string& key,
                    const std::string& id) {
  const std::string body = fmt::format(R"({{"input":"And?","previous_response_id":"{}"}})", id);
  const auto next = Parse(store, key, body);
  CHECK(!Parse(store, key + "x", body), "another key's");
  const ApiRequest* continued = next ? &*next : nullptr;
  if (continued == nullptr) {
    // A conversation that was taken may be at a limit: of its messages or of its bytes.
    const std::string& message = next.error().message;
    CHECK(message.find("at most") != std::string::npos ||
              message.find("messages") != std::string::npos,
          "{}", message);
    return;
  }
  // Instructions are not taken over, and are joined with system messages that follow them.
  if (!request.system.empty()) return;
  CHECK(continued->messages.size() >= 2);
  // An answer after an assistant's item is joined to it; all before is the same.
  for (size_t i = 0; i + 1 < request.messages.size(); ++i) {
    CHECK(continued->messages[i] == request.messages[i], "message {}", i);
  }
}

}  // namespace
}  // namespace braid

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace braid;
  ResponseStore store(kLimits);
  std::string_view left(reinterpret_cast<const char*>(data), size);
  for (size_t n = 0; n < kPiecesMax && !left.empty(); ++n) {
    const std::string_view piece = left.substr(0, left.find('\0'));
    left.remove_prefix(std::min(left.size(), piece.size() + 1));
    if (piece.empty()) continue;
    const std::string key = piece[0] % 2 == 0 ? "a" : "b";
    const std::string id = fmt::format("resp_{}", n);
    if (piece[0] >= 'p') {
      store.Erase(key, fmt::format("resp_{}", piece[0] - 'p'));
      continue;
    }
    const auto parsed = Parse(store, key, piece.substr(1));
    const ApiRequest* request = parsed ? &*parsed : nullptr;
    if (request == nullptr || !Keep(*request, key, id, &store)) continue;
    const std::optional<std::string> response = store.Response(key, id);
    CHECK(response && ParseJson(*response, "response"));
    CheckContinued(store, *request, key, id);
    const ResponseStore::Stats stats = store.stats();
    CHECK(stats.bytes <= kLimits.bytes && stats.responses <= kLimits.responses);
  }
  for (const char* key : {"a", "b"}) {
    for (size_t n = 0; n < kPiecesMax; ++n) store.Erase(key, fmt::format("resp_{}", n));
  }
  CHECK(store.stats().bytes == 0 && store.stats().items == 0 && store.stats().responses == 0);
  return 0;
}

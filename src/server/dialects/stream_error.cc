// OpenAI's streams end with [DONE], with an error too.
#include "server/dialects/stream_error.h"

#include "server/http/framing.h"

namespace braid {

std::string StreamError(Endpoint endpoint, const ApiError& error, int64_t sequence) {
  if (IsAnthropic(endpoint)) {
    return SseNamedEvent("error", json::serialize(AnthropicErrorJson(error)));
  }
  if (endpoint == kResponses) {
    return SseNamedEvent("error", json::serialize(json::object{{"type", "error"},
                                                               {"code", "server_error"},
                                                               {"message", error.message},
                                                               {"param", nullptr},
                                                               {"sequence_number", sequence}}));
  }
  return SseEvent(json::serialize(ErrorJson(error))) + std::string(kSseDone);
}

}  // namespace braid

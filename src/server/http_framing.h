// What is checked on the raw bytes of a request's head before the HTTP parser sees them: sizes, and
// every form that two parsers might read differently (request smuggling). Pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace braid {

struct HttpRefusal {
  int status = 400;
  std::string message;
};

// `head` reaches from the request line to the blank line, both included.
std::optional<HttpRefusal> CheckHead(std::string_view head);

// What is wrong with a head that is not complete and already `head` long; nullopt: read on.
std::optional<HttpRefusal> CheckUnfinishedHead(std::string_view head);

// 1 to 128 bytes of [A-Za-z0-9._:-].
bool IsRequestId(std::string_view text);

std::string_view StatusText(int status);

// An SSE event, a comment, and the end of an OpenAI-style stream.
std::string SseEvent(std::string_view data);
std::string SseNamedEvent(std::string_view name, std::string_view data);
inline constexpr std::string_view kSsePing = ": ping\n\n";
inline constexpr std::string_view kSseDone = "data: [DONE]\n\n";

// One chunk of a chunked body; `bytes` is not empty.
std::string HttpChunk(std::string_view bytes);
inline constexpr std::string_view kHttpLastChunk = "0\r\n\r\n";

}  // namespace braid

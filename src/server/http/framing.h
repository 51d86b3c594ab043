// Checks on the raw bytes of a request's head before the HTTP parser sees them: sizes, and
// every form that two parsers might read differently (request smuggling). Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace braid {

struct HttpRefusal {
  int status = 400;
  std::string message;
};

// `head` reaches from the request line to the blank line, both included.
std::optional<HttpRefusal> CheckHead(std::string_view head);

// What is wrong with a head that is not complete and already `head` long; nullopt: read on.
std::optional<HttpRefusal> CheckUnfinishedHead(std::string_view head);

// The path of a checked head, and path and query of its target.
std::string_view PathOfHead(std::string_view head);
std::pair<std::string, std::string> SplitTarget(std::string_view target);

bool EqualsIgnoringCase(std::string_view a, std::string_view b);  // ASCII
// What of a client's text may stand in an error or a log: 64 bytes, others than ASCII as '?'.
std::string Printable(std::string_view text);

// The head that a client of HTTP/2 begins with when it does not ask first.
inline constexpr std::string_view kHttp2Preface = "PRI * HTTP/2.0\r\n\r\n";
// The stream of the first request in what follows it; 0: that has not come yet.
uint32_t Http2RequestStream(std::string_view frames);
// The answer that such a client shows: 505 with an error in JSON on that stream (none on 0), and
// the end of the connection with HTTP_1_1_REQUIRED.
std::string Http2Refusal(uint32_t stream);

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

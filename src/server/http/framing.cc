// Accepts a strict subset of HTTP/1.1 heads.
#include "server/http/framing.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/check.h"
#include "server/http/limits.h"

namespace braid {
namespace {

constexpr size_t kPrintableBytes = 64;

std::string_view Trim(std::string_view text) {
  size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

std::string_view TargetOf(std::string_view request_line) {
  const size_t begin = request_line.find(' ');
  if (begin == std::string_view::npos) return {};
  return request_line.substr(begin + 1, request_line.find(' ', begin + 1) - begin - 1);
}

HttpRefusal TargetTooLong() {
  return {414, fmt::format("the request target is longer than {} bytes", limits::kTargetBytesMax)};
}

HttpRefusal HeadTooLong() {
  return {431, fmt::format("the headers are longer than {} bytes", limits::kHeadBytesMax)};
}

// Counts of the headers whose repetition or combination is dangerous.
struct FramingHeaders {
  int content_length = 0, transfer_encoding = 0, host = 0;
  bool chunked = false;
};

std::optional<HttpRefusal> CheckField(std::string_view line, FramingHeaders* framing) {
  if (line.size() > limits::kHeaderBytesMax) {
    return HttpRefusal{431,
                       fmt::format("a header is longer than {} bytes", limits::kHeaderBytesMax)};
  }
  if (line.front() == ' ' || line.front() == '\t') {
    return HttpRefusal{400, "a header is folded over two lines"};
  }
  size_t colon = line.find(':');
  if (colon == std::string_view::npos || colon == 0) {
    return HttpRefusal{400, "a header line has no name and colon"};
  }
  std::string_view name = line.substr(0, colon), value = Trim(line.substr(colon + 1));
  if (name.back() == ' ' || name.back() == '\t') {
    return HttpRefusal{400, "a header name ends with a blank"};
  }
  if (EqualsIgnoringCase(name, "content-length")) {
    ++framing->content_length;
    if (value.empty() || value.find_first_not_of("0123456789") != std::string_view::npos) {
      return HttpRefusal{400, "Content-Length is not a number"};
    }
  } else if (EqualsIgnoringCase(name, "transfer-encoding")) {
    ++framing->transfer_encoding;
    framing->chunked = EqualsIgnoringCase(value, "chunked");
  } else if (EqualsIgnoringCase(name, "host")) {
    ++framing->host;
  } else if (EqualsIgnoringCase(name, "expect") && !EqualsIgnoringCase(value, "100-continue")) {
    return HttpRefusal{417, "Expect must be 100-continue"};
  }
  return std::nullopt;
}

std::optional<HttpRefusal> CheckFraming(const FramingHeaders& framing, bool http_1_1) {
  if (framing.content_length > 1) return HttpRefusal{400, "Content-Length appears more than once"};
  if (framing.host > 1) return HttpRefusal{400, "Host appears more than once"};
  if (http_1_1 && framing.host == 0) return HttpRefusal{400, "Host is missing"};
  if (framing.transfer_encoding == 0) return std::nullopt;
  if (framing.transfer_encoding > 1 || !framing.chunked) {
    return HttpRefusal{400, "Transfer-Encoding must be \"chunked\" alone"};
  }
  if (framing.content_length > 0) {
    return HttpRefusal{400, "Content-Length and Transfer-Encoding must not appear together"};
  }
  if (!http_1_1) return HttpRefusal{400, "Transfer-Encoding needs HTTP/1.1"};
  return std::nullopt;
}

// HTTP/2: the rest of the preface after its first blank line, and the frames.
constexpr size_t kHttp2PrefaceEnd = std::string_view("SM\r\n\r\n").size();
constexpr size_t kHttp2FrameHead = 9;
constexpr char kHttp2Headers = 1;

// A line that ends with LF alone can never become a complete head.
bool HasBareLf(std::string_view head) {
  for (size_t at = head.find('\n'); at != std::string_view::npos; at = head.find('\n', at + 1)) {
    if (at == 0 || head[at - 1] != '\r') return true;
  }
  return false;
}

}  // namespace

std::string_view PathOfHead(std::string_view head) {
  const size_t begin = head.find(' ') + 1;
  return head.substr(begin, head.find_first_of(" ?", begin) - begin);
}

std::pair<std::string, std::string> SplitTarget(std::string_view target) {
  const size_t path_bytes = std::min(target.find('?'), target.size());
  const size_t query_at = std::min(path_bytes + 1, target.size());
  return {std::string(target.substr(0, path_bytes)), std::string(target.substr(query_at))};
}

bool EqualsIgnoringCase(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) {
    auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
    return lower(x) == lower(y);
  });
}

std::string Printable(std::string_view text) {
  std::string out;
  for (char c : text.substr(0, kPrintableBytes)) out += c >= ' ' && c < 127 ? c : '?';
  return out;
}

std::optional<HttpRefusal> CheckHead(std::string_view head) {
  CHECK(head.ends_with("\r\n\r\n"));
  for (size_t i = 0; i < head.size(); ++i) {
    const auto byte = static_cast<unsigned char>(head[i]);
    const bool ends_line =
        (byte == '\r' && head[i + 1] == '\n') || (byte == '\n' && i > 0 && head[i - 1] == '\r');
    if ((byte < ' ' && byte != '\t' && !ends_line) || byte == 0x7f) {
      return HttpRefusal{400, "a stray NUL, CR, LF or other control byte in the headers"};
    }
  }
  size_t end = head.find("\r\n");
  std::string_view request_line = head.substr(0, end);
  if (std::any_of(request_line.begin(), request_line.end(),
                  [](unsigned char c) { return c < ' ' || c > '~'; })) {
    return HttpRefusal{400, "the request line must be visible ASCII; write other bytes as %XX"};
  }
  const std::string_view target = TargetOf(request_line);
  if (target.size() > limits::kTargetBytesMax) return TargetTooLong();
  if (!target.starts_with('/') && target != "*") {
    return HttpRefusal{400, "the request target must be a path that begins with /"};
  }
  if (head.size() - end > limits::kHeadBytesMax) return HeadTooLong();
  FramingHeaders framing;
  size_t count = 0;
  for (size_t begin = end + 2; (end = head.find("\r\n", begin)) != begin; begin = end + 2) {
    if (++count > limits::kHeadersMax) {
      return HttpRefusal{431, fmt::format("more than {} headers", limits::kHeadersMax)};
    }
    if (auto refusal = CheckField(head.substr(begin, end - begin), &framing)) return refusal;
  }
  return CheckFraming(framing, request_line.ends_with("HTTP/1.1"));
}

std::optional<HttpRefusal> CheckUnfinishedHead(std::string_view head) {
  if (HasBareLf(head)) return HttpRefusal{400, "a line ends with LF; HTTP/1.1 needs CR LF"};
  size_t line_end = head.find("\r\n");
  std::string_view request_line = head.substr(0, line_end);
  if (TargetOf(request_line).size() > limits::kTargetBytesMax) return TargetTooLong();
  if (line_end == std::string_view::npos) {
    // No method is this long: more bytes cannot make it a request.
    if (head.size() > limits::kTargetBytesMax + 64) return TargetTooLong();
    return std::nullopt;
  }
  if (head.size() - line_end > limits::kHeadBytesMax) return HeadTooLong();
  return std::nullopt;
}

uint32_t Http2RequestStream(std::string_view frames) {
  if (frames.size() < kHttp2PrefaceEnd) return 0;
  frames.remove_prefix(kHttp2PrefaceEnd);
  const auto byte = [&](size_t at) { return static_cast<unsigned char>(frames[at]); };
  while (frames.size() >= kHttp2FrameHead) {
    if (byte(3) == kHttp2Headers) {
      return (byte(5) & 0x7fU) << 24 | byte(6) << 16 | byte(7) << 8 | byte(8);
    }
    const size_t payload = static_cast<size_t>(byte(0)) << 16 | byte(1) << 8 | byte(2);
    frames.remove_prefix(std::min(frames.size(), kHttp2FrameHead + payload));
  }
  return 0;
}

std::string Http2Refusal(uint32_t stream) {
  constexpr char kSettings = 4, kGoAway = 7, kData = 0, kHttp11Required = 13;
  constexpr char kEndStream = 1, kEndHeaders = 4, kAck = 1;
  constexpr std::string_view kWhy = "this server speaks HTTP/1.1 only";
  // Literals without indexing: entry 8 of the static table is :status, 31 content-type.
  constexpr std::string_view kFields =
      "\x08\x03"
      "505"
      "\x0f\x10\x10"
      "application/json";
  const auto number = [](uint32_t n) {
    return std::string{static_cast<char>(n >> 24), static_cast<char>(n >> 16),
                       static_cast<char>(n >> 8), static_cast<char>(n)};
  };
  const auto frame = [&](char type, char flags, uint32_t on, std::string_view payload) {
    std::string bytes = number(static_cast<uint32_t>(payload.size())).substr(1);
    return bytes.append({type, flags}).append(number(on)).append(payload);
  };
  std::string bytes = frame(kSettings, 0, 0, "") + frame(kSettings, kAck, 0, "");
  if (stream != 0) {
    const std::string body = fmt::format(
        R"({{"error":{{"message":"{}","type":"invalid_request_error","param":null,"code":null}}}})",
        kWhy);
    bytes += frame(kHttp2Headers, kEndHeaders, stream, kFields);
    bytes += frame(kData, kEndStream, stream, body);
  }
  std::string end = number(stream);
  end.append(number(kHttp11Required)).append(kWhy);
  return bytes.append(frame(kGoAway, 0, 0, end));
}

bool IsRequestId(std::string_view text) {
  return !text.empty() && text.size() <= limits::kRequestIdBytesMax &&
         std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '.' || c == '_' || c == ':' || c == '-';
         });
}

std::string_view StatusText(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 413:
      return "Content Too Large";
    case 414:
      return "URI Too Long";
    case 415:
      return "Unsupported Media Type";
    case 417:
      return "Expectation Failed";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 499:
      return "Client Closed Request";
    case 500:
      return "Internal Server Error";
    case 502:
      return "Bad Gateway";
    case 503:
      return "Service Unavailable";
    default:
      return "Unknown";
  }
}

std::string SseNamedEvent(std::string_view name, std::string_view data) {
  return fmt::format("event: {}\n{}", name, SseEvent(data));
}

std::string SseEvent(std::string_view data) { return fmt::format("data: {}\n\n", data); }

std::string HttpChunk(std::string_view bytes) {
  CHECK(!bytes.empty(), "an empty chunk would end the body");
  return fmt::format("{:x}\r\n{}\r\n", bytes.size(), bytes);
}

}  // namespace braid

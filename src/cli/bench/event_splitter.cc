// Server-sent events, as the HTML standard reads them; only `data` matters here.
#include <fmt/core.h>

#include "cli/bench/http_client.h"

namespace braid {

void EventSplitter::Push(std::string_view bytes,
                         const std::function<void(std::string_view data)>& on_data) {
  for (const char c : bytes) {
    if (c != '\n') {
      line_ += c;
      continue;
    }
    if (!line_.empty() && line_.back() == '\r') line_.pop_back();
    if (line_.empty()) {
      if (!data_.empty()) on_data(data_);
      data_.clear();
    } else if (line_.starts_with("data:")) {
      if (!data_.empty()) data_ += '\n';
      data_ += line_.substr(line_.starts_with("data: ") ? 6 : 5);
    }
    line_.clear();
  }
}

Result<Endpoint> ParseBaseUrl(std::string_view url) {
  const auto bad = [&](std::string_view why) {
    return Error{ErrorCode::kInvalid,
                 fmt::format("\"{}\": {}; write http://HOST:PORT/v1", url, why)};
  };
  constexpr std::string_view kScheme = "http://";
  if (url.starts_with("https://")) return bad("TLS is not spoken here");
  if (!url.starts_with(kScheme)) return bad("no http:// address");
  std::string_view rest = url.substr(kScheme.size());
  Endpoint endpoint;
  const size_t slash = rest.find('/');
  if (slash != std::string_view::npos) endpoint.path = rest.substr(slash);
  while (!endpoint.path.empty() && endpoint.path.back() == '/') endpoint.path.pop_back();
  if (endpoint.path.empty()) endpoint.path = "/v1";
  const std::string_view authority = rest.substr(0, slash);
  size_t colon = authority.rfind(':');
  if (authority.starts_with("[")) {  // an IPv6 address
    const size_t close = authority.find(']');
    if (close == std::string_view::npos) return bad("a [ without ]");
    endpoint.host = authority.substr(1, close - 1);
    if (colon != std::string_view::npos && colon < close) colon = std::string_view::npos;
  } else {
    endpoint.host = authority.substr(0, colon);
  }
  endpoint.port = colon == std::string_view::npos ? "80" : authority.substr(colon + 1);
  if (endpoint.host.empty()) return bad("no host");
  if (endpoint.port.empty() || endpoint.port.find_first_not_of("0123456789") != std::string::npos) {
    return bad("no port number");
  }
  return endpoint;
}

}  // namespace braid

// The rules for Origin are those of Go's http.CrossOriginProtection: Sec-Fetch-Site is trusted
// if present, since pages cannot set it; older browsers send Origin, other programs neither.
#include "server/access/browser_guard.h"

#include <arpa/inet.h>
#include <fmt/core.h>

#include <algorithm>

#include "server/http/framing.h"

namespace braid {
namespace {

constexpr std::string_view kMethods = "GET, POST, DELETE";
// How long a browser may remember the answer to a preflight.
constexpr int kPreflightSeconds = 600;

// "[::1]:8000" is "[::1]", "localhost.:80" is "localhost".
std::string_view NameOf(std::string_view host) {
  if (host.starts_with('[')) return host.substr(0, host.find(']') + 1);
  host = host.substr(0, host.rfind(':'));
  if (host.ends_with('.')) host.remove_suffix(1);
  return host;
}

bool Contains(const std::vector<std::string>& list, std::string_view text) {
  return std::any_of(list.begin(), list.end(),
                     [&](const std::string& entry) { return EqualsIgnoringCase(entry, text); });
}

// The host of "https://a.example:8443" with its port; empty for "null".
std::string_view AuthorityOf(std::string_view origin) {
  const size_t at = origin.find("://");
  return at == std::string_view::npos ? std::string_view() : origin.substr(at + 3);
}

// Whether the request comes from the server's own page or from no page.
bool IsOwnPage(const HttpRequest& request) {
  if (!request.fetch_site.empty()) {
    return request.fetch_site == "same-origin" || request.fetch_site == "none";
  }
  return request.origin.empty() || EqualsIgnoringCase(AuthorityOf(request.origin), request.host);
}

ApiError ForeignOrigin(std::string_view origin) {
  const std::string page = origin.empty() ? "another site" : Printable(origin);
  return {403,
          fmt::format("pages of {} may not use this server; allow their origin with "
                      "--cors-origins",
                      page),
          {},
          "origin_not_allowed"};
}

// A list of header names, as a browser sends it.
bool IsHeaderList(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("-_, ").find(c) != std::string_view::npos;
  });
}

}  // namespace

bool IsLoopbackHost(std::string_view host) {
  const std::string name(NameOf(host));
  if (EqualsIgnoringCase(name, "localhost") || name == "[::1]") return true;
  in_addr address{};
  if (inet_pton(AF_INET, name.c_str(), &address) != 1) return false;
  return ntohl(address.s_addr) >> 24 == IN_LOOPBACKNET;
}

ApiStatus CheckHost(const HttpRequest& request, const AccessConfig& config) {
  if (!request.peer.loopback_listener || request.host.empty()) return {};
  const std::string_view name = NameOf(request.host);
  if (IsLoopbackHost(request.host) || Contains(config.allowed_hosts, "*") ||
      Contains(config.allowed_hosts, name) || EqualsIgnoringCase(name, config.http.host) ||
      EqualsIgnoringCase(name, config.http.admin_host)) {
    return {};
  }
  return ApiError{403,
                  fmt::format("Host is {}, must be localhost or a loopback address; allow other "
                              "names with --allowed-hosts",
                              Printable(request.host)),
                  {},
                  "host_not_allowed"};
}

ApiStatus CheckOrigin(const HttpRequest& request, Effect effect, const AccessConfig& config) {
  if (effect == Effect::kNone || IsOwnPage(request)) return {};
  if (!request.origin.empty() && Contains(config.cors_origins, request.origin)) return {};
  if (effect != Effect::kAdministers && Contains(config.cors_origins, "*")) return {};
  return ForeignOrigin(request.origin);
}

std::string CorsHeaders(const HttpRequest& request, const AccessConfig& config) {
  if (request.origin.empty()) return {};
  constexpr std::string_view kShown =
      "Access-Control-Expose-Headers: X-Request-Id, Retry-After\r\n";
  if (Contains(config.cors_origins, "*")) {
    return fmt::format("Access-Control-Allow-Origin: *\r\n{}", kShown);
  }
  if (!Contains(config.cors_origins, request.origin)) return {};
  return fmt::format("Access-Control-Allow-Origin: {}\r\nVary: Origin\r\n{}", request.origin,
                     kShown);
}

HttpResponse AnswerPreflight(const HttpRequest& request, const AccessConfig& config) {
  if (CorsHeaders(request, config).empty()) return ErrorResponse(ForeignOrigin(request.origin));
  std::string headers = fmt::format(
      "Access-Control-Allow-Methods: {}\r\nAccess-Control-Max-Age: {}\r\n"
      "Vary: Access-Control-Request-Headers\r\n",
      kMethods, kPreflightSeconds);
  if (IsHeaderList(request.asked_headers)) {
    headers += fmt::format("Access-Control-Allow-Headers: {}\r\n", request.asked_headers);
  }
  return {.body = {}, .headers = std::move(headers)};
}

}  // namespace braid

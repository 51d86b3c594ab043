// Protection against cross-site request forgery (a browser sends requests of any page to any
// address) and DNS rebinding (the host name of a page resolves to 127.0.0.1). Pure functions of a
// request's head and the configuration.
#pragma once

#include <string>
#include <string_view>

#include "server/access/access_config.h"
#include "server/api/api_error.h"

namespace braid {

// localhost, 127.0.0.0/8 or [::1], with a port or without.
bool IsLoopbackHost(std::string_view host);

// 403 unless Host names the server. Checked on loopback listeners only: the server does
// not know the names of other addresses. A request without Host (HTTP/1.0) is not from a browser.
ApiStatus CheckHost(const HttpRequest& request, const AccessConfig& config);

// What a request does, for CheckOrigin.
enum class Effect { kNone, kGenerates, kAdministers };

// 403 if a page of another origin sends a request with an effect, unless --cors-origins allows its
// origin. "*" does not allow administration.
ApiStatus CheckOrigin(const HttpRequest& request, Effect effect, const AccessConfig& config);

// CORS headers of a response; empty if the origin is not allowed.
std::string CorsHeaders(const HttpRequest& request, const AccessConfig& config);

// The response to a CORS preflight.
HttpResponse AnswerPreflight(const HttpRequest& request, const AccessConfig& config);

}  // namespace braid

// What keeps web pages from using the server in their visitors' names. A browser sends requests for
// any page to any address (cross-site request forgery), and a page's own host name can be made to
// resolve to 127.0.0.1 (DNS rebinding). Pure functions of a request's head and the configuration.
#pragma once

#include <string>
#include <string_view>

#include "server/api/api_error.h"
#include "server/server.h"

namespace braid {

// localhost, 127.0.0.0/8 or [::1], with a port or without.
bool IsLoopbackHost(std::string_view host);

// 403 unless Host names the server. Checked at listeners that are bound to a loopback address;
// others have names that the server does not know. A request without Host (HTTP/1.0) is no
// browser's.
ApiStatus CheckHost(const HttpRequest& request, const ServerConfig& config);

// What an effect of a request is, for CheckOrigin.
enum class Effect { kNone, kGenerates, kAdministers };

// 403 if a page of another origin asks for something that has an effect, unless the origin is one
// of --cors-origins. "*" there does not stand for administration.
ApiStatus CheckOrigin(const HttpRequest& request, Effect effect, const ServerConfig& config);

// Headers that let a browser show an answer to the page that asked; empty where it may not.
std::string CorsHeaders(const HttpRequest& request, const ServerConfig& config);

// The answer to a browser that asks whether a page of another origin may send a request.
HttpResponse AnswerPreflight(const HttpRequest& request, const ServerConfig& config);

}  // namespace braid

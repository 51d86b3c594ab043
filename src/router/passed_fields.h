// Which headers pass through the router. Pure functions.
#pragma once

#include <string>
#include <string_view>

namespace braid {

// Whether a header concerns one connection only (RFC 9110, 7.6.1) or frames the body, so that it is
// not passed on. `connection`: the value of the message's Connection header.
bool IsHopByHop(std::string_view name, std::string_view connection);

// A request's headers for an engine, each with its CRLF. Those that a browser sends about its page
// stay here: the router has checked them, and an engine knows another name of itself. X-Request-Id
// is left out; the router writes its own.
std::string FieldsForEngine(std::string_view fields);

// The value of the first header of this name (in small letters), empty if absent. `fields` as in
// HttpRequest.
std::string_view FieldValue(std::string_view fields, std::string_view name);

}  // namespace braid

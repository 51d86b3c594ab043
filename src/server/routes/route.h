// A route of the API is one row: its method and paths, who may call it, the body that it takes and
// the function that answers. The router, the OpenAPI document, docs/api.md and their tests read the
// rows. A group of routes is one file of this folder, with its rows and its handlers.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "server/access/gate.h"
#include "server/api/api_request.h"
#include "server/http/types.h"
#include "server/server_state.h"

namespace braid {

enum class Method : uint8_t { kGet, kPost, kDelete };
inline constexpr std::array<std::string_view, 3> kMethodNames = {"GET", "POST", "DELETE"};

struct RouteCall;
using RouteAnswer = Result<ReplyContent, ApiError>;
using RouteFunction = RouteAnswer(RouteCall& call);

// The JSON body of a route: its fields are the rows of the field table for `endpoint`.
struct RouteBody {
  Endpoint endpoint = kChat;
  std::string_view required = {};  // fields that it must have, with blanks between
  bool optional = false;           // the body may be left out
};

struct Route {
  Method method = Method::kGet;
  std::string_view path;  // may hold {id}, which stands for one or more characters
  RouteFunction& handler;
  std::string_view summary;
  std::array<std::string_view, 2> aliases = {};  // other paths that mean the same
  Access access = Access::kKey;
  std::optional<RouteBody> body = {};
  std::string_view id_prefix = {};  // of the answers that it generates
  bool before_ready = false;        // answers while the model is loading
  bool probe = false;               // answers to addresses that have too many connections
  bool generates = false;           // a GET that has an effect: it runs the model
  bool prepared = false;            // a GET that takes time: not on the network thread
};

// One request with its route and its caller, both resolved once by the router.
struct RouteCall {
  ServerState& server;
  Service* ready;  // null while the model is loading
  const Route& route;
  const HttpRequest& http;
  const Caller& caller;
  std::string id;        // what {id} stands for
  ApiRequest body = {};  // if the route takes one
  Wake wake = {};

  // For routes that are not `before_ready`.
  Service& service() const { return *ready; }
};

// The groups, each in the file of its name.
extern const std::span<const Route> kGenerateRoutes, kResponseRoutes, kTextRoutes, kStatusRoutes,
    kAdminRoutes;

}  // namespace braid

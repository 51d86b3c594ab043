// The paths of the API: one row per path, read by the router, the OpenAPI document and its test.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "server/api/api_request.h"

namespace braid {

struct PostRoute {
  std::string_view path;
  Route route;
  std::string_view summary;
  std::string_view required = {};   // fields that a body must have, with blanks between
  std::string_view id_prefix = {};  // of answers
  bool admin = false;               // needs an admin's key
};

struct GetRoute {
  std::string_view path;
  std::string_view summary;
  bool open = false;       // needs no key
  bool probe = false;      // answered from an address that has too many connections, too
  bool generates = false;  // asks the model
  std::string_view delete_summary = {};  // of DELETE; empty: it is not taken
};

std::span<const PostRoute> PostRoutes();
std::span<const GetRoute> GetRoutes();

// The row of a path; null if there is none.
const PostRoute* FindPost(std::string_view path);
const GetRoute* FindGet(std::string_view path);
// What other servers answer at this path, or at one that it begins with, and this one does not:
// "embeddings"; empty: nothing that is known.
std::string_view AbsentPart(std::string_view path);
// What of `path` stands for {id} in `pattern`, empty where there is none; nullopt: another path.
std::optional<std::string_view> MatchPath(std::string_view pattern, std::string_view path);

}  // namespace braid

// All routes together, and the search for the rows of a path.
#pragma once

#include <array>
#include <string_view>
#include <vector>

#include "server/routes/route.h"

namespace braid {

// The rows of all groups.
std::vector<const Route*> AllRoutes();

// The rows of one path, by method.
struct PathMatch {
  std::array<const Route*, kMethodNames.size()> by_method = {};
  std::string_view id;  // what {id} stands for

  // Any of the rows; null: there is no such path. Access is the same for all methods of a path.
  const Route* any() const;
  // The row of a method, "GET"; null if the path does not take it.
  const Route* Find(std::string_view method) const;
};

// The rows whose path or alias matches. Where several do, that with the most literal characters:
// "/v1/responses/{id}/cancel" goes before "/v1/responses/{id}".
PathMatch MatchPath(std::string_view path);

// What other servers answer at this path, or at one that it begins with, and this one does not:
// "embeddings"; empty: nothing that is known.
std::string_view AbsentPart(std::string_view path);

// What answers a path without rows, and a method that the rows of its path do not take.
ApiError NoSuchPath(const std::string& path);
HttpResponse WrongMethod(const HttpRequest& request, const PathMatch& match);

// What a page of another origin could cause with a request, for CheckOrigin.
Effect EffectOf(const HttpRequest& request, const PathMatch& match);
bool AnswersInAnthropicsForm(const Route* route);

}  // namespace braid

// The rows of the routes, and which of them a path finds.
#include "server/routes/table.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

namespace braid {
namespace {

// A path of the row or alias, with something for {id}.
std::string PathOf(std::string_view pattern) {
  std::string path(pattern);
  if (const size_t at = path.find("{id}"); at != std::string::npos) path.replace(at, 4, "x1");
  return path;
}

std::string Found(std::string_view path) {
  const PathMatch match = MatchPath(path);
  std::string text(match.id);
  for (const Route* row : match.by_method) {
    if (row != nullptr) text += " " + std::string(row->path);
  }
  return text;
}

TEST(RouteTable, EachRowIsFoundByItsPathAndItsAliases) {
  for (const Route* row : AllRoutes()) {
    const std::string_view method = kMethodNames[static_cast<size_t>(row->method)];
    EXPECT_EQ(MatchPath(PathOf(row->path)).Find(method), row) << row->path;
    for (const std::string_view alias : row->aliases) {
      if (alias.empty()) continue;
      EXPECT_EQ(MatchPath(PathOf(alias)).Find(method), row) << alias;
    }
  }
}

TEST(RouteTable, NoPathHasAMethodTwiceAndAllMethodsOfAPathHaveTheSameAccess) {
  std::set<std::pair<Method, std::string_view>> seen;
  std::map<std::string_view, Access> access;
  for (const Route* row : AllRoutes()) {
    for (const std::string_view path : {row->path, row->aliases[0], row->aliases[1]}) {
      if (path.empty()) continue;
      EXPECT_TRUE(path.starts_with('/')) << path;
      EXPECT_TRUE(seen.emplace(row->method, path).second) << path;
      EXPECT_EQ(access.emplace(path, row->access).first->second, row->access) << path;
    }
    EXPECT_FALSE(row->summary.empty()) << row->path;
  }
}

TEST(RouteTable, TheMostLiteralPatternIsChosen) {
  EXPECT_EQ(Found("/v1/responses"), " /v1/responses");
  EXPECT_EQ(Found("/v1/responses/r1"), "r1 /v1/responses/{id} /v1/responses/{id}");
  EXPECT_EQ(Found("/v1/responses/r1/cancel"), "r1 /v1/responses/{id}/cancel");
  EXPECT_EQ(Found("/v1/responses/r1/input_items"), "r1 /v1/responses/{id}/input_items");
  EXPECT_EQ(Found("/v1/models/org/name"), "org/name /v1/models/{id}");
}

TEST(RouteTable, AnIdHasAtLeastOneCharacter) {
  EXPECT_EQ(Found("/v1/models/"), "");
  EXPECT_EQ(Found("/v1/models"), " /v1/models");
  EXPECT_EQ(Found("/v1/responses//cancel"), "/cancel /v1/responses/{id} /v1/responses/{id}");
}

TEST(RouteTable, PathsThatOnlyBeginOrEndAlikeAreNotFound) {
  for (const char* path :
       {"", "/healthy", "/heal", "/V1/models", "health", "/health/", "/x/health"}) {
    EXPECT_EQ(MatchPath(path).any(), nullptr) << path;
  }
}

TEST(RouteTable, OnlyMethodsOfTheTableAreFound) {
  const PathMatch match = MatchPath("/health");
  EXPECT_NE(match.Find("GET"), nullptr);
  for (const char* method : {"POST", "DELETE", "get", "HEAD", "", "TRACE"}) {
    EXPECT_EQ(match.Find(method), nullptr) << method;
  }
}

TEST(RouteTable, WhatOtherServersHaveIsKnownByWholeSegments) {
  EXPECT_EQ(AbsentPart("/v1/images"), "images");
  EXPECT_EQ(AbsentPart("/v1/images/generations"), "images");
  EXPECT_EQ(AbsentPart("/v1/imagesque"), "");
  EXPECT_EQ(AbsentPart("/v1/image"), "");
  EXPECT_EQ(AbsentPart("/v1/chat/completions/c1"), "stored chat completions");
  EXPECT_EQ(AbsentPart("/"), "");
}

}  // namespace
}  // namespace braid

// The document has every path and every field, with the bounds that the parser enforces.
#include "server/routes/openapi.h"

#include <gtest/gtest.h>

#include "server/api/fields.h"
#include "server/routes/table.h"

namespace braid {
namespace {

TEST(OpenApi, HasEveryPathAndEveryField) {
  const json::object document = OpenApiDocument({.vocabulary = 100, .answers_max = 128}, "1.2.3");
  EXPECT_EQ(document.at("info").at("version"), "1.2.3");
  const json::object& paths = document.at("paths").as_object();
  for (const Route* route : AllRoutes()) {
    const std::string_view method = route->method == Method::kGet    ? "get"
                                    : route->method == Method::kPost ? "post"
                                                                     : "delete";
    const json::object& operation = paths.at(route->path).at(method).as_object();
    EXPECT_EQ(operation.at("summary"), json::value(route->summary));
    EXPECT_EQ(operation.contains("parameters"), route->path.find("{id}") != std::string_view::npos);
    for (const std::string_view alias : route->aliases) {
      if (alias.empty()) continue;
      EXPECT_EQ(paths.at(alias), paths.at(route->path)) << alias;
    }
    EXPECT_EQ(operation.contains("requestBody"), route->body.has_value()) << route->path;
    if (!route->body) continue;
    EXPECT_EQ(operation.at("requestBody").at("required"), !route->body->optional) << route->path;
    const Endpoint endpoint = route->body->endpoint;
    const json::object& schema =
        operation.at("requestBody").at("content").at("application/json").at("schema").as_object();
    size_t fields = 0;
    for (const Field& field : Fields()) {
      if ((field.endpoints & endpoint) == 0) continue;
      const json::object& properties = schema.at("properties").as_object();
      if (const size_t dot = field.name.find('.'); dot != std::string_view::npos) {
        const json::value& parent = properties.at(field.name.substr(0, dot));
        EXPECT_EQ(parent.at("additionalProperties"), false) << field.name;
        EXPECT_EQ(parent.at("properties").at(field.name.substr(dot + 1)).at("x-braid-effect"),
                  json::value(EffectOf(field.rule)))
            << field.name;
        continue;
      }
      ++fields;
      EXPECT_TRUE(properties.contains(field.name)) << route->path << " " << field.name;
    }
    for (const FieldAlias& alias : FieldAliases()) {
      const Field* field = FindField(alias.name, endpoint);
      if (field == nullptr || field->name == alias.name) continue;
      ++fields;
      EXPECT_EQ(schema.at("properties").at(alias.name), schema.at("properties").at(field->name));
    }
    EXPECT_EQ(schema.at("properties").as_object().size(), fields) << route->path;
    EXPECT_EQ(schema.at("additionalProperties"), false) << "what has no row is refused";
  }
}

TEST(OpenApi, ShowsTheBoundsOfTheParser) {
  const json::object document = OpenApiDocument({.vocabulary = 100, .answers_max = 128}, "1");
  const json::value& chat = document.at("paths")
                                .at("/v1/chat/completions")
                                .at("post")
                                .at("requestBody")
                                .at("content")
                                .at("application/json")
                                .at("schema");
  const json::value& properties = chat.at("properties");
  EXPECT_EQ(properties.at("temperature").at("maximum"), 2);
  EXPECT_EQ(properties.at("top_p").at("exclusiveMinimum"), 0);
  EXPECT_EQ(properties.at("n").at("maximum"), 128);
  EXPECT_EQ(properties.at("top_k").at("maximum"), 100);
  EXPECT_EQ(chat.at("required"), json::value({"messages"}));
}

}  // namespace
}  // namespace braid

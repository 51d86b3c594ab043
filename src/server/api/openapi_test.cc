// The document has every path and every field, with the bounds that the parser enforces.
#include "server/api/openapi.h"

#include <gtest/gtest.h>

#include "server/api/fields.h"
#include "server/route_table.h"

namespace braid {
namespace {

TEST(OpenApi, HasEveryPathAndEveryField) {
  const json::object document = OpenApiDocument({.vocabulary = 100, .answers_max = 128}, "1.2.3");
  EXPECT_EQ(document.at("info").at("version"), "1.2.3");
  const json::object& paths = document.at("paths").as_object();
  for (const GetRoute& route : GetRoutes()) {
    EXPECT_TRUE(paths.at(route.path).as_object().contains("get")) << route.path;
  }
  for (const PostRoute& route : PostRoutes()) {
    EXPECT_TRUE(paths.at(route.path).as_object().contains("post")) << route.path;
    if (!NeedsBody(route.route)) continue;
    const json::object& schema = paths.at(route.path)
                                     .at("post")
                                     .at("requestBody")
                                     .at("content")
                                     .at("application/json")
                                     .at("schema")
                                     .as_object();
    size_t fields = 0;
    for (const Field& field : Fields()) {
      if ((field.routes & route.route) == 0) continue;
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
      EXPECT_TRUE(properties.contains(field.name)) << route.path << " " << field.name;
    }
    for (const FieldAlias& alias : FieldAliases()) {
      const Field* field = FindField(alias.name, route.route);
      if (field == nullptr || field->name == alias.name) continue;
      ++fields;
      EXPECT_EQ(schema.at("properties").at(alias.name), schema.at("properties").at(field->name));
    }
    EXPECT_EQ(schema.at("properties").as_object().size(), fields) << route.path;
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

// For tests: the specs that ranks divide, and meshes to divide them by.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/system/file.h"
#include "model/families/families.h"
#include "parallel/mesh.h"

namespace braid {

struct NamedSpec {
  std::string name;
  ModelSpec spec;
};

// The published models of tests/configs and the small examples of every family.
inline std::vector<NamedSpec> SpecsToDivide() {
  std::vector<NamedSpec> specs;
  auto add = [&](const std::string& name, const std::string& text) {
    Result<ModelSpec> spec = ParseModelSpec(text, name);
    CHECK(spec, "{}", spec.error().message);
    specs.push_back({name, *std::move(spec)});
  };
  for (const auto& file : std::filesystem::directory_iterator(BRAID_SOURCE_DIR "/tests/configs")) {
    Result<std::string> text = ReadFile(file.path(), 1 << 20);
    CHECK(text, "{}", file.path().string());
    add(file.path().stem(), *text);
  }
  for (const Family& family : Families()) {
    for (const ExampleSize size : {ExampleSize::kTiny, ExampleSize::kMid}) {
      add(std::string(family.name), json::serialize(family.example(size)));
    }
  }
  return specs;
}

// Those of dp 1 and 3, tp 1 to 8, ep 1 to 24 that can divide the model.
inline std::vector<Mesh> MeshesOf(const ModelSpec& spec) {
  std::vector<Mesh> meshes;
  for (const int32_t dp : {1, 3}) {
    for (const int32_t tp : {1, 2, 3, 4, 8}) {
      for (const int32_t ep : {1, 2, 3, 8, 24}) {
        const Mesh mesh{.dp = dp, .tp = tp, .ep = ep};
        if (CheckMesh(spec, mesh)) meshes.push_back(mesh);
      }
    }
  }
  return meshes;
}

}  // namespace braid

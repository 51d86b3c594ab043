// See the header.
#include "tests/equality/rank_subjects.h"

#include <gtest/gtest.h>

#include <utility>

#include "model/families/families.h"

namespace braid {
namespace {

ModelSpec TrainedSpec() {
  return std::move(OpenModel(BRAID_SOURCE_DIR "/models/braid-tiny")->spec);
}

}  // namespace

std::vector<Subject> Divided() {
  std::vector<Subject> subjects;
  const Arithmetic* best = BestHere(Compute::kBF16);
  if (best == nullptr) best = BestHere(Compute::kF32);
  for (int i = 1; i < std::ssize(ModelNames()); ++i) {
    const auto model = static_cast<Model>(i);
    for (const Mesh& mesh : {Mesh{.tp = 4, .ep = 2}, Mesh{.tp = 2, .ep = 2}, Mesh{.tp = 4}}) {
      if (!CheckMesh(TinySpec(model), mesh)) continue;
      subjects.push_back({.model = model, .arithmetic = best, .mesh = mesh, .halves = i % 2 == 0});
      break;
    }
  }
  return subjects;
}

std::vector<Subject> Grouped() {
  std::vector<Subject> subjects;
  const Arithmetic* best = BestHere(Compute::kF32);
  for (int i = 0; i < std::ssize(ModelNames()); ++i) {
    const auto model = static_cast<Model>(i);
    for (const Mesh& mesh :
         {Mesh{.dp = 2, .tp = 2, .ep = 4}, Mesh{.dp = 2, .ep = 2}, Mesh{.dp = 3}}) {
      if (i == 0 || !CheckMesh(TinySpec(model), mesh)) continue;
      subjects.push_back(
          {.model = model, .arithmetic = best, .mesh = mesh, .halves = mesh.ep == 4});
    }
  }
  return subjects;
}

std::vector<Subject> TrainedAndDivided() {
  std::vector<Subject> subjects;
  for (const Arithmetic* here : ArithmeticsHere()) {
    for (const Mesh& mesh : {Mesh{.tp = 2}, Mesh{.tp = 2, .ep = 2}}) {
      subjects.push_back(
          {.model = Model::kBraidTiny, .arithmetic = here, .mesh = mesh, .halves = mesh.ep == 2});
    }
  }
  return subjects;
}

std::vector<Subject> Placed() {
  std::vector<Subject> subjects;
  for (int i = 0; i < std::ssize(ModelNames()); ++i) {
    const auto model = static_cast<Model>(i);
    const Arithmetic* best = BestHere(i % 2 == 0 ? Compute::kBF16 : Compute::kF32);
    if (best == nullptr) best = BestHere(Compute::kF32);
    const ModelSpec spec = i > 0 ? TinySpec(model) : TrainedSpec();
    std::vector<Mesh> divide;
    for (const Mesh& mesh : kPlacedMeshes) {
      if (CheckMesh(spec, mesh)) divide.push_back(mesh);
    }
    for (size_t n = 0; n < std::min<size_t>(divide.size(), 2); ++n) {
      subjects.push_back({.model = model,
                          .arithmetic = best,
                          .mesh = divide[(static_cast<size_t>(i) + n) % divide.size()],
                          .placed = true,
                          .moving = n == 1,
                          .halves = i % 2 == 1});
    }
  }
  for (const Arithmetic* here : ArithmeticsHere()) {
    if (!here->weights) continue;
    subjects.push_back({.model = Model::kBraidTiny,
                        .arithmetic = here,
                        .mesh = {.tp = 2, .ep = 2, .redundant = 2},
                        .placed = true,
                        .moving = true});
  }
  return subjects;
}

std::vector<Subject> HeadedRanks() {
  const Arithmetic* best = BestHere(Compute::kF32);
  const Arithmetic* rounds = BestHere(Compute::kBF16);
  std::vector<Subject> subjects = {
      {Model::kQwen35, best, {.tp = 2}},
      {Model::kQwen35Moe, best, {.tp = 4, .ep = 2}},
      {.model = Model::kQwen3Next, .arithmetic = best, .mesh = {.dp = 2, .ep = 2}, .parcels = true},
      {Model::kLing2, rounds != nullptr ? rounds : best, {.dp = 2, .tp = 2, .ep = 4}},
      {Model::kLing3, best, {.dp = 2, .tp = 2, .ep = 2}},
      {.model = Model::kDeepseekV3,
       .arithmetic = best,
       .mesh = {.dp = 2, .tp = 2, .ep = 4, .redundant = 4},
       .placed = true,
       .moving = true}};
  std::erase_if(subjects, [](const Subject& subject) {
    const Status divides = CheckMesh(TinySpec(subject.model), subject.mesh);
    EXPECT_TRUE(divides.ok()) << divides.error().message;
    return !divides.ok();
  });
  return subjects;
}

}  // namespace braid

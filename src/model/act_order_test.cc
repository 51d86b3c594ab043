// GPTQ checkpoints whose columns fall into groups in an order of their own (act-order): codes and
// scales stay as they are stored, in memory and in mapped checkpoints, and so does every number.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>

#include "base/json.h"
#include "base/rng.h"
#include "base/system/file.h"
#include "model/checkpoint/safetensors_format.h"
#include "model/checkpoint/safetensors_writer.h"
#include "model/checkpoint/test_directory.h"
#include "model/loading/keep_rows.h"
#include "model/loading/test_loaded_model.h"
#include "model/writing/convert_panels.h"
#include "model/writing/make_model.h"

namespace braid {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kGroup = 32;

class ActOrder : public ::testing::Test {
 protected:
  // A tiny model whose projections are GPTQ integers. Those that read one input have one order of
  // columns, but for `odd`.
  std::string Made(const std::string& odd = "") {
    ThreadPool pool(1);
    const std::string made = dir_.path() + "/made", to = dir_.path() + "/gptq" + odd;
    if (!FileExists(made + "/config.json")) {
      CHECK(MakeModel({.directory = made,
                       .family = "qwen3",
                       .shape = {"tiny", "num_hidden_layers=1", "moe_intermediate_size=96"},
                       .progress = {}},
                      pool));
    }
    plans_.clear();
    data_.clear();
    const Result<Checkpoint> source = Checkpoint::Open(made);
    for (const auto& [name, entry] : source->tensors()) AddTensor(name, entry, odd);
    std::filesystem::create_directories(to);
    Result<SafetensorsWriter> writer = SafetensorsWriter::Create(to + "/model.safetensors", plans_);
    for (size_t i = 0; i < plans_.size(); ++i) CHECK(writer->Write(i, 0, data_[i]).ok());
    CHECK(writer->Finish().ok());
    json::object config = json::parse(*ReadFile(made + "/config.json", 1 << 20)).as_object();
    config["quantization_config"] = {
        {"quant_method", "gptq"}, {"bits", 4}, {"group_size", kGroup}, {"desc_act", true}};
    CHECK(WriteFile(to + "/config.json", json::serialize(config)).ok());
    return to;
  }

  void AddTensor(const std::string& name, const TensorEntry& entry, const std::string& odd) {
    constexpr std::string_view kWeight = ".weight";
    const std::vector<int64_t>& shape = entry.shape;
    if (name.ends_with("experts.gate_up_proj") || name.ends_with("experts.down_proj")) {
      const bool down = name.ends_with("down_proj");
      const std::string base = name.substr(0, name.rfind('.') + 1);
      for (int64_t e = 0; e < shape[0]; ++e) {
        const std::string expert = base + std::to_string(e);
        if (down) AddProjection(expert + ".down_proj", shape[1], shape[2], odd);
        if (down) continue;
        AddProjection(expert + ".gate_proj", shape[1] / 2, shape[2], odd);
        AddProjection(expert + ".up_proj", shape[1] / 2, shape[2], odd);
      }
    } else if (name.ends_with("_proj.weight")) {
      AddProjection(name.substr(0, name.size() - kWeight.size()), shape[0], shape[1], odd);
    } else {
      plans_.push_back({name, entry.dtype, shape});
      data_.emplace_back(entry.data, entry.data + entry.bytes);
    }
  }

  void AddProjection(const std::string& module, int64_t n, int64_t k, const std::string& odd) {
    const int64_t groups = CeilDiv(k, kGroup);
    for (std::byte& b : Add(module + ".qweight", DType::kI32, {k / 8, n})) b = Random();
    for (std::byte& b : Add(module + ".qzeros", DType::kI32, {groups, n / 8})) b = Random();
    std::vector<std::byte>& scales = Add(module + ".scales", DType::kF16, {groups, n});
    for (size_t at = 0; at < scales.size(); at += 2) {
      const uint16_t half = F16OfFloat(static_cast<float>(0.01 + 0.01 * rng_.Uniform()));
      std::memcpy(&scales[at], &half, 2);
    }
    // What a projection reads: its neighbours' input, or that of its own.
    const bool own = module.ends_with("o_proj") || module.ends_with("down_proj") ||
                     (!odd.empty() && module.ends_with(odd));
    const std::string input = own ? module : module.substr(0, module.rfind('.'));
    Rng rng(std::hash<std::string>()(input));
    std::vector<int32_t> group_of;
    for (int64_t c = 0; c < k; ++c) {
      group_of.push_back(static_cast<int32_t>(c / kGroup));
      std::swap(group_of.back(), group_of[static_cast<size_t>(rng.Below(c + 1))]);
    }
    std::vector<std::byte>& index = Add(module + ".g_idx", DType::kI32, {k});
    std::memcpy(index.data(), group_of.data(), index.size());
  }
  std::vector<std::byte>& Add(const std::string& name, DType type, std::vector<int64_t> shape) {
    plans_.push_back({name, type, std::move(shape)});
    return data_.emplace_back(static_cast<size_t>(plans_.back().bytes()));
  }
  std::byte Random() { return static_cast<std::byte>(rng_.Below(256)); }

  std::string Mapped(const std::string& from) {
    ThreadPool pool(2);
    const std::string to = dir_.path() + "/mapped";
    const Result<Converted> made =
        ConvertToPanels({.from = from, .to = to, .choice = {}, .progress = {}}, pool);
    CHECK(made.ok(), "{}", made.error().message);
    return to;
  }

  TestDirectory dir_;
  Rng rng_{7};
  std::vector<TensorPlan> plans_;
  std::vector<std::vector<std::byte>> data_;
};

std::vector<float> RowOf(const ops::PackedMatrix& matrix, int64_t row) {
  std::vector<float> values(static_cast<size_t>(matrix.k));
  matrix.ReadRow(row / matrix.n, row % matrix.n, values.data());
  return values;
}

void ExpectSameNumbers(ModelWeights& a, ModelWeights& b) {
  const std::vector<Weight*> of_a = AllWeights(a), of_b = AllWeights(b);
  ASSERT_EQ(of_a.size(), of_b.size());
  for (size_t i = 0; i < of_a.size(); ++i) {
    const ops::PackedMatrix &x = of_a[i]->matrix, &y = of_b[i]->matrix;
    for (int64_t row = 0; x.data != nullptr && row < x.count * x.n; ++row) {
      ASSERT_EQ(RowOf(x, row), RowOf(y, row)) << "weight " << i << " row " << row;
    }
  }
}

struct Projections {
  const ops::PackedMatrix &qkv, &out, &gate_up, &down;
};
Projections ProjectionsOf(const ModelWeights& weights) {
  const FullAttentionWeights& mixer = MixerOf<FullAttention>(weights, 0);
  const MoeFfnWeights& ffn = FfnOf<MoeFfn>(weights, 0);
  return {mixer.qkv.matrix, mixer.out.matrix, ffn.gate_up.matrix, ffn.down.matrix};
}

void ExpectOrdered(const ops::PackedMatrix& matrix) {
  EXPECT_EQ(matrix.format, ops::WeightFormat::kI4Z32);
  ASSERT_TRUE(matrix.ordered);
  for (int64_t m = 0; m < matrix.count; ++m) {
    EXPECT_FALSE(std::is_sorted(matrix.order(m), matrix.order(m) + matrix.k)) << m;
  }
}

void ExpectExpanded(const ops::PackedMatrix& matrix) {
  EXPECT_EQ(matrix.format, ops::WeightFormat::kF32);
  EXPECT_FALSE(matrix.ordered);
}

TEST_F(ActOrder, CodesStayCodesAndEveryNumberIsTheDecoders) {
  const std::string path = Made();
  Result<LoadedModel> kept = LoadModel(path);
  Result<LoadedModel> wide = LoadModel(path, {.format = ops::WeightFormat::kF32});
  ASSERT_TRUE(kept && wide) << kept.error().message;
  const auto [qkv, out, gate_up, down] = ProjectionsOf(kept->weights);
  for (const ops::PackedMatrix* matrix : {&qkv, &out, &gate_up, &down}) ExpectOrdered(*matrix);
  EXPECT_NE(std::memcmp(gate_up.order(0), gate_up.order(2), 2 * 64), 0) << "of two experts";
  EXPECT_EQ(std::memcmp(gate_up.order(0), gate_up.order(1), 2 * 64), 0) << "of gate and up";
  ExpectExpanded(ProjectionsOf(wide->weights).qkv);
  ExpectSameNumbers(kept->weights, wide->weights);
}

TEST_F(ActOrder, PartsOfOneWeightThatHaveSeveralOrdersAreExpanded) {
  for (const std::string odd : {"self_attn.k_proj", "experts.2.up_proj"}) {
    const std::string path = Made(odd);
    Result<LoadedModel> kept = LoadModel(path);
    Result<LoadedModel> wide = LoadModel(path, {.format = ops::WeightFormat::kF32});
    ASSERT_TRUE(kept && wide) << odd;
    const Projections p = ProjectionsOf(kept->weights);
    const bool attention = odd == "self_attn.k_proj";
    ExpectExpanded(attention ? p.qkv : p.gate_up);
    ExpectOrdered(attention ? p.gate_up : p.qkv);
    ExpectOrdered(p.out);
    ExpectOrdered(p.down);
    ExpectSameNumbers(kept->weights, wide->weights);
  }
}

TEST_F(ActOrder, WhoReadsInputsInOrderHasThemExpanded) {
  const std::string path = Made();
  for (const std::string& from : {path, Mapped(path)}) {
    Result<LoadedModel> in_order = LoadModel(from, {.inputs_in_order = true});
    Result<LoadedModel> again =
        LoadModel(from, {.format = ops::WeightFormat::kI4Z32, .inputs_in_order = true});
    Result<LoadedModel> kept = LoadModel(path);
    ASSERT_TRUE(in_order && again && kept) << from;
    const auto [qkv, out, gate_up, down] = ProjectionsOf(in_order->weights);
    for (const ops::PackedMatrix* matrix : {&qkv, &out, &gate_up, &down}) ExpectExpanded(*matrix);
    ExpectSameNumbers(kept->weights, in_order->weights);
    EXPECT_FALSE(ProjectionsOf(again->weights).qkv.ordered) << "rounded anew";
  }
}

TEST_F(ActOrder, AMappedCheckpointHasTheOrder) {
  const std::string path = Made(), mapped_path = Mapped(path);
  Result<LoadedModel> kept = LoadModel(path), mapped = LoadModel(mapped_path);
  Result<LoadedModel> wide = LoadModel(mapped_path, {.format = ops::WeightFormat::kF32});
  ASSERT_TRUE(kept && mapped && wide);
  const auto [qkv, out, gate_up, down] = ProjectionsOf(mapped->weights);
  int64_t bytes = 0;
  for (const ops::PackedMatrix* matrix : {&qkv, &out, &gate_up, &down}) {
    ExpectOrdered(*matrix);
    bytes += matrix->bytes();
  }
  EXPECT_GE(mapped->weights.mapped_bytes, bytes) << "used where the file lies";
  EXPECT_EQ(mapped->weights.bytes, kept->weights.bytes);
  ExpectSameNumbers(kept->weights, mapped->weights);
  ExpectSameNumbers(kept->weights, wide->weights);
}

// Of the output projection half the rows, whose order is copied; of experts every second one.
TEST_F(ActOrder, ARankHasTheOrderOfTheRowsThatItHolds) {
  const std::string path = Made();
  Result<LoadedModel> whole = LoadModel(path);
  const HeldRows held = [](const WeightSpec& spec) -> std::vector<RowRange> {
    if (spec.name.ends_with("o_proj")) return {{spec.n / 2, spec.n / 2}};
    if (spec.part != "experts" || spec.use != WeightUse::kMatrix) {
      return {{0, spec.count * spec.n}};
    }
    const int64_t expert = spec.units.empty() ? 0 : spec.units[0].rows;
    std::vector<RowRange> rows;
    for (int64_t at = expert; at < spec.count * spec.n; at += 2 * expert) {
      rows.push_back({at, expert});
    }
    return rows;
  };
  for (const std::string& from : {path, Mapped(path)}) {
    ThreadPool pool(2);
    Result<OpenedModel> opened = OpenModel(from);
    Result<Binding> binding = BindWeights(opened->spec, opened->checkpoint);
    ASSERT_TRUE(opened && binding);
    KeepRows(held, *binding);
    const Result<ModelWeights> part = LoadWeights(*std::move(binding), pool);
    ASSERT_TRUE(part) << part.error().message;
    const Projections some = ProjectionsOf(*part), all = ProjectionsOf(whole->weights);
    for (int64_t row = 0; row < some.out.n; ++row) {
      ASSERT_EQ(RowOf(some.out, row), RowOf(all.out, all.out.n / 2 + row)) << from;
    }
    ASSERT_EQ(some.down.count, all.down.count / 2);
    for (int64_t e = 0; e < some.down.count; ++e) {
      for (int64_t row = 0; row < all.down.n; ++row) {
        ASSERT_EQ(RowOf(some.down, e * all.down.n + row),
                  RowOf(all.down, (2 * e + 1) * all.down.n + row));
      }
      for (int64_t row = 0; row < 2 * all.gate_up.n; ++row) {
        ASSERT_EQ(RowOf(some.gate_up, 2 * e * all.gate_up.n + row),
                  RowOf(all.gate_up, 2 * (2 * e + 1) * all.gate_up.n + row));
      }
    }
  }
}

// It would be read behind the activations.
TEST_F(ActOrder, AMappedCheckpointWithAColumnThatThereIsNotIsRefused) {
  const std::string file = "mapped/model.safetensors";
  const std::string mapped = Mapped(Made());
  for (const uint16_t wrong : {uint16_t{64}, uint16_t{0}}) {  // none, or one of them twice
    std::string bytes = dir_.Read(file);
    uint64_t length = 0;
    std::memcpy(&length, bytes.data(), sizeof length);
    size_t end = 0;
    ASSERT_TRUE(ReadSafetensorsHeader({bytes.data() + 8, length}, file,
                                      [&](const HeaderTensor& tensor) -> Status {
                                        if (tensor.name.ends_with("o_proj.int4_zp32")) {
                                          end = 8 + length + static_cast<size_t>(tensor.end);
                                        }
                                        return {};
                                      })
                    .ok());
    ASSERT_GT(end, 0u);
    for (size_t column = 0; column < 2; ++column) {
      std::memcpy(&bytes[end - 2 * 64 + 2 * column], &wrong, sizeof wrong);
    }
    dir_.Write(file, bytes);
    const Result<LoadedModel> loaded = LoadModel(mapped);
    ASSERT_FALSE(loaded);
    EXPECT_THAT(loaded.error().message, HasSubstr("does not name each of 64 once"));
  }
}

}  // namespace
}  // namespace braid

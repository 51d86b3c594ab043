// Every weight of a model of every family, as ranks read it: each rank's bytes are its share, no
// other byte matters, and the parts together are the whole.
#include "model/loading/weight_shard.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <map>

#include "base/check.h"
#include "base/system/thread_pool.h"
#include "model/checkpoint/test_directory.h"
#include "model/families/families.h"
#include "model/loading/make_model.h"

namespace braid {
namespace {

template <class T>
T Must(Result<T> result) {
  CHECK(result, "{}", result.error().message);
  return *std::move(result);
}

struct Bound {
  explicit Bound(const std::string& directory)
      : spec(Must(ReadModelSpec(directory))), checkpoint(Must(Checkpoint::Open(directory))) {
    spec = FitToCheckpoint(std::move(spec), checkpoint);
    weights = WeightsOf(spec);
    std::vector<const WeightSpec*> list = {&weights.embedding, &weights.final_norm};
    for (const LayerWeightSpecs& layer : weights.layers) {
      list.insert(list.end(), {&layer.input_norm, &layer.post_norm});
      for (const WeightSpec& w : layer.mixer) list.push_back(&w);
      for (const WeightSpec& w : layer.ffn) list.push_back(&w);
    }
    if (weights.head) list.push_back(&*weights.head);
    binding = Must(BindWeights(spec, list, checkpoint, {}, nullptr));
  }
  ModelSpec spec;
  Checkpoint checkpoint;
  ModelWeightSpecs weights;
  Binding binding;
};

std::vector<std::byte> Whole(const BoundWeight& weight) {
  std::vector<std::byte> all(static_cast<size_t>(weight.elements() * SizeOf(weight.dtype)));
  weight.Read(0, weight.elements(), all.data());
  return all;
}

// How often each element of each stored tensor is read, over all ranks.
using Reads = std::map<const StoredWeight*, std::vector<int>>;

void Count(const std::vector<SourceRun>& runs, Reads& reads) {
  for (const SourceRun& run : runs) {
    std::vector<int>& counts = reads[run.stored];
    counts.resize(static_cast<size_t>(run.stored->elements()));
    for (int64_t i = 0; i < run.count; ++i) ++counts[static_cast<size_t>(run.first + i)];
  }
}

class WeightShard : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    ThreadPool pool(1);
    Must(MakeModel({.directory = dir_.path(), .family = GetParam()}, pool));
  }
  TestDirectory dir_;
};

TEST_P(WeightShard, RanksReadTheirShareAndNothingTwice) {
  const Bound bound(dir_.path());
  constexpr int32_t kRanks = 2;
  int divided = 0;
  for (const BoundWeight& weight : bound.binding.weights) {
    const bool replicated = weight.spec->shard == Shard::kReplicated;
    Reads reads;
    int64_t before = -1;
    for (int32_t rank = 0; rank < kRanks; ++rank) {
      const auto runs = ShardRuns(weight, {rank, kRanks});
      ASSERT_TRUE(runs) << runs.error().message;
      const int64_t elements = runs->back().at + runs->back().count;
      EXPECT_EQ(elements * (replicated ? 1 : kRanks), weight.elements()) << weight.spec->name;
      EXPECT_TRUE(before < 0 || before == elements);
      before = elements;
      Count(*runs, reads);
    }
    Reads once;
    Count(weight.runs, once);
    for (const auto& [stored, counts] : once) {
      ASSERT_EQ(reads[stored].size(), counts.size()) << weight.spec->name;
      for (size_t i = 0; i < counts.size(); ++i) {
        ASSERT_EQ(reads[stored][i], replicated ? kRanks * counts[i] : counts[i]);
      }
    }
    divided += !replicated;
  }
  EXPECT_GT(divided, 10);
}

// The parts of a weight, put together by hand: rows piece by piece, columns row by row.
std::vector<std::byte> Joined(const BoundWeight& weight,
                              const std::vector<std::vector<std::byte>>& parts) {
  std::vector<std::byte> whole(Whole(weight).size());
  const int64_t element = SizeOf(weight.dtype);
  const auto ranks = static_cast<int64_t>(parts.size());
  std::vector<int64_t> begins = weight.pieces;
  if (weight.spec->shard == Shard::kExperts) begins = {0};
  if (weight.spec->shard == Shard::kColumns) {
    begins.clear();
    for (int64_t at = 0; at < weight.elements(); at += weight.spec->k) begins.push_back(at);
  }
  begins.push_back(weight.elements());
  int64_t done = 0;  // elements of each part
  for (size_t i = 0; i + 1 < begins.size(); ++i) {
    const int64_t count = (begins[i + 1] - begins[i]) / ranks;
    for (int64_t r = 0; r < ranks; ++r) {
      std::memcpy(whole.data() + (begins[i] + r * count) * element,
                  parts[static_cast<size_t>(r)].data() + done * element,
                  static_cast<size_t>(count * element));
    }
    done += count;
  }
  return whole;
}

// The file of `bound` in which only the bytes of one rank of two are left.
std::string OnlyBytesOf(const Bound& bound, std::string file, int32_t rank) {
  const std::byte* begin = nullptr;
  size_t data_bytes = 0, poisoned = 0;
  for (const auto& [name, entry] : bound.checkpoint.tensors()) {
    begin = begin ? std::min(begin, entry.data) : entry.data;
    data_bytes += static_cast<size_t>(entry.bytes);
  }
  const size_t head = file.size() - data_bytes;
  std::vector<bool> own(file.size());
  for (const BoundWeight& weight : bound.binding.weights) {
    for (const SourceRun& run : Must(ShardRuns(weight, {rank, 2}))) {
      const int64_t element = SizeOf(run.stored->main().dtype);
      const int64_t first = run.stored->main().data - begin + run.first * element;
      for (int64_t i = 0; i < run.count * element; ++i) {
        own[head + static_cast<size_t>(first + i)] = true;
      }
    }
  }
  for (size_t i = head; i < file.size(); ++i) {
    if (own[i]) continue;
    file[i] = '\x7F';
    ++poisoned;
  }
  EXPECT_GT(poisoned, data_bytes / 10);
  return file;
}

TEST_P(WeightShard, ThePartsAreTheWholeAndTheOtherBytesDoNotMatter) {
  const Bound bound(dir_.path());
  std::vector<std::vector<std::vector<std::byte>>> parts(bound.binding.weights.size());
  for (int32_t rank = 0; rank < 2; ++rank) {
    const TestDirectory other;
    other.Write("config.json", dir_.Read("config.json"));
    other.Write("model.safetensors", OnlyBytesOf(bound, dir_.Read("model.safetensors"), rank));
    const Bound poor(other.path());
    for (size_t w = 0; w < parts.size(); ++w) {
      parts[w].push_back(Must(ReadShard(poor.binding.weights[w], {rank, 2})));
    }
  }
  for (size_t w = 0; w < parts.size(); ++w) {
    const BoundWeight& weight = bound.binding.weights[w];
    const std::vector<std::byte> whole = Whole(weight);
    if (weight.spec->shard == Shard::kReplicated) {
      EXPECT_TRUE(parts[w][0] == whole && parts[w][1] == whole) << weight.spec->name;
    } else {
      EXPECT_TRUE(Joined(weight, parts[w]) == whole) << weight.spec->name;
    }
  }
}

TEST_P(WeightShard, RanksThatCannotHaveEqualPartsAreRefused) {
  const Bound bound(dir_.path());
  int refused = 0;
  for (const BoundWeight& weight : bound.binding.weights) {
    const auto runs = ShardRuns(weight, {0, 7});
    if (weight.spec->shard == Shard::kReplicated) {
      EXPECT_TRUE(runs);
    } else if (!runs) {
      ++refused;
      EXPECT_NE(runs.error().message.find("cannot be divided equally by 7 ranks"),
                std::string::npos);
    }
  }
  EXPECT_GT(refused, 10);
}

INSTANTIATE_TEST_SUITE_P(All, WeightShard,
                         testing::Values("qwen3_5_moe", "qwen3_5", "qwen3_next", "kimi_linear",
                                         "ling_3", "ling_2", "deepseek_v3"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace braid

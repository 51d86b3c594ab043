// For tests: a golden set's prompts and log-probabilities, and its model with pages for one
// sequence, through the decoder alone. One thread drives it.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/json.h"
#include "base/math.h"
#include "base/system/file.h"
#include "base/system/thread_pool.h"
#include "model/checkpoint/checkpoint.h"
#include "model/decoder.h"
#include "model/draft_head.h"
#include "model/families/families.h"
#include "model/loading/load_weights.h"

namespace braid {

struct Golden {
  std::vector<TokenId> ids;
  std::vector<double> logprobs;  // of ids[i] after those before it; [0] is not used
};

inline std::string GoldenDirectory(const std::string& name) {
  return BRAID_SOURCE_DIR "/tests/golden/" + name;
}

inline std::vector<Golden> ReadGoldens(const std::string& name,
                                       const std::string& file = "score.jsonl") {
  const std::string path = GoldenDirectory(name) + "/" + file;
  Result<std::string> text = ReadFile(path, size_t{4} << 20);
  CHECK(text, "{}", path);
  std::vector<Golden> goldens;
  for (size_t begin = 0; begin < text->size();) {
    const size_t end = std::min(text->find('\n', begin), text->size());
    const json::value line = json::parse(text->substr(begin, end - begin));
    Golden golden;
    for (const json::value& id : line.at("token_ids").as_array()) {
      golden.ids.push_back(static_cast<TokenId>(id.as_int64()));
    }
    for (const json::value& p : line.at("logprobs").as_array()) {
      golden.logprobs.push_back(p.is_null() ? 0.0 : p.to_number<double>());
    }
    goldens.push_back(std::move(golden));
    begin = end + 1;
  }
  return goldens;
}

// A loaded model with pages for one sequence.
class GoldenModel {
 public:
  GoldenModel(int threads, Isa isa, Compute compute, DType kv_dtype)
      : pool_(threads), workspace_(int64_t{256} << 20), kv_dtype_(kv_dtype) {
    context_ = {
        .device = DeviceOf(DetectCpu(), isa, compute), .pool = &pool_, .workspace = &workspace_};
  }
  // A golden set as it is.
  GoldenModel(const std::string& name, int threads, Isa isa, Compute compute = Compute::kF32,
              DType kv_dtype = DType::kF32)
      : GoldenModel(threads, isa, compute, kv_dtype) {
    Result<ModelSpec> spec = ReadModelSpec(GoldenDirectory(name));
    CHECK(spec, "{}", spec.error().message);
    const Status status = Load(name, *std::move(spec));
    CHECK(status, "{}", status.error().message);
  }

  // The tensors of a golden set under a spec, which the loader may refuse; with its draft head.
  Status Load(const std::string& name, ModelSpec spec, bool head = false) {
    ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::Open(GoldenDirectory(name)));
    spec_ = FitToCheckpoint(std::move(spec), checkpoint);
    if (head) UseDraftHead(spec_);
    ASSIGN_OR_RETURN(Binding binding, BindWeights(spec_, checkpoint));
    ASSIGN_OR_RETURN(weights_, LoadWeights(std::move(binding), pool_));
    plan_ = CachePlanOf(spec_, kv_dtype_);
    return {};
  }

  // Logits [tokens, vocabulary] of a prompt in steps that end at `cuts` and at its end.
  std::vector<float> Logits(const std::vector<TokenId>& ids, std::vector<int32_t> cuts) {
    const auto tokens = static_cast<int32_t>(ids.size());
    MakePages(tokens);
    std::vector<float> logits(ids.size() * static_cast<size_t>(spec_.vocabulary));
    cuts.push_back(tokens);
    int32_t begin = 0;
    for (int32_t end : cuts) {
      end = std::min(end, tokens);
      if (end > begin) Step(ids, begin, end, logits);
      begin = std::max(begin, end);
    }
    return logits;
  }

  // The same of the draft head: row i is of the token after ids[i], of what the head has seen of
  // the tokens up to i.
  std::vector<float> DraftLogits(const std::vector<TokenId>& ids, std::vector<int32_t> cuts) {
    const auto tokens = static_cast<int32_t>(ids.size());
    const auto hidden = static_cast<size_t>(spec_.hidden);
    std::vector<float> states = States(ids), drafted(states.size());
    // The head sees each token with the state of the one before.
    states.insert(states.begin(), hidden, 0.0f);
    MakePages(tokens);
    const DraftHead head(spec_, weights_, plan_, kv_dtype_);
    cuts.push_back(tokens);
    int32_t begin = 0;
    for (const int32_t cut : cuts) {
      const int32_t end = std::min(cut, tokens), count = end - begin;
      if (count <= 0) continue;
      const ops::SequenceSpan span = SpanOf(begin, end);
      const size_t at = static_cast<size_t>(begin) * hidden;
      head.Forward(context_,
                   {.tokens = ids.data() + begin,
                    .before = {states.data() + at, count, spec_.hidden, spec_.hidden},
                    .sequences = {&span, 1, count}},
                   {drafted.data() + at, count, spec_.hidden, spec_.hidden});
      begin = end;
    }
    std::vector<float> logits(ids.size() * static_cast<size_t>(spec_.vocabulary));
    Decoder(spec_, weights_, plan_, kv_dtype_)
        .Logits(context_, {drafted.data(), tokens, spec_.hidden, spec_.hidden},
                {logits.data(), tokens, spec_.vocabulary, spec_.vocabulary});
    return logits;
  }

  int32_t vocabulary() const { return spec_.vocabulary; }

 private:
  void MakePages(int32_t tokens) {
    const auto blocks = static_cast<size_t>(CeilDiv(tokens, kBlockTokens));
    pages_.clear();
    tables_.clear();
    for (const GroupGeometry& group : plan_.groups) {
      std::vector<std::byte*> table;
      for (size_t b = 0; b < blocks; ++b) {
        pages_.emplace_back(static_cast<size_t>(group.block_bytes / 4),
                            std::numeric_limits<float>::quiet_NaN());
        table.push_back(reinterpret_cast<std::byte*>(pages_.back().data()));
      }
      tables_.push_back(std::move(table));
    }
  }

  ops::SequenceSpan SpanOf(int32_t begin, int32_t end) const {
    ops::SequenceSpan span{0, end - begin, begin, {}};
    for (size_t g = 0; g < tables_.size(); ++g) span.tables[g] = tables_[g].data();
    return span;
  }

  // The model's normed states of a prompt in one step.
  std::vector<float> States(const std::vector<TokenId>& ids) {
    const auto tokens = static_cast<int32_t>(ids.size());
    MakePages(tokens);
    const ops::SequenceSpan span = SpanOf(0, tokens);
    std::vector<float> states(ids.size() * static_cast<size_t>(spec_.hidden));
    Decoder(spec_, weights_, plan_, kv_dtype_)
        .Forward(context_, {.tokens = ids.data(), .sequences = {&span, 1, tokens}},
                 {states.data(), tokens, spec_.hidden, spec_.hidden});
    return states;
  }

  void Step(const std::vector<TokenId>& ids, int32_t begin, int32_t end,
            std::vector<float>& logits) {
    const int32_t count = end - begin;
    const ops::SequenceSpan span = SpanOf(begin, end);
    std::vector<float> states(static_cast<size_t>(count) * static_cast<size_t>(spec_.hidden));
    const Matrix view{states.data(), count, spec_.hidden, spec_.hidden};
    const Decoder decoder(spec_, weights_, plan_, kv_dtype_);
    decoder.Forward(context_, {.tokens = ids.data() + begin, .sequences = {&span, 1, count}}, view);
    float* out = logits.data() + int64_t{begin} * spec_.vocabulary;
    decoder.Logits(context_, view, {out, count, spec_.vocabulary, spec_.vocabulary});
  }

  ThreadPool pool_;
  Workspace workspace_;
  DType kv_dtype_;
  ModelSpec spec_;
  ModelWeights weights_;
  CachePlan plan_;
  ops::OpContext context_;
  std::vector<std::vector<float>> pages_;
  std::vector<std::vector<std::byte*>> tables_;
};

inline double LargestDifference(const Golden& golden, const std::vector<float>& logits,
                                size_t width) {
  double worst = 0;
  for (size_t i = 1; i < golden.ids.size(); ++i) {
    const float* row = logits.data() + (i - 1) * width;
    double sum = 0;
    for (size_t v = 0; v < width; ++v) sum += std::exp(double{row[v]});
    const double logprob = row[static_cast<size_t>(golden.ids[i])] - std::log(sum);
    const double difference = std::abs(logprob - golden.logprobs[i]);
    worst = std::isfinite(difference) ? std::max(worst, difference) : INFINITY;
  }
  return worst;
}

}  // namespace braid

// Binding: names, alternatives, shapes, types; then what is left over.
#include "model/weight_binding.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <unordered_set>

#include "base/check.h"
#include "model/quantities.h"

namespace braid {
namespace {

constexpr size_t kProblemsMax = 32;
constexpr size_t kSuggestNameBytesMax = 160;
constexpr size_t kSuggestCandidatesMax = 512;

std::string ShapeText(const std::vector<int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

bool IsWeightType(DType type, WeightUse use) {
  return type == DType::kBF16 || type == DType::kF16 || type == DType::kF32 ||
         (type == DType::kF64 && use == WeightUse::kVector);
}

// Exporters of vectors add and drop dimensions of one element.
bool SameShape(std::vector<int64_t> a, std::vector<int64_t> b, WeightUse use) {
  if (use == WeightUse::kVector) {
    std::erase(a, 1);
    std::erase(b, 1);
  }
  return a == b;
}

// Levenshtein's distance, or `limit` when it is at least that.
size_t EditDistance(std::string_view a, std::string_view b, size_t limit) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0], best = row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (a[i] != b[j] ? 1 : 0);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j + 1] + 1, row[j] + 1});
      best = std::min(best, row[j + 1]);
    }
    if (best >= limit) return limit;
  }
  return std::min(row.back(), limit);
}

// "; did you mean X?" or nothing.
std::string Suggestion(const std::string& name, const std::vector<std::string>& candidates) {
  if (name.size() > kSuggestNameBytesMax) return {};
  size_t best = name.size() / 6 + 3;
  const std::string* nearest = nullptr;
  size_t tried = 0;
  for (const std::string& candidate : candidates) {
    const size_t longer = std::max(name.size(), candidate.size());
    const size_t shorter = std::min(name.size(), candidate.size());
    if (longer - shorter >= best || tried++ >= kSuggestCandidatesMax) continue;
    const size_t distance = EditDistance(name, candidate, best);
    if (distance < best) {
      best = distance;
      nearest = &candidate;
    }
  }
  return nearest ? fmt::format("; the nearest name is \"{}\"", *nearest) : "";
}

class Binder {
 public:
  Binder(const ModelSpec& spec, const Checkpoint& checkpoint)
      : spec_(spec), checkpoint_(checkpoint), prefix_(ChoosePrefix()) {}

  BoundWeight Bind(const WeightSpec& weight);
  void Leftovers(LoadReport* report);
  Status Finish() const;

 private:
  std::string ChoosePrefix() const;
  std::string NameOf(const Piece& piece) const {
    return piece.tensor.starts_with('@') ? prefix_ + piece.tensor.substr(1) : piece.tensor;
  }
  size_t CountPresent(const std::vector<Piece>& pieces) const;
  const std::vector<Piece>* ChooseSource(const WeightSpec& weight);
  const TensorEntry* Take(const WeightSpec& weight, const Piece& piece);
  void AppendRuns(const WeightSpec& weight, const Piece& piece, const TensorEntry& entry,
                  BoundWeight& bound) const;
  void Problem(const std::string& field, std::string text) {
    if (problems_.empty()) first_field_ = field;
    problems_.push_back(std::move(text));
  }

  const ModelSpec& spec_;
  const Checkpoint& checkpoint_;
  std::string prefix_;
  std::unordered_set<const TensorEntry*> claimed_;
  std::vector<std::string> missing_;  // names, each once
  std::map<std::string, std::vector<int64_t>> missing_shapes_;
  std::vector<std::string> unknown_;
  std::vector<std::string> problems_;
  std::string first_field_;
};

// The first candidate under which there is an embedding or a layer.
std::string Binder::ChoosePrefix() const {
  for (const std::string& prefix : spec_.prefixes) {
    for (const char* stem : {"embed_tokens.", "layers."}) {
      const auto at = checkpoint_.tensors().lower_bound(prefix + stem);
      if (at != checkpoint_.tensors().end() && at->first.starts_with(prefix + stem)) return prefix;
    }
  }
  return spec_.prefixes.empty() ? "" : spec_.prefixes.back();
}

size_t Binder::CountPresent(const std::vector<Piece>& pieces) const {
  return static_cast<size_t>(std::ranges::count_if(
      pieces, [&](const Piece& piece) { return checkpoint_.Find(NameOf(piece)) != nullptr; }));
}

// The one alternative of which something is there; the first when nothing is. Null after a problem.
const std::vector<Piece>* Binder::ChooseSource(const WeightSpec& weight) {
  const std::vector<Piece>* found = nullptr;
  for (const std::vector<Piece>& pieces : weight.sources) {
    if (CountPresent(pieces) == 0) continue;
    if (found == nullptr) {
      found = &pieces;
      continue;
    }
    for (const auto* source : {found, &pieces}) {
      for (const Piece& piece : *source) claimed_.insert(checkpoint_.Find(NameOf(piece)));
    }
    const std::string name = NameOf(found->front());
    Problem(name,
            fmt::format("\"{}\" and \"{}\" are two forms of one weight; only one may be there",
                        name, NameOf(pieces.front())));
    return nullptr;
  }
  return found ? found : &weight.sources.front();
}

// The piece's tensor if it is there and right.
const TensorEntry* Binder::Take(const WeightSpec& weight, const Piece& piece) {
  const std::string name = NameOf(piece);
  const TensorEntry* entry = checkpoint_.Find(name);
  if (entry == nullptr) {
    if (missing_shapes_.emplace(name, piece.shape).second) missing_.push_back(name);
    return nullptr;
  }
  const bool first = claimed_.insert(entry).second;
  if (!SameShape(entry->shape, piece.shape, weight.use)) {
    if (first) {
      Problem(name, fmt::format("\"{}\" in {} has the shape {}; config.json asks for {}", name,
                                checkpoint_.file_path(*entry), ShapeText(entry->shape),
                                ShapeText(piece.shape)));
    }
    return nullptr;
  }
  if (!IsWeightType(entry->dtype, weight.use)) {
    if (first) {
      Problem(name, fmt::format("\"{}\" in {} is {}; it must be bf16, f16 or f32", name,
                                checkpoint_.file_path(*entry), braid::NameOf(entry->dtype)));
    }
    return nullptr;
  }
  return entry;
}

void Binder::AppendRuns(const WeightSpec& weight, const Piece& piece, const TensorEntry& entry,
                        BoundWeight& bound) const {
  const int64_t row_bytes = piece.shape.back() * SizeOf(entry.dtype);
  CHECK(weight.use == WeightUse::kVector ||
            piece.shape.back() == (weight.transpose ? weight.n : weight.k),
        "{}", weight.name);
  int64_t at = bound.runs.empty() ? 0 : bound.runs.back().weight_offset + bound.runs.back().bytes;
  if (piece.rows.empty()) {
    bound.runs.push_back({&entry, 0, at, entry.bytes});
    return;
  }
  for (const RowRange& rows : piece.rows) {
    CHECK(rows.begin >= 0 && (rows.begin + rows.count) * row_bytes <= entry.bytes, "{}",
          weight.name);
    bound.runs.push_back({&entry, rows.begin * row_bytes, at, rows.count * row_bytes});
    at += rows.count * row_bytes;
  }
}

BoundWeight Binder::Bind(const WeightSpec& weight) {
  BoundWeight bound{.spec = &weight};
  const std::vector<Piece>* source = ChooseSource(weight);
  if (source == nullptr) return bound;
  const TensorEntry* first = nullptr;
  bool complete = true;
  for (const Piece& piece : *source) {
    const TensorEntry* entry = Take(weight, piece);
    if (entry == nullptr) {
      complete = false;
      continue;
    }
    if (first == nullptr) first = entry;
    if (entry->dtype != first->dtype) {
      Problem(entry->name,
              fmt::format("\"{}\" is {} and \"{}\" is {}; they form one weight and must "
                          "have one type",
                          first->name, braid::NameOf(first->dtype), entry->name,
                          braid::NameOf(entry->dtype)));
      complete = false;
    }
    if (complete) AppendRuns(weight, piece, *entry, bound);
  }
  if (!complete) return bound;
  bound.dtype = first->dtype;
  const SourceRun& last = bound.runs.back();
  CHECK(last.weight_offset + last.bytes == weight.count * weight.n * weight.k * SizeOf(bound.dtype),
        "the pieces of {} do not add up", weight.name);
  return bound;
}

// What no weight claimed: skipped by prefix, or unknown. The draft head's weights are bound
// already.
void Binder::Leftovers(LoadReport* report) {
  struct Sum {
    int64_t tensors = 0;
    int64_t bytes = 0;
  };
  std::map<std::string, Sum> skipped;
  Sum draft;
  for (const auto& [name, entry] : checkpoint_.tensors()) {
    if (claimed_.contains(&entry)) {
      if (spec_.draft && name.starts_with(spec_.draft->prefix)) {
        ++draft.tensors;
        draft.bytes += entry.bytes;
      }
      continue;
    }
    const auto skip = std::ranges::find_if(
        spec_.skip_prefixes, [&](const std::string& prefix) { return name.starts_with(prefix); });
    if (skip == spec_.skip_prefixes.end()) {
      unknown_.push_back(name);
      continue;
    }
    ++skipped[*skip].tensors;
    skipped[*skip].bytes += entry.bytes;
  }
  if (report == nullptr) return;
  for (const auto& [prefix, sum] : skipped) {
    report->skipped.push_back(fmt::format("{}*: {} tensors, {} (not part of the text model)",
                                          prefix, sum.tensors, ByteText(sum.bytes)));
  }
  if (draft.tensors > 0) {
    report->draft.push_back(fmt::format("{}*: {} tensors, {} (draft head, not used yet)",
                                        spec_.draft->prefix, draft.tensors, ByteText(draft.bytes)));
  }
}

Status Binder::Finish() const {
  std::vector<std::string> lines = problems_;
  for (const std::string& name : missing_) {
    if (lines.size() >= kProblemsMax) break;
    lines.push_back(fmt::format("\"{}\" {} is missing{}", name, ShapeText(missing_shapes_.at(name)),
                                Suggestion(name, unknown_)));
  }
  for (const std::string& name : unknown_) {
    if (lines.size() >= kProblemsMax) break;
    const TensorEntry& entry = *checkpoint_.Find(name);
    lines.push_back(fmt::format("\"{}\" {} in {} belongs to no weight of the model{}", name,
                                ShapeText(entry.shape), checkpoint_.file_path(entry),
                                Suggestion(name, missing_)));
  }
  const size_t total = problems_.size() + missing_.size() + unknown_.size();
  if (total == 0) return {};
  lines.resize(std::min(lines.size(), kProblemsMax));
  std::string text =
      fmt::format("{}: the tensors are not those of config.json:", checkpoint_.directory());
  if (total == 1) {
    text += " " + lines[0];
  } else {
    text += fmt::format("\n  {}", fmt::join(lines, "\n  "));
  }
  if (total > lines.size()) text += fmt::format("\n  and {} more", total - lines.size());
  std::string field = !problems_.empty()  ? first_field_
                      : !missing_.empty() ? missing_.front()
                                          : unknown_.front();
  return Error{ErrorCode::kInvalid, std::move(text), std::move(field)};
}

}  // namespace

const SourceRun& BoundWeight::RunAt(int64_t offset) const {
  auto after = std::ranges::upper_bound(runs, offset, {}, &SourceRun::weight_offset);
  return *std::prev(after);
}

const std::byte* BoundWeight::At(int64_t offset) const {
  const SourceRun& run = RunAt(offset);
  return run.tensor->data + run.tensor_offset + (offset - run.weight_offset);
}

Result<std::vector<BoundWeight>> BindWeights(const ModelSpec& spec,
                                             const std::vector<const WeightSpec*>& weights,
                                             const Checkpoint& checkpoint, LoadReport* report) {
  Binder binder(spec, checkpoint);
  std::vector<BoundWeight> bound;
  for (const WeightSpec* weight : weights) bound.push_back(binder.Bind(*weight));
  for (const WeightSpec& weight : DraftWeightsOf(spec)) binder.Bind(weight);
  binder.Leftovers(report);
  RETURN_IF_ERROR(binder.Finish());
  return bound;
}

}  // namespace braid

// Matches names, alternatives, shapes and types, then reports the tensors that are left over.
#include "model/loading/weight_binding.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "base/check.h"
#include "base/nearest.h"
#include "base/quantities.h"
#include "model/loading/stored_panels.h"
#include "ops/grouped/grouped_format.h"

namespace braid {
namespace {

constexpr size_t kProblemsMax = 32;

bool IsWeightType(DType type, WeightUse use) {
  return type == DType::kBF16 || type == DType::kF16 || type == DType::kF32 ||
         (type == DType::kF64 && use == WeightUse::kVector);
}

// Exporters add and drop dimensions of size one in vectors.
bool SameShape(std::vector<int64_t> a, std::vector<int64_t> b, WeightUse use) {
  if (use == WeightUse::kVector) {
    std::erase(a, 1);
    std::erase(b, 1);
  }
  return a == b;
}

// "; the nearest name is X" or nothing.
std::string Suggestion(const std::string& name, const std::vector<std::string>& candidates) {
  const std::string* nearest = NearestName(name, candidates, name.size() / 6 + 2);
  return nearest ? fmt::format("; the nearest name is \"{}\"", *nearest) : "";
}

// Scales of activations and caches that other engines quantise at run time.
bool IsActivationScale(std::string_view name) {
  constexpr std::string_view kSuffixes[] = {".input_scale",  ".input_global_scale",
                                            ".output_scale", ".k_scale",
                                            ".v_scale",      ".input_zero_point"};
  return std::ranges::any_of(kSuffixes, [&](auto suffix) { return name.ends_with(suffix); });
}

// A tensor that may be a weight: as it is, or the first part of a format.
struct Candidate {
  const TensorEntry* tensor = nullptr;
  const StorageFormat* format = nullptr;  // null: plain
};

class Binder {
 public:
  Binder(const ModelSpec& spec, const Checkpoint& checkpoint, const WeightChoice& choice,
         Binding& binding)
      : spec_(spec),
        checkpoint_(checkpoint),
        choice_(choice),
        binding_(binding),
        prefix_(ChoosePrefix()) {}

  BoundWeight Bind(WeightEntry entry);
  void Leftovers();
  Status Finish() const;

 private:
  std::string ChoosePrefix() const;
  std::string NameOf(const Piece& piece) const {
    return piece.tensor.starts_with('@') ? prefix_ + piece.tensor.substr(1) : piece.tensor;
  }
  std::vector<Candidate> Candidates(const std::string& name, WeightUse use) const;
  const std::vector<Piece>* ChooseSource(const WeightSpec& weight);
  const StoredWeight* Take(const WeightSpec& weight, const Piece& piece);
  const StoredWeight* TakePlain(const WeightSpec& weight, const Piece& piece,
                                const TensorEntry& entry);
  const StoredWeight* TakeParts(const Piece& piece, const std::string& name,
                                const Candidate& candidate);
  bool Ignored(const std::string& module);
  StoredWeight& Store(const Piece& piece, StoredWeight stored);
  void CheckOneType(const StoredWeight& first, const StoredWeight& other);
  void Missing(const std::string& name, const std::vector<int64_t>& shape) {
    if (missing_shapes_.emplace(name, shape).second) missing_.push_back(name);
  }
  void Problem(const std::string& field, std::string text) {
    if (problems_.empty()) first_field_ = field;
    problems_.push_back(std::move(text));
  }

  const ModelSpec& spec_;
  const Checkpoint& checkpoint_;
  const WeightChoice& choice_;
  Binding& binding_;
  std::string prefix_;
  int64_t ignore_steps_left_ = kIgnoreSteps;
  std::unordered_set<const TensorEntry*> claimed_;
  std::unordered_map<const TensorEntry*, const StoredWeight*> stored_;  // by the first part
  std::vector<std::string> missing_;                                    // names, each once
  std::map<std::string, std::vector<int64_t>> missing_shapes_;
  std::vector<std::string> unknown_;
  std::vector<std::string> problems_;
  std::string first_field_;
};

// The first candidate prefix with an embedding or a layer.
std::string Binder::ChoosePrefix() const {
  for (const std::string& prefix : spec_.prefixes) {
    for (const char* stem : {"embed_tokens.", "layers."}) {
      const auto at = checkpoint_.tensors().lower_bound(prefix + stem);
      if (at != checkpoint_.tensors().end() && at->first.starts_with(prefix + stem)) return prefix;
    }
  }
  return spec_.prefixes.empty() ? "" : spec_.prefixes.back();
}

// The tensors that can be the weight called `name`. Vectors are never quantised.
std::vector<Candidate> Binder::Candidates(const std::string& name, WeightUse use) const {
  std::vector<Candidate> found;
  const TensorEntry* plain = checkpoint_.Find(name);
  if (plain && plain->view) return {{plain, &GgufFormat(*plain)}};
  if (use == WeightUse::kMatrix) {
    for (const StorageFormat* format : spec_.quantization.formats) {
      const std::string part = PartName(*format, name, format->parts[0].suffix);
      const TensorEntry* entry = part.empty() ? nullptr : checkpoint_.Find(part);
      if (entry == nullptr || std::ranges::count(format->types, entry->dtype) == 0) continue;
      found.push_back({entry, format});
      if (entry == plain) plain = nullptr;
    }
  }
  if (plain) found.push_back({plain, nullptr});
  return found;
}

// The only alternative with a tensor in the checkpoint; the first if none has one. Null after a
// problem.
const std::vector<Piece>* Binder::ChooseSource(const WeightSpec& weight) {
  const std::vector<Piece>* found = nullptr;
  const auto present = [&](const Piece& piece) {
    return !Candidates(NameOf(piece), weight.use).empty();
  };
  for (const std::vector<Piece>& pieces : weight.sources) {
    if (std::ranges::none_of(pieces, present)) continue;
    if (found == nullptr) {
      found = &pieces;
      continue;
    }
    for (const auto* source : {found, &pieces}) {
      for (const Piece& piece : *source) {
        for (const Candidate& c : Candidates(NameOf(piece), weight.use)) claimed_.insert(c.tensor);
      }
    }
    const std::string name = NameOf(found->front());
    Problem(name,
            fmt::format("\"{}\" and \"{}\" are two forms of one weight; only one may be present",
                        name, NameOf(pieces.front())));
    return nullptr;
  }
  return found ? found : &weight.sources.front();
}

StoredWeight& Binder::Store(const Piece& piece, StoredWeight stored) {
  const std::vector<int64_t>& shape = piece.shape;
  stored.name = NameOf(piece);
  stored.quantization = &spec_.quantization;
  stored.k = shape.back();
  stored.rows = shape.size() > 1 ? shape[shape.size() - 2] : 1;
  for (size_t i = 0; i + 2 < shape.size(); ++i) stored.matrices *= shape[i];
  return binding_.stored.emplace_back(std::move(stored));
}

const StoredWeight* Binder::TakePlain(const WeightSpec& weight, const Piece& piece,
                                      const TensorEntry& entry) {
  if (!SameShape(entry.shape, piece.shape, weight.use)) {
    Problem(entry.name, fmt::format("\"{}\" in {} has the shape {}; config.json asks for {}",
                                    entry.name, checkpoint_.file_path(entry),
                                    ShapeText(entry.shape), ShapeText(piece.shape)));
    return nullptr;
  }
  if (!IsWeightType(entry.dtype, weight.use)) {
    const std::string& method = spec_.quantization.method;
    Problem(entry.name,
            fmt::format("\"{}\" in {} is {}; it must be bf16, f16 or f32: {}", entry.name,
                        checkpoint_.file_path(entry), braid::NameOf(entry.dtype),
                        method.empty() ? "config.json names no quantization"
                                       : "no format of the method " + method + " stores it so"));
    return nullptr;
  }
  return &Store(piece, {.parts = {&entry}, .dtype = entry.dtype});
}

// Whether config.json says that the module is not quantised; false after a problem with its list.
bool Binder::Ignored(const std::string& module) {
  if (ignore_steps_left_ < 0) return false;
  ignore_steps_left_ += kIgnoreStepsPerModule;
  const bool ignored = IsIgnored(spec_.quantization, module, ignore_steps_left_);
  if (ignore_steps_left_ >= 0) return ignored;
  Problem(
      "quantization_config",
      fmt::format("comparing config.json's list of modules that are not quantised, of {} "
                  "entries, with the names of modules takes more than {} steps and {} for each "
                  "module (it came to \"{}\"); the list must have fewer entries or simpler "
                  "patterns",
                  spec_.quantization.ignored.size(), kIgnoreSteps, kIgnoreStepsPerModule, module));
  return false;
}

const StoredWeight* Binder::TakeParts(const Piece& piece, const std::string& name,
                                      const Candidate& candidate) {
  const StorageFormat& format = *candidate.format;
  StoredWeight stored{.format = &format};
  bool complete = true;
  for (size_t i = 0; i < format.parts.size(); ++i) {
    const std::string part = PartName(format, name, format.parts[i].suffix);
    stored.parts[i] = checkpoint_.Find(part);
    if (stored.parts[i]) {
      claimed_.insert(stored.parts[i]);
    } else if (!format.parts[i].optional) {
      Missing(part, {});
      complete = false;
    }
  }
  if (!complete) return nullptr;
  constexpr std::string_view kWeight = ".weight";
  const std::string module = name.substr(0, name.size() - (name.ends_with(kWeight) ? 7 : 0));
  if (Ignored(module)) {
    Problem(name, fmt::format("\"{}\" is stored as {} although config.json lists \"{}\" among the "
                              "modules that are not quantised",
                              candidate.tensor->name, format.name, module));
    return nullptr;
  }
  StoredWeight& kept = Store(piece, std::move(stored));
  if (std::string problem = format.problem(kept); !problem.empty()) {
    Problem(name, fmt::format("{} ({}, in {})", problem, format.name,
                              checkpoint_.file_path(*candidate.tensor)));
    return nullptr;
  }
  kept.dtype = format.holds_all ? format.holds_all(kept) : DType::kF32;
  kept.order = OrderOfGroups(kept);
  kept.kept = KeptBy(kept);
  return &kept;
}

// The stored tensor of the piece, if it exists and is valid.
const StoredWeight* Binder::Take(const WeightSpec& weight, const Piece& piece) {
  const std::string name = NameOf(piece);
  const std::vector<Candidate> candidates = Candidates(name, weight.use);
  if (candidates.empty()) {
    Missing(name, piece.shape);
    return nullptr;
  }
  const Candidate& candidate = candidates.front();
  const auto [known, first] = stored_.emplace(candidate.tensor, nullptr);
  if (!first) return known->second;
  for (const Candidate& c : candidates) claimed_.insert(c.tensor);
  if (candidates.size() > 1) {
    Problem(name,
            fmt::format("\"{}\" and \"{}\" are two forms of one weight; only one may be present",
                        candidate.tensor->name, candidates[1].tensor->name));
  } else {
    known->second = candidate.format ? TakeParts(piece, name, candidate)
                                     : TakePlain(weight, piece, *candidate.tensor);
  }
  return known->second;
}

// Plain parts of one weight have one type. A quantised part among them makes it fp32, or bf16 if
// that holds them all.
void Binder::CheckOneType(const StoredWeight& first, const StoredWeight& other) {
  if (first.format || other.format || first.dtype == other.dtype) return;
  Problem(other.main().name,
          fmt::format("\"{}\" is {} and \"{}\" is {}; they form one weight and must have one type",
                      first.main().name, braid::NameOf(first.dtype), other.main().name,
                      braid::NameOf(other.dtype)));
}

void AppendRuns(const WeightSpec& weight, const Piece& piece, const StoredWeight& stored,
                BoundWeight& bound) {
  const int64_t row = piece.shape.back();
  CHECK(weight.use == WeightUse::kVector || row == (weight.transpose ? weight.n : weight.k), "{}",
        weight.name);
  int64_t at = bound.runs.empty() ? 0 : bound.runs.back().at + bound.runs.back().count;
  if (piece.rows.empty()) {
    bound.runs.push_back({&stored, 0, at, stored.elements()});
    return;
  }
  for (const RowRange& rows : piece.rows) {
    CHECK(rows.begin >= 0 && (rows.begin + rows.count) * row <= stored.elements(), "{}",
          weight.name);
    bound.runs.push_back({&stored, rows.begin * row, at, rows.count * row});
    at += rows.count * row;
  }
}

// f(element) for a row of each part of every matrix: all rows of a part have one order of columns.
template <class F>
bool AnyPart(const BoundWeight& bound, const F& f) {
  const int64_t matrix = bound.spec.n * bound.spec.k;
  for (const SourceRun& run : bound.runs) {
    for (int64_t at = run.at; at < run.at + run.count; at = (at / matrix + 1) * matrix) {
      if (f(at)) return true;
    }
  }
  return false;
}

bool HasOrder(const BoundWeight& bound) {
  return AnyPart(bound, [&](int64_t at) { return !bound.OrderAt(at).empty(); });
}

// Whether rows that meet the same activations have one order of columns: those of an expert, or all
// of the weight. GPTQ takes the order from the activations, so files have it so.
bool OrdersAgree(const BoundWeight& bound) {
  const WeightSpec& spec = bound.spec;
  const bool by_expert = spec.units.size() == 1 && spec.units[0].unit == ShardUnit::kExpert;
  const int64_t together = (by_expert ? spec.units[0].rows : spec.count * spec.n) * spec.k;
  return !AnyPart(bound, [&](int64_t at) {
    return !std::ranges::equal(bound.OrderAt(at), bound.OrderAt(at / together * together));
  });
}

// The quantised format that holds the codes of every part of the weight, if the weight may have it.
std::optional<ops::WeightFormat> KeptFormat(const BoundWeight& bound) {
  const WeightSpec& spec = bound.spec;
  if (spec.use == WeightUse::kVector || spec.transpose || !MayQuantise(spec)) return {};
  std::optional<ops::WeightFormat> format;
  for (const SourceRun& run : bound.runs) {
    const StoredWeight& stored = *run.stored;
    const KeptCodes* kept = stored.kept;
    if (!kept || stored.k != spec.k || run.first % spec.k != 0) return {};
    format = ops::HolderOf(format.value_or(kept->format), kept->format);
    if (!format) return {};
  }
  return format;
}

BoundWeight Binder::Bind(WeightEntry entry) {
  BoundWeight bound{.weight = entry.weight, .spec = std::move(entry.spec)};
  const WeightSpec& weight = bound.spec;
  const std::vector<Piece>* source = ChooseSource(weight);
  if (source == nullptr) return bound;
  const StoredWeight* first = nullptr;
  bool complete = true;
  for (const Piece& piece : *source) {
    const StoredWeight* stored = Take(weight, piece);
    if (stored == nullptr) {
      complete = false;
      continue;
    }
    if (first == nullptr) {
      first = stored;
      bound.dtype = stored->dtype;
    }
    CheckOneType(*first, *stored);
    if (stored->dtype != bound.dtype) bound.dtype = DType::kF32;
    AppendRuns(weight, piece, *stored, bound);
  }
  if (!complete) return bound;
  CHECK(bound.runs.back().at + bound.runs.back().count == weight.count * weight.n * weight.k,
        "the pieces of {} do not add up", weight.name);
  const std::optional<ops::WeightFormat> kept = KeptFormat(bound);
  const bool ordered = kept && HasOrder(bound);
  if (kept && (!ordered || (!choice_.inputs_in_order && OrdersAgree(bound)))) {
    bound.stored_as = *kept;
    bound.ordered = ordered;
  } else {
    bound.stored_as = ops::FormatFor(bound.dtype);
  }
  return bound;
}

// Tensors that no weight claimed: skipped by prefix, or unknown. The draft head's weights are
// already bound.
void Binder::Leftovers() {
  struct Sum {
    int64_t tensors = 0;
    int64_t bytes = 0;
  };
  std::map<std::string, Sum> skipped;
  Sum draft, scales;
  for (const auto& [name, entry] : checkpoint_.tensors()) {
    if (claimed_.contains(&entry)) {
      if (spec_.draft && name.starts_with(spec_.draft->prefix)) {
        ++draft.tensors;
        draft.bytes += entry.bytes;
      }
      continue;
    }
    if (!spec_.quantization.method.empty() && IsActivationScale(name)) {
      ++scales.tensors;
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
  LoadReport& report = binding_.report;
  report.skipped = checkpoint_.left_out();
  for (const auto& [prefix, sum] : skipped) {
    report.skipped.push_back(fmt::format("{}*: {} tensors, {} (not part of the text model)", prefix,
                                         sum.tensors, ByteText(sum.bytes)));
  }
  if (scales.tensors > 0) {
    report.notes.push_back(
        fmt::format("{} scales of activations and caches: not used, because neither is quantised",
                    scales.tensors));
  }
  if (draft.tensors > 0) {
    const char* use = spec_.draft->used     ? ""
                      : HasDraftHead(spec_) ? ", loaded where --draft uses it"
                                            : ", not used: it has several layers";
    report.draft.push_back(fmt::format("{}*: {} tensors, {} (draft head{})", spec_.draft->prefix,
                                       draft.tensors, ByteText(draft.bytes), use));
  }
}

Status Binder::Finish() const {
  std::vector<std::string> lines = problems_;
  for (const std::string& name : missing_) {
    if (lines.size() >= kProblemsMax) break;
    const std::vector<int64_t>& shape = missing_shapes_.at(name);
    lines.push_back(fmt::format("\"{}\"{} is missing{}", name,
                                shape.empty() ? "" : " " + ShapeText(shape),
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

// A tensor may be quantised if every weight that uses its rows may be, row by row.
void MarkQuantisable(Binding& binding) {
  std::unordered_map<const StoredWeight*, bool> allowed, head;
  for (const BoundWeight& bound : binding.weights) {
    const WeightSpec& spec = bound.spec;
    const bool may = spec.use == WeightUse::kMatrix && !spec.transpose && MayQuantise(spec);
    for (const SourceRun& run : bound.runs) {
      const bool fits = may && run.stored->k == spec.k;
      const auto [at, first] = allowed.emplace(run.stored, fits);
      if (!first) at->second = at->second && fits;
      head[run.stored] |= spec.quantisable == Quantisable::kHead;
    }
  }
  for (StoredWeight& stored : binding.stored) {
    const auto at = allowed.find(&stored);
    stored.quantisable = at != allowed.end() && at->second;
    stored.head = head[&stored];
  }
}

}  // namespace

const SourceRun& BoundWeight::RunAt(int64_t element) const {
  return *std::prev(std::ranges::upper_bound(runs, element, {}, &SourceRun::at));
}

const std::byte* BoundWeight::Direct(int64_t first, int64_t count) const {
  const SourceRun& run = RunAt(first);
  const StoredWeight& stored = *run.stored;
  const int64_t inside = first - run.at;
  if (stored.format || stored.dtype != dtype || inside + count > run.count) return nullptr;
  return stored.main().data + (run.first + inside) * SizeOf(dtype);
}

void BoundWeight::CodedRow(int64_t first, std::byte* codes, std::byte* scales) const {
  const SourceRun& run = RunAt(first);
  const StoredWeight& stored = *run.stored;
  const KeptCodes& kept = *stored.kept;
  const int64_t row = (run.first + first - run.at) / stored.k;
  if (kept.format == stored_as) return kept.row(stored, row, codes, scales);
  const ops::WeightFormatRow& format = ops::RowOf(kept.format);
  std::vector<std::byte> own(static_cast<size_t>(format.CodeBytes(stored.k))),
      own_scales(static_cast<size_t>(format.ScaleBytes(stored.k)));
  kept.row(stored, row, own.data(), own_scales.data());
  ops::WidenRow({kept.format, own.data(), own_scales.data()}, {stored_as, codes, scales}, stored.k);
}

std::span<const uint16_t> BoundWeight::OrderAt(int64_t first) const {
  const SourceRun& run = RunAt(first);
  return OrderOf(*run.stored, (run.first + first - run.at) / run.stored->k);
}

void BoundWeight::Read(int64_t first, int64_t count, std::byte* out) const {
  while (count > 0) {
    const SourceRun& run = RunAt(first);
    const int64_t inside = first - run.at, part = std::min(count, run.count - inside);
    run.stored->Read(run.first + inside, part, dtype, out);
    out += part * SizeOf(dtype);
    first += part;
    count -= part;
  }
}

WeightStorage StorageOf(const BoundWeight& bound) {
  const bool vector = bound.spec.use == WeightUse::kVector;
  WeightStorage storage{.name = bound.spec.name,
                        .part = bound.spec.part,
                        .runs_as = vector ? ops::WeightFormat::kF32 : bound.weight->matrix.format,
                        .packed_bytes = PackedBytes(bound.spec, *bound.weight)};
  std::vector<std::string_view> formats;
  for (const SourceRun& run : bound.runs) {
    const StoredWeight& stored = *run.stored;
    storage.stored_bytes +=
        static_cast<int64_t>(static_cast<double>(stored.bytes()) * static_cast<double>(run.count) /
                             static_cast<double>(stored.elements()));
    const std::string_view name = stored.format_name();
    if (std::ranges::count(formats, name) == 0) formats.push_back(name);
  }
  storage.stored_as = fmt::format("{}", fmt::join(formats, " and "));
  return storage;
}

Result<Binding> BindWeights(const ModelSpec& spec, const Checkpoint& checkpoint,
                            const WeightChoice& choice) {
  Binding binding{.checkpoint = &checkpoint,
                  .tied_head = spec.tied_head,
                  .model = std::make_unique<ModelWeights>()};
  Binder binder(spec, checkpoint, choice, binding);
  for (WeightEntry& entry : ListWeights(spec, *binding.model)) {
    if (spec.quantization.panels()) SourceFromPanels(entry.spec);
    binding.weights.push_back(binder.Bind(std::move(entry)));
  }
  if (spec.draft && !spec.draft->used) {
    for (WeightSpec& weight : DraftWeightsOf(spec)) {
      if (spec.quantization.panels()) SourceFromPanels(weight);
      binder.Bind({nullptr, std::move(weight)});
    }
  }
  binder.Leftovers();
  RETURN_IF_ERROR(binder.Finish());
  MarkQuantisable(binding);
  for (const BoundWeight& bound : binding.weights) {
    *bound.weight = LayoutOf(bound.spec, bound.stored_as, choice);
    ops::PackedMatrix& matrix = bound.weight->matrix;
    matrix.ordered = bound.ordered && matrix.format == bound.stored_as;
    binding.report.weights.push_back(StorageOf(bound));
  }
  return binding;
}

}  // namespace braid

// Models in GGUF files: their metadata becomes a config.json of the family, their tensors take the
// names, the order of rows and the values that the family's weights have. What the mapping does not
// know is refused. Pure.
#pragma once

#include <deque>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "model/checkpoint/checkpoint.h"
#include "model/checkpoint/gguf_file.h"
#include "model/spec.h"

namespace braid {

// The metadata of one architecture, "qwen35moe.block_count" by "block_count".
class GgufKeys {
 public:
  GgufKeys(const GgufFile& file, std::string architecture)
      : file_(file), prefix_(std::move(architecture) + ".") {}

  // Null when absent; the key counts as understood.
  json::value Value(std::string_view key);
  int64_t IntOr(std::string_view key, int64_t otherwise);
  double NumberOr(std::string_view key, double otherwise);
  // Copies the value to `config[name]` if the key is there.
  void Copy(std::string_view key, std::string_view name, json::object& config);
  // A key without effect here, whatever its value.
  void Ignore(std::string_view key) { Value(key); }
  const GgufTensor* Tensor(std::string_view name) const { return file_.Find(name); }
  // Keys of the architecture that no code read.
  Status Finish() const;

 private:
  const GgufFile& file_;
  std::string prefix_;
  std::set<std::string, std::less<>> used_;
};

// What every architecture says of a model in the same words: sizes of the model, its norms and its
// blocks, of which `drafts` are a draft head's.
json::object CommonGgufKeys(const ModelSpec& spec, int64_t drafts);
// Blocks of the draft head that MapDraftHead maps: 1 or 0.
int64_t DraftBlocks(const ModelSpec& spec);
// The error of a metadata function: no key says `what`.
Error NoGgufKeyFor(std::string_view what);
// The first layer of a kind; null if there is none.
template <class Kind>
const Kind* FirstMixer(const ModelSpec& spec) {
  for (const LayerSpec& layer : spec.layers) {
    if (const auto* mixer = std::get_if<Kind>(&layer.mixer)) return mixer;
  }
  return nullptr;
}
template <class Kind>
const Kind* FirstFfn(const ModelSpec& spec) {
  for (const LayerSpec& layer : spec.layers) {
    if (const auto* ffn = std::get_if<Kind>(&layer.ffn)) return ffn;
  }
  return nullptr;
}

// Rows of a tensor of the file.
struct GgufRows {
  std::string tensor;
  int64_t begin = 0;
  int64_t count = 0;
};

// What a mapping says of a weight, where there is no file.
struct GgufWanted {
  std::string name;  // the model's
  std::string tensor;
  std::vector<GgufRows> rows;   // in place of `tensor`
  std::vector<int64_t> stored;  // the shape of its tensors; empty: see StoredAs
  std::vector<GgufView::Columns> columns;
  bool log_of_negative = false;
};

// Collects the tensors under the model's names. A tensor that the file lacks is left out: the
// loader says what is missing. Without a file it keeps what it is told, for files to be written.
class GgufNames {
 public:
  explicit GgufNames(const GgufFile& file) : file_(&file) {}
  GgufNames() = default;

  void Whole(const std::string& name, const std::string& tensor);
  // All of one element type and row length.
  void Rows(const std::string& name, std::vector<int64_t> shape, const std::vector<GgufRows>& rows);
  // Of the last tensor that was given a name.
  void Columns(std::vector<GgufView::Columns> columns);
  void LogOfNegative();
  // The shape that the tensors of the last name have in files: where nothing is said, that of the
  // weight for a whole tensor, and [rows, columns] for tensors named by rows.
  void StoredAs(std::vector<int64_t> shape);
  bool Has(std::string_view tensor) const { return !file_ || file_->Find(tensor) != nullptr; }
  // Tensors that no weight needs, with a line about them in left_out.
  void LeaveOut(std::string_view prefix, std::string_view what);
  // Tensors of the file that no code named.
  Status Finish() const;

  std::deque<GgufView> views;
  std::map<std::string, TensorEntry, std::less<>> tensors;
  std::vector<std::string> left_out;
  std::vector<GgufWanted> wanted;  // without a file

 private:
  void Problem(std::string text) { problems_.push_back(std::move(text)); }

  const GgufFile* file_ = nullptr;
  std::set<std::string, std::less<>> used_;
  std::vector<std::string> problems_;
  GgufView* last_ = nullptr;
};

// The projections and norms of a layer of full attention, and of a dense feed-forward: from the
// layer `from` of the file to the layer `to` of the model.
void MapFullAttention(const std::string& to, const std::string& from, GgufNames& names);
void MapDense(const std::string& to, const std::string& from, GgufNames& names);

// The router and the experts of a mixture, under the module `to` of the model, from the layer
// `from` of the file: gate and up together, per expert gate first. In files they are one tensor in
// this order, or lie apart.
void MapExperts(const MoeFfn& moe, int64_t hidden, const std::string& to, const std::string& from,
                GgufNames& names);

// The draft head's own tensors, where its layer is block `index` of the file. True if the layer is
// left for the family to map; a head of several layers is left out.
bool MapDraftHead(const ModelSpec& spec, int64_t index, GgufNames& names);

}  // namespace braid

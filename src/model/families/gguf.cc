// Metadata and names, with what was not understood.
#include "model/families/gguf.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "base/quantities.h"

namespace braid {
namespace {

constexpr size_t kListedMax = 16;

Error Listed(const std::string& path, const std::string& what,
             const std::vector<std::string>& items) {
  const size_t shown = std::min(items.size(), kListedMax);
  std::string text =
      fmt::format("{}: {}: {}", path, what,
                  fmt::join(items.begin(), items.begin() + static_cast<int64_t>(shown), ", "));
  if (items.size() > shown) text += fmt::format(" and {} more", items.size() - shown);
  return {ErrorCode::kInvalid, std::move(text), items.front()};
}

}  // namespace

json::value GgufKeys::Value(std::string_view key) {
  const std::string full = prefix_ + std::string(key);
  used_.insert(full);
  const auto at = file_.metadata.find(full);
  return at == file_.metadata.end() ? json::value() : at->second;
}

int64_t GgufKeys::IntOr(std::string_view key, int64_t otherwise) {
  const json::value value = Value(key);
  boost::system::error_code ec;
  const auto number = value.is_number() ? value.to_number<int64_t>(ec) : otherwise;
  return ec ? otherwise : number;
}

double GgufKeys::NumberOr(std::string_view key, double otherwise) {
  const json::value value = Value(key);
  return value.is_number() ? value.to_number<double>() : otherwise;
}

void GgufKeys::Copy(std::string_view key, std::string_view name, json::object& config) {
  json::value value = Value(key);
  if (value.is_uint64() && value.get_uint64() <= INT64_MAX) {
    value = static_cast<int64_t>(value.get_uint64());
  }
  if (!value.is_null()) config[name] = std::move(value);
}

Status GgufKeys::Finish() const {
  std::vector<std::string> unknown;
  const std::string vision = prefix_ + "vision.";
  for (auto at = file_.metadata.lower_bound(prefix_);
       at != file_.metadata.end() && at->first.starts_with(prefix_); ++at) {
    if (!used_.contains(at->first) && !at->first.starts_with(vision)) {
      unknown.push_back(fmt::format("\"{}\" ({})", at->first, JsonExcerpt(at->second)));
    }
  }
  if (unknown.empty()) return {};
  return Listed(file_.path(), "keys that are not known and may change the mathematics", unknown);
}

json::object CommonGgufKeys(const ModelSpec& spec, int64_t drafts) {
  json::object keys = {{"block_count", static_cast<int64_t>(spec.layers.size()) + drafts},
                       {"context_length", spec.context_tokens_max},
                       {"embedding_length", spec.hidden},
                       {"vocab_size", spec.vocabulary},
                       {"attention.layer_norm_rms_epsilon", double{spec.norm.eps}}};
  if (const auto* dense = FirstFfn<DenseFfn>(spec)) keys["feed_forward_length"] = dense->width;
  if (const auto* moe = FirstFfn<MoeFfn>(spec)) {
    keys["expert_count"] = moe->experts;
    keys["expert_used_count"] = moe->top_k;
    keys["expert_feed_forward_length"] = moe->width;
  }
  return keys;
}

int64_t DraftBlocks(const ModelSpec& spec) {
  return spec.draft && spec.draft->declared && spec.draft->layers.size() == 1 ? 1 : 0;
}

Error NoGgufKeyFor(std::string_view what) {
  return {ErrorCode::kInvalid,
          fmt::format("GGUF files of this family have no key for {}; write another format", what),
          "format"};
}

void GgufNames::Whole(const std::string& name, const std::string& tensor) {
  if (file_ == nullptr) return wanted.push_back({.name = name, .tensor = tensor});
  const GgufTensor* found = file_->Find(tensor);
  if (found == nullptr) return;
  int64_t rows = 1;
  for (size_t i = 0; i + 1 < found->shape.size(); ++i) rows *= found->shape[i];
  Rows(name, found->shape, {{tensor, 0, rows}});
}

void GgufNames::Rows(const std::string& name, std::vector<int64_t> shape,
                     const std::vector<GgufRows>& rows) {
  if (file_ == nullptr) {
    return wanted.push_back({.name = name, .tensor = {}, .rows = rows});
  }
  GgufView view;
  TensorEntry entry{.name = name, .shape = std::move(shape)};
  last_ = nullptr;
  int64_t elements = 0;
  for (const GgufRows& part : rows) {
    const GgufTensor* tensor = file_->Find(part.tensor);
    if (tensor == nullptr) return;
    used_.insert(tensor->name);
    if (view.type == nullptr) {
      view.type = tensor->type;
      view.row_bytes = tensor->row_bytes();
      entry.data = tensor->data;
      entry.file = tensor->part;
    }
    if (view.type != tensor->type || view.row_bytes != tensor->row_bytes()) {
      return Problem(fmt::format("{} and {}, which form {}, have different types or rows",
                                 rows.front().tensor, part.tensor, name));
    }
    if (part.count < 0 || part.begin < 0 ||
        part.begin + part.count > tensor->bytes / view.row_bytes) {
      return Problem(fmt::format("{} has {} rows and {} needs rows {} to {}", part.tensor,
                                 tensor->bytes / view.row_bytes, name, part.begin,
                                 part.begin + part.count));
    }
    view.rows.push_back({tensor->data + part.begin * view.row_bytes, part.count});
    entry.bytes += part.count * view.row_bytes;
    elements += part.count * tensor->columns();
  }
  const int64_t wanted_elements =
      std::accumulate(entry.shape.begin(), entry.shape.end(), int64_t{1}, std::multiplies<>());
  if (elements != wanted_elements) {
    return Problem(fmt::format("the rows of {} have {} numbers and {} needs {}",
                               rows.front().tensor, elements, name, wanted_elements));
  }
  views.push_back(std::move(view));
  last_ = &views.back();
  entry.view = last_;
  tensors.emplace(name, std::move(entry));
}

void GgufNames::Columns(std::vector<GgufView::Columns> columns) {
  if (file_ == nullptr) wanted.back().columns = columns;
  if (last_) last_->columns = std::move(columns);
}

void GgufNames::LogOfNegative() {
  if (file_ == nullptr) wanted.back().log_of_negative = true;
  if (last_) last_->log_of_negative = true;
}

void GgufNames::StoredAs(std::vector<int64_t> shape) {
  if (file_ == nullptr) wanted.back().stored = std::move(shape);
}

void GgufNames::LeaveOut(std::string_view prefix, std::string_view what) {
  if (file_ == nullptr) return;
  int64_t count = 0, bytes = 0;
  for (const GgufTensor& tensor : file_->tensors) {
    if (!tensor.name.starts_with(prefix)) continue;
    used_.insert(tensor.name);
    ++count;
    bytes += tensor.bytes;
  }
  if (count == 0) return;
  left_out.push_back(
      fmt::format("{}*: {} tensors, {} ({}, not used)", prefix, count, ByteText(bytes), what));
}

Status GgufNames::Finish() const {
  if (!problems_.empty()) return Listed(file_->path(), "wrong tensors", problems_);
  std::vector<std::string> unknown;
  for (const GgufTensor& tensor : file_->tensors) {
    if (!used_.contains(tensor.name)) unknown.push_back(tensor.name);
  }
  if (unknown.empty()) return {};
  return Listed(file_->path(), "tensors that belong to no weight of the model", unknown);
}

void MapFullAttention(const std::string& to, const std::string& from, GgufNames& names) {
  for (const auto& [name, tensor] : {std::pair("q_proj", "attn_q"),
                                     {"k_proj", "attn_k"},
                                     {"v_proj", "attn_v"},
                                     {"o_proj", "attn_output"},
                                     {"q_norm", "attn_q_norm"},
                                     {"k_norm", "attn_k_norm"}}) {
    names.Whole(fmt::format("{}self_attn.{}.weight", to, name),
                fmt::format("{}{}.weight", from, tensor));
  }
}

void MapDense(const std::string& to, const std::string& from, GgufNames& names) {
  for (const char* part : {"gate", "up", "down"}) {
    names.Whole(fmt::format("{}mlp.{}_proj.weight", to, part),
                fmt::format("{}ffn_{}.weight", from, part));
  }
}

void MapExperts(const MoeFfn& moe, int64_t hidden, const std::string& to, const std::string& from,
                GgufNames& names) {
  const std::string gate = from + "ffn_gate_exps.weight", both = from + "ffn_gate_up_exps.weight";
  // Without a file every tensor is there: files are written with gate and up apart.
  if (names.Has(both) && !names.Has(gate)) {
    names.Whole(to + "experts.gate_up_proj", both);
  } else {
    std::vector<GgufRows> rows;
    for (int64_t e = 0; e < moe.experts; ++e) {
      rows.push_back({gate, e * moe.width, moe.width});
      rows.push_back({from + "ffn_up_exps.weight", e * moe.width, moe.width});
    }
    names.Rows(to + "experts.gate_up_proj", {moe.experts, int64_t{2} * moe.width, hidden}, rows);
    names.StoredAs({moe.experts, moe.width, hidden});
  }
  names.Whole(to + "experts.down_proj", from + "ffn_down_exps.weight");
  names.Whole(to + "gate.weight", from + "ffn_gate_inp.weight");
}

bool MapDraftHead(const ModelSpec& spec, int64_t index, GgufNames& names) {
  const std::string from = fmt::format("blk.{}.", index);
  if (!spec.draft || !spec.draft->declared) return false;
  if (const size_t layers = spec.draft->layers.size(); layers > 1) {
    for (size_t i = 0; i < layers; ++i) {
      names.LeaveOut(fmt::format("blk.{}.", static_cast<size_t>(index) + i),
                     fmt::format("layer {} of {} of a draft head", i + 1, layers));
    }
    return false;
  }
  const DraftSpec& draft = *spec.draft;
  const auto whole = [&](const std::string& name, const std::string& tensor) {
    names.Whole(fmt::format("{}{}.weight", draft.prefix, name), tensor + ".weight");
  };
  whole(draft.embedding_norm, from + "nextn.enorm");
  whole(draft.hidden_norm, from + "nextn.hnorm");
  whole(draft.projection, from + "nextn.eh_proj");
  // A head without a norm of its own has the model's.
  const std::string norm = from + "nextn.shared_head_norm";
  const bool own = names.Has(norm + ".weight") || !names.Has(from + "nextn.eh_proj.weight");
  whole(draft.final_norm, own ? norm : "output_norm");
  names.LeaveOut(from + "nextn.embed_tokens.", "the draft head's copy of the embedding");
  names.LeaveOut(from + "nextn.shared_head_head.", "the draft head's copy of the output head");
  return true;
}

}  // namespace braid

// Metadata in, a tokenizer.json out; how words are split is in families/word_splits.cc.
#include "text/tokens/gguf_text.h"

#include <fmt/format.h>

#include <set>
#include <string>
#include <string_view>

#include "text/tokens/word_split.h"

namespace braid {
namespace {

constexpr int64_t kControl = 3, kUserDefined = 4, kUnused = 5, kTypesMost = 6;

Error Bad(std::string_view key, std::string_view text) {
  return {ErrorCode::kInvalid, fmt::format("{} {}", key, text), std::string(key)};
}

const json::value* FindKey(const json::object& metadata, std::string_view key) {
  const json::value* value = metadata.if_contains(key);
  return value && value->is_null() ? nullptr : value;
}

Result<const json::array*> List(const json::object& metadata, std::string_view key) {
  const json::value* value = FindKey(metadata, key);
  if (value && value->is_array()) return &value->get_array();
  return Bad(key, value ? "is not a list" : "is missing");
}

Result<std::string_view> Name(const json::object& metadata, std::string_view key) {
  const json::value* value = FindKey(metadata, key);
  if (value && value->is_string()) return std::string_view(value->get_string());
  return Bad(key, value ? "is not a text" : "is missing");
}

// The id under a key; nothing when it is absent.
Result<std::optional<TokenId>> Id(const json::object& metadata, std::string_view key,
                                  size_t tokens) {
  const json::value* value = FindKey(metadata, key);
  if (value == nullptr) return std::optional<TokenId>();
  boost::system::error_code ec;
  const auto id = value->is_number() ? value->to_number<int64_t>(ec) : -1;
  if (ec || id < 0 || id >= static_cast<int64_t>(tokens)) {
    return Bad(key, fmt::format("is {}, expected an id below {}", JsonExcerpt(*value), tokens));
  }
  return std::optional<TokenId>(static_cast<TokenId>(id));
}

json::value PreTokenizer(const WordSplit& split) {
  json::array steps;
  for (const std::string_view pattern : split.patterns) {
    if (pattern.empty()) continue;
    steps.push_back({{"type", "Split"},
                     {"pattern", {{"Regex", pattern}}},
                     {"behavior", "Isolated"},
                     {"invert", false}});
  }
  steps.push_back({{"type", "ByteLevel"},
                   {"add_prefix_space", false},
                   {"trim_offsets", true},
                   {"use_regex", false}});
  return {{"type", "Sequence"}, {"pretokenizers", std::move(steps)}};
}

// Text begins with the token where the file asks for it.
json::value PostProcessor(std::string_view token, TokenId id) {
  const json::value begin = {{"SpecialToken", {{"id", token}, {"type_id", 0}}}};
  const auto sequence = [](std::string_view name, int type) {
    return json::value{{"Sequence", {{"id", name}, {"type_id", type}}}};
  };
  json::object tokens;
  tokens[token] = {{"id", token}, {"ids", json::array{id}}, {"tokens", json::array{token}}};
  return {{"type", "TemplateProcessing"},
          {"single", json::array{begin, sequence("A", 0)}},
          {"pair", json::array{begin, sequence("A", 0), sequence("B", 1)}},
          {"special_tokens", std::move(tokens)}};
}

// model.vocab and added_tokens.
Status ReadTokens(const json::object& metadata, json::object& vocabulary, json::array& added) {
  ASSIGN_OR_RETURN(const json::array* tokens, List(metadata, "tokenizer.ggml.tokens"));
  ASSIGN_OR_RETURN(const json::array* types, List(metadata, "tokenizer.ggml.token_type"));
  if (types->size() != tokens->size()) {
    return Bad("tokenizer.ggml.token_type", fmt::format("has {} items and there are {} tokens",
                                                        types->size(), tokens->size()));
  }
  for (size_t i = 0; i < tokens->size(); ++i) {
    const json::string* token = (*tokens)[i].if_string();
    boost::system::error_code ec;
    const auto type = (*types)[i].is_number() ? (*types)[i].to_number<int64_t>(ec) : 0;
    if (token == nullptr || ec || type < 1 || type > kTypesMost) {
      return Bad("tokenizer.ggml.tokens", fmt::format("has an item {} of the wrong type", i));
    }
    if (type == kUnused) continue;
    if (!vocabulary.emplace(*token, i).second) {
      return Bad("tokenizer.ggml.tokens", fmt::format("has {} twice", JsonExcerpt((*tokens)[i])));
    }
    if (type != kControl && type != kUserDefined) continue;
    added.push_back({{"id", i},
                     {"content", *token},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", type == kControl}});
  }
  return {};
}

Result<const WordSplit*> WordSplitOf(const json::object& metadata) {
  constexpr std::string_view kKey = "tokenizer.ggml.pre";
  ASSIGN_OR_RETURN(const std::string_view name, Name(metadata, kKey));
  std::vector<std::string_view> known;
  for (const WordSplit& split : WordSplits()) {
    if (split.name == name) return &split;
    known.push_back(split.name);
  }
  return Bad(kKey, fmt::format("is \"{}\"; known are {}", name, fmt::join(known, ", ")));
}

Result<std::string> TokenizerJson(const json::object& metadata) {
  ASSIGN_OR_RETURN(const std::string_view model, Name(metadata, "tokenizer.ggml.model"));
  if (model != "gpt2") {
    return Bad("tokenizer.ggml.model", fmt::format("is \"{}\"; known is gpt2", model));
  }
  ASSIGN_OR_RETURN(const WordSplit* split, WordSplitOf(metadata));
  ASSIGN_OR_RETURN(const json::array* merges, List(metadata, "tokenizer.ggml.merges"));
  json::object vocabulary;
  json::array added;
  RETURN_IF_ERROR(ReadTokens(metadata, vocabulary, added));
  json::object file = {{"version", "1.0"},
                       {"truncation", nullptr},
                       {"padding", nullptr},
                       {"normalizer", nullptr},
                       {"added_tokens", std::move(added)},
                       {"pre_tokenizer", PreTokenizer(*split)},
                       {"post_processor", nullptr},
                       {"decoder",
                        {{"type", "ByteLevel"},
                         {"add_prefix_space", false},
                         {"trim_offsets", true},
                         {"use_regex", false}}}};
  if (split->compose) file["normalizer"] = {{"type", "NFC"}};
  const json::value* add = FindKey(metadata, "tokenizer.ggml.add_bos_token");
  ASSIGN_OR_RETURN(const std::optional<TokenId> bos,
                   Id(metadata, "tokenizer.ggml.bos_token_id",
                      metadata.at("tokenizer.ggml.tokens").get_array().size()));
  if (add && *add == json::value(true) && bos) {
    const auto at = static_cast<size_t>(*bos);
    file["post_processor"] =
        PostProcessor(metadata.at("tokenizer.ggml.tokens").get_array()[at].get_string(), *bos);
  }
  file["model"] = {{"type", "BPE"},
                   {"dropout", nullptr},
                   {"unk_token", nullptr},
                   {"continuing_subword_prefix", nullptr},
                   {"end_of_word_suffix", nullptr},
                   {"fuse_unk", false},
                   {"byte_fallback", false},
                   {"ignore_merges", split->whole_words},
                   {"vocab", std::move(vocabulary)},
                   {"merges", *merges}};
  return json::serialize(file);
}

// The texts of special tokens for the template.
Result<json::object> SpecialTexts(const json::object& metadata, const json::array& tokens) {
  json::object special;
  for (const char* name : {"bos", "eos", "padding", "unknown"}) {
    ASSIGN_OR_RETURN(const std::optional<TokenId> id,
                     Id(metadata, fmt::format("tokenizer.ggml.{}_token_id", name), tokens.size()));
    const std::string_view key = std::string_view(name) == "padding" ? "pad" : name;
    if (id) special[fmt::format("{}_token", key)] = tokens[static_cast<size_t>(*id)];
  }
  return special;
}

}  // namespace

Result<std::optional<GgufText>> ReadGgufText(const json::object& metadata) {
  const json::value* model = FindKey(metadata, "tokenizer.ggml.model");
  if (!model || *model == "none") return std::optional<GgufText>();
  ASSIGN_OR_RETURN(const std::string text, TokenizerJson(metadata));
  ASSIGN_OR_RETURN(Tokenizer tokenizer, Tokenizer::FromJson(text));
  const json::array& tokens = metadata.at("tokenizer.ggml.tokens").get_array();
  std::set<TokenId> eos;
  for (const char* name : {"eos", "eot", "eom"}) {
    ASSIGN_OR_RETURN(const std::optional<TokenId> id,
                     Id(metadata, fmt::format("tokenizer.ggml.{}_token_id", name), tokens.size()));
    if (id) eos.insert(*id);
  }
  // Files name one or two end tokens. These texts end an answer in every vocabulary that has them
  // as control tokens.
  for (const char* token : {"<|im_end|>", "<|endoftext|>", "<|eot_id|>", "[EOS]", "[EOT]"}) {
    const std::optional<TokenId> id = tokenizer.TokenToId(token);
    if (id && tokenizer.IsSpecial(*id)) eos.insert(*id);
  }
  GgufText read{.tokenizer = std::move(tokenizer), .eos = {eos.begin(), eos.end()}};
  if (FindKey(metadata, "tokenizer.chat_template")) {
    ASSIGN_OR_RETURN(const std::string_view source, Name(metadata, "tokenizer.chat_template"));
    ASSIGN_OR_RETURN(json::object special, SpecialTexts(metadata, tokens));
    ASSIGN_OR_RETURN(const WordSplit* split, WordSplitOf(metadata));
    ASSIGN_OR_RETURN(
        read.chat_template,
        ChatTemplate::FromSource(std::string(source), std::move(special), split->sorts_tools));
  }
  return std::optional<GgufText>(std::move(read));
}

}  // namespace braid

// Text to token ids and back, by the checkpoint's own tokenizer.json (Hugging Face `tokenizers`)
// or, where there is none, its tiktoken.model. Immutable after Load and safe to use from several
// threads at once. Every id has bytes (possibly none), so decoding is concatenation of bytes and
// then UTF-8 repair: each maximal invalid piece becomes one U+FFFD. Detokenizer does the same
// incrementally.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"

struct braid_text_buffer;
struct braid_text_tokenizer;

namespace braid {

// Texts longer than `slice_bytes` are encoded in slices, where the tokenizer allows that
// (rust/src/slices.rs); 0: never. They take no more working memory than one slice. The tokenizer
// remembers slices with their tokens, `kept_bytes` in all, for texts of the same tenant and salt:
// those of a conversation come again with each turn. The ids are those of the whole text.
struct LongTexts {
  std::string_view tenant = {}, salt = {};
  size_t slice_bytes = 8 << 10;
  size_t kept_bytes = 16 << 20;
};
struct LongTextStats {
  uint64_t found = 0, added = 0;  // slices
  size_t kept_bytes = 0;          // about
};

class Tokenizer {
 public:
  // Reads model_dir/tokenizer.json (at most 64 MiB, 2^20 tokens, 2^22 merges). A file that is cut
  // off, has merges of unknown parts, or uses a decoder that is not a concatenation of bytes is an
  // Error.
  static Result<Tokenizer> Load(const std::string& model_dir);
  // Whether there is a file to load from.
  static bool IsIn(const std::string& model_dir);
  static Result<Tokenizer> FromJson(std::string_view tokenizer_json);
  // tiktoken.model, and the tokenizer_config.json that names the class and the special tokens. A
  // class that splits text in a way that is not known is an Error.
  static Result<Tokenizer> FromTiktoken(std::string_view model, std::string_view config);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // `text` must be UTF-8. Special tokens written out in it ("<|im_end|>") become their ids.
  // `add_special_tokens` applies what tokenizer.json says to add around a text (often nothing).
  Result<std::vector<TokenId>> Encode(std::string_view text, bool add_special_tokens,
                                      const LongTexts& long_texts = {}) const;
  LongTextStats long_texts() const;

  // Valid UTF-8 for every id sequence. `skip_special` leaves out tokens marked special in the file;
  // `<think>` or `<tool_call>`, which are added but not special, stay.
  std::string Decode(std::span<const TokenId> ids, bool skip_special) const;

  // The raw bytes of one token, often not whole UTF-8. Empty for ids outside the vocabulary (the
  // padding rows of a model's embedding). The view lives as long as the tokenizer.
  std::string_view TokenBytes(TokenId id) const;

  // Highest id + 1. The model's logits may have more rows; the surplus must not be sampled.
  int32_t vocabulary_size() const;
  int32_t longest_token_bytes() const;
  bool IsSpecial(TokenId id) const;

  // By the token's name in the file: "<|im_end|>", "Ġthe".
  std::optional<TokenId> TokenToId(std::string_view token) const;
  // Of those that are one token each.
  std::vector<TokenId> TokensToIds(std::span<const std::string_view> tokens) const;

  // True if the first space of a decoded text is not part of it (SentencePiece-style decoders).
  bool strips_leading_space() const;

  // For the other files of this module.
  const braid_text_tokenizer* rust_handle() const;

 private:
  struct Vocabulary;
  explicit Tokenizer(std::unique_ptr<const Vocabulary> vocabulary);
  static Result<Tokenizer> LoadTiktoken(const std::string& model_dir);
  static Result<Tokenizer> Of(braid_text_tokenizer* loaded, braid_text_buffer* error);
  std::unique_ptr<const Vocabulary> vocabulary_;
};

}  // namespace braid

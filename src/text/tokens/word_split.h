// How a tokenizer cuts text into words before it merges tokens. GGUF files only name the way.
#pragma once

#include <array>
#include <span>
#include <string_view>

namespace braid {

struct WordSplit {
  std::string_view name;                          // tokenizer.ggml.pre
  bool compose = false;                           // Unicode's composed form first
  bool whole_words = false;                       // a word that is a token is not merged from parts
  bool sorts_tools = false;  // the tokenizer's class sorts the keys of tools for the template
  std::array<std::string_view, 3> patterns = {};  // one after the other; empty ones do not count
};

std::span<const WordSplit> WordSplits();

}  // namespace braid

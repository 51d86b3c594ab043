// A tiktoken.model and its tokenizer_config.json, with a zero byte between: what loads encodes and
// decodes any text.
#include "base/check.h"
#include "text/tokens/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace braid;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t cut = input.find('\0');
  const bool whole = cut == std::string_view::npos;
  const Result<Tokenizer> tokenizer = Tokenizer::FromTiktoken(
      input.substr(0, cut),
      whole ? R"({"tokenizer_class": "TikTokenTokenizer"})" : input.substr(cut + 1));
  if (!tokenizer) {
    CHECK(!tokenizer.error().message.empty());
    return 0;
  }
  const std::string text = "Hello, wörld 12 \n\t<x>中文";
  const Result<std::vector<TokenId>> ids = tokenizer->Encode(text, false);
  CHECK(ids && tokenizer->Decode(*ids, false) == text);
  return 0;
}

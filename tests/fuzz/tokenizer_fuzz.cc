// A tokenizer.json: one that loads keeps what the rest of the engine relies on.
#include "base/check.h"
#include "text/tokens/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace braid;
  const Result<Tokenizer> tokenizer =
      Tokenizer::FromJson({reinterpret_cast<const char*>(data), size});
  if (!tokenizer) {
    CHECK(!tokenizer.error().message.empty());
    return 0;
  }
  const int32_t vocabulary = tokenizer->vocabulary_size();
  CHECK(vocabulary >= 0 && vocabulary <= 1 << 20);
  const Result<std::vector<TokenId>> ids = tokenizer->Encode("Hello, wörld 12 \n\t<x>", false);
  if (!ids) return 0;
  for (const TokenId id : *ids) CHECK(id >= 0 && id < vocabulary);
  (void)tokenizer->Decode(*ids, true);
  CHECK(tokenizer->TokenBytes(vocabulary).empty());
  return 0;
}

// Keeps only the unfinished end of the bytes so far: at most three.
#include "text/tokens/detokenizer.h"

#include <algorithm>
#include <utility>

#include "text/tokens/utf8.h"

namespace braid {

std::string Detokenizer::Push(TokenId id) {
  if (skip_special_ && tokenizer_->IsSpecial(id) &&
      std::find(kept_.begin(), kept_.end(), id) == kept_.end()) {
    return {};
  }
  std::string_view bytes = tokenizer_->TokenBytes(id);
  if (strip_space_ && !bytes.empty()) {
    strip_space_ = false;
    if (bytes.starts_with(' ')) bytes.remove_prefix(1);
  }
  pending_ += bytes;
  std::string text;
  pending_.erase(0, AppendRepairedUtf8(pending_, &text));
  return text;
}

std::string Detokenizer::Flush() {
  const bool unfinished = !pending_.empty();
  pending_.clear();
  return unfinished ? std::string(kReplacementCharacter) : std::string();
}

}  // namespace braid

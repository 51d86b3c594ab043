// Groups the events of one answer into consecutive blocks: thinking, text, a tool call. Shared by
// the APIs that answer in blocks.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "text/answer/answer_event.h"

namespace braid {

struct AnswerBlock {
  enum class Kind : uint8_t { kThought, kText, kCall };
  Kind kind = Kind::kText;
  std::string text;  // what it says; of calls: the arguments
  std::string name;  // of calls: the tool
  std::string id;    // of calls: the model's own; may be empty
  int32_t call = -1;
  bool whole = true;  // false: it was cut off
};

class AnswerBlocks {
 public:
  struct Sink {
    std::function<void(const AnswerBlock&, size_t index)> open = nullptr;
    std::function<void(const AnswerBlock&, size_t index, const std::string& piece)> piece = nullptr;
    std::function<void(const AnswerBlock&, size_t index)> close = nullptr;
  };

  // Reports changes of blocks to the sink, in order.
  void Add(const AnswerEvents& events, const Sink& sink);
  // The answer has ended: closes the block that is open, which is cut off unless the answer is
  // `whole`.
  void End(const Sink& sink, bool whole = true);

  const std::vector<AnswerBlock>& blocks() const { return blocks_; }

 private:
  void Open(AnswerBlock block, const Sink& sink);

  std::vector<AnswerBlock> blocks_;
  bool open_ = false;  // the last one is
};

}  // namespace braid

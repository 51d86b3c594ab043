// What a draft head proposes, computed the slow way: a sequence alone, token by token, every entry
// of the head's cache made when its token comes, every guess from the state before it. One thread.
#pragma once

#include <map>
#include <vector>

#include "model/decoder.h"
#include "model/draft_head.h"
#include "runtime/sampler.h"
#include "scheduler/request.h"

namespace braid {

class SlowHead {
 public:
  // The spec's draft head is used; `weights` are its.
  SlowHead(const ModelSpec& spec, ModelWeights weights, const Device& device, DType kv_dtype);

  // The drafts that may follow the first n tokens of a request's sequence, `most` at most, as
  // [n - prompt tokens], n from the prompt's length + 1 on.
  std::vector<std::vector<TokenId>> DraftsOf(const Request& request,
                                             const std::vector<TokenId>& output, int32_t most);

 private:
  void MakePages(int64_t tokens);
  ops::SequenceSpan SpanAt(int32_t position) const;
  // The state of the token at `position`, of the model or of the head behind `before`.
  void ModelState(TokenId token, int32_t position, Matrix state);
  void HeadState(TokenId token, int32_t position, Matrix before, Matrix state);

  const ModelSpec& spec_;
  ModelWeights weights_;
  CachePlan cache_;
  Decoder decoder_;
  DraftHead head_;
  Sampler sampler_;
  ThreadPool pool_;
  Workspace workspace_;
  ops::OpContext context_;
  std::vector<Buffer> pages_;
  std::vector<std::vector<std::byte*>> tables_;
};

}  // namespace braid

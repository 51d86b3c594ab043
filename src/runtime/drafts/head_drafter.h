// Drafts of the model's draft head (model/draft_head.h): the first of the model's own state, each
// further one of the head's state of the one before, all sequences together. Sampled requests get
// drafts that are sampled with the draws which the sampler will use at those positions. Engine
// thread.
//
// The head's cache has an entry for every token of every block that is complete, for whoever takes
// the block over; in the block in progress it may be behind. A slot keeps the model's states of the
// tokens that the head has not seen, so that a sequence whose drafts do not pay costs the head one
// pass in 64 tokens. Where another engine goes on behind a prompt, the block in progress is
// complete up to the prompt's end: with the entries, and the state of its last token so far.
//
// Ranks that divide the model make every pass together. The first of those that share tokens draws,
// and tells the others. Ranks whose experts others need too agree before each pass that there is
// one, and make it without tokens of their own.
//
// On a device the passes of a step, the chains' too, are one submission: each draft goes from the
// sampler to the next pass there. Only a prompt's passes that find no room are submitted before.
#pragma once

#include <vector>

#include "model/decoder.h"
#include "model/draft_head.h"
#include "ops/vulkan/sample.h"
#include "runtime/drafts/drafter.h"
#include "runtime/model_device.h"
#include "runtime/sampler.h"

namespace braid {

class HeadDrafter final : public Drafter {
 public:
  struct Parts {
    const ModelSpec& spec;
    const ModelWeights& weights;
    const CachePlan& cache;
    DType kv_dtype = DType::kF32;
    const Decoder& decoder;
    Sampler& sampler;
    int32_t slots = 0;
    int32_t pass_tokens_max = 0;  // of one pass of the head
    int32_t dp_ranks = 1;
    ModelDevice* home = nullptr;  // where the model lives, if not on the CPU
  };
  // What `parts` refers to outlives the drafter.
  explicit HeadDrafter(const Parts& parts);

  void Reset(SlotId id) override;
  void Propose(const DraftStep& step) override;
  // What decides how much memory Propose needs.
  struct Sizes {
    const DraftHead& head;
    const Decoder& decoder;
    const ModelSpec& spec;
    int32_t slots = 0;
    int32_t pass_tokens_max = 0;
  };
  // Takes from a measuring workspace what Propose needs at most.
  static void Measure(const ops::OpContext& context, const Sizes& sizes);
  void Measure(const ops::OpContext& context) const;

  // Bytes beside the workspace.
  static int64_t Bytes(const ModelSpec& spec, const CachePlan& cache, int32_t slots);

 private:
  struct Progress {
    int32_t entries = -1;     // tokens [0, entries) have theirs; -1: as many as the first row finds
    float* states = nullptr;  // [kBlockTokens][hidden]: of position p at p % kBlockTokens, from
                              // entries - 1 on
    std::byte* spare = nullptr;  // the head's part of a block that the sequence does not have yet
  };
  // Entries of one row that a pass makes: [begin, end).
  struct Piece {
    size_t row;
    int32_t begin, end;
  };
  // A row that drafts.
  struct Chain {
    size_t row;
    int32_t count;
  };
  struct Lent {
    size_t row;
    int32_t position;
  };

  void Begin(const DraftStep& step, const DraftWish& row);
  void KeepBlockStates(const DraftStep& step, const DraftWish& row) const;
  void KeepBlockState(const DraftStep& step, const DraftWish& row, int32_t end) const;
  void PlanRow(const DraftStep& step, size_t row);
  void LendBlock(const DraftStep& step, size_t row, int32_t position);
  void PointTo(const DraftWish& row, int32_t position, std::byte* block) const;
  void MakeEntries(const DraftStep& step, Matrix last);
  void RunPass(const DraftStep& step, std::span<const Piece> pieces, Matrix last);
  const float* StateBefore(const DraftStep& step, const DraftWish& row, int32_t position) const;
  void KeepStates(const DraftStep& step, const DraftWish& row);
  void Guess(const DraftStep& step, Matrix last);
  // The same on a device (head_drafter_device.cc).
  void GuessThere(const DraftStep& step, Matrix last);
  void LayChains(const DraftStep& step);
  void RecordChains(const DraftStep& step, Matrix last);
  void TakeChains(const DraftStep& step);
  DevicePass LayPass(const DraftStep& step, std::span<const TokenId> tokens);
  void ForwardThere(const DraftStep& step, const DevicePass& pass, Matrix before,
                    Matrix states) const;
  void SampleDrafts(const DraftStep& step, Matrix last);
  void TakeStates(const DraftStep& step, const Piece& piece, Matrix to) const;
  int64_t RowBytes() const { return hidden_ * int64_t{sizeof(float)}; }
  void BeginPass();
  ops::SequenceIndex sequences() const;
  void Forward(const DraftStep& step, Matrix before, Matrix states);
  bool AnotherPass(const ops::OpContext& context, bool own);
  void TellDrafts(const ops::OpContext& context);
  void AddSpan(const DraftWish& row, int32_t begin, int32_t end);
  std::byte*& BlockOf(Slot& slot, int32_t position) const;

  const Parts parts_;
  const DraftHead head_;
  const int64_t hidden_;
  const size_t group_;  // of the head's cache
  Buffer memory_;       // of the CPU
  IdVector<SlotId, Progress> slots_;
  // Of the step at hand.
  std::vector<Piece> pieces_;
  std::vector<Chain> chains_;
  std::vector<size_t> going_;    // the chains that go on; of each the last state
  std::vector<Lent> lent_;       // entries of tables that name a spare block
  std::vector<TokenId> tokens_;  // of a pass
  std::vector<ops::SequenceSpan> spans_;
  std::vector<SlotId> span_slots_;
  std::vector<TokenId> drafts_;
  std::vector<ops::gpu::DeviceDraw> draws_;  // of all drafts, by depth
  std::vector<std::byte> go_on_;             // of the ranks that share experts
};

}  // namespace braid

// What the ranks of a mesh do together inside a step. Ranks divide weights by rows of their output,
// so products need the whole input: it is gathered, and no sum ever crosses ranks
// (docs/decisions/016-rank-views.md). The results have the bits of one rank, and on one rank
// (OpContext::ranks is null) every op is the plain one.
//
// The ranks of a group call the same ops in the same order. After an error nothing is exchanged any
// more and results are undefined; who runs the step asks Ranks::status at its end.
#pragma once

#include "base/ids.h"
#include "comm/communicator.h"
#include "ops/experts.h"
#include "ops/op.h"

namespace braid::ops {

// The groups that a rank belongs to, its own place in them included.
struct Ranks {
  Communicator* tensor = nullptr;   // share the work on every token
  Communicator* experts = nullptr;  // have a part of every layer's routed experts each
  Communicator* all = nullptr;      // every rank of the mesh
  Status status;                    // the first error of an exchange
  // How tokens come to the ranks that have their experts, the same for all of them; it changes no
  // bit. 0: as many as there are, which is said first. Otherwise in parcels of so many rows for
  // each rank, used or not, which saves a message; tokens that find no room come in a further one.
  int64_t parcel_rows = 0;
  // Each rank adds up what its experts give for a token and sends home the sum: fewer bytes, other
  // roundings (--reduce fast). Then every expert is in one slot only, or sums would depend on who
  // asks.
  bool sums = false;
};

// all = the columns that the ranks of the tensor group have, side by side, each PartOf the whole.
// With `root`, only that rank gets them.
inline constexpr int32_t kEveryRank = -1;
void GatherColumns(const OpContext& context, Matrix part, Matrix all, int32_t root = kEveryRank);

// all = the rows that the ranks of the tensor group have, each PartOf all. A rank's own are in
// their place.
void GatherRows(const OpContext& context, Matrix all);

// The rows of a matrix that this rank has in GatherRows.
Matrix OwnRows(const OpContext& context, Matrix all);

// y = x W^T. Ranks divide the columns of x and the rows of W.
struct DividedLinearArgs {
  Matrix x;                         // [rows, the rank's part of k]
  const PackedMatrix* w = nullptr;  // [the rank's part of n, k]
  Matrix y;                         // [rows, n]
};
void DividedLinear(const OpContext& context, const DividedLinearArgs& args);

// y = x W^T. Ranks divide the rows of W; y is whole on `root` only, on one rank everywhere.
struct DividedHeadArgs {
  Matrix x;                         // [rows, k], whole
  const PackedMatrix* w = nullptr;  // [the rank's part of n, k]
  Matrix y;                         // [rows, n]
  int32_t root = 0;
};
void DividedHead(const OpContext& context, const DividedHeadArgs& args);

// Rows of an embedding table that ranks divide.
struct DividedEmbedArgs {
  const PackedMatrix* table = nullptr;  // [the rank's part of the vocabulary, hidden]
  int64_t vocabulary = 0;               // of all ranks
  const TokenId* ids = nullptr;         // [out.rows], each in [0, vocabulary)
  Matrix out;                           // [tokens, hidden]
};
void DividedEmbed(const OpContext& context, const DividedEmbedArgs& args);

// Experts without a shared one (ops/experts.h), which the ranks of the experts group hold in slots,
// equally many each; several slots may hold the same expert. x, ids and weights are of the tokens
// whose sums this rank makes: each of their experts' rows comes back from the rank that has the
// expert, and they are added in the order of one rank. Ranks may have different numbers of tokens,
// and none.
struct DividedExpertsArgs {
  Matrix x;                               // [tokens, hidden]
  const PackedMatrix* gate_up = nullptr;  // of the experts in the rank's slots
  const PackedMatrix* down = nullptr;
  // [experts]: the slot to which this rank sends tokens, counted rank by rank; null: expert e is in
  // slot e.
  const int32_t* slot_of = nullptr;
  const int32_t* ids = nullptr;    // [tokens, top_k], ascending per token
  const float* weights = nullptr;  // [tokens, top_k]
  int32_t top_k = 0;
  float limit = 0.0f;
  Matrix out;                // [tokens, hidden]
  int64_t round_tokens = 0;  // sent at a time; 0: as many as take a few dozen MiB
};
void DividedExperts(const OpContext& context, const DividedExpertsArgs& args);

}  // namespace braid::ops

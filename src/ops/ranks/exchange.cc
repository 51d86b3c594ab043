// The exchanges between products. Rows of a matrix lie apart in memory, so parts are copied
// together before they are sent and apart after they have come.
#include <algorithm>
#include <bit>
#include <vector>

#include "base/math.h"
#include "ops/cpu/dispatch.h"
#include "ops/embed.h"
#include "ops/linear.h"
#include "ops/ranks.h"
#include "ops/ranks/sent_rows.h"

namespace braid::ops {
namespace {

// The ranks that divide weights, or null where one has them whole.
Communicator* Group(const OpContext& context) {
  Communicator* group = context.ranks == nullptr ? nullptr : context.ranks->tensor;
  return group == nullptr || group->size() == 1 ? nullptr : group;
}
Part PartOf(int64_t total, const Communicator& group) {
  return braid::PartOf(total, group.rank(), group.size());
}

bool Ready(const OpContext& context) {
  return !context.workspace->measuring() && context.ranks->status.ok();
}

void Copy(const OpContext& context, Matrix from, Matrix to) {
  if (from.data == to.data && from.stride == to.stride) return;
  constexpr int64_t kRowsPerTask = 32;
  const double moved = static_cast<double>(from.rows * from.cols);
  cpu::ForTasks(context, CeilDiv(from.rows, kRowsPerTask), moved, [&](int64_t task, int) {
    const int64_t end = std::min(from.rows, (task + 1) * kRowsPerTask);
    for (int64_t r = task * kRowsPerTask; r < end; ++r) {
      std::copy_n(from.row(r), from.cols, to.row(r));
    }
  });
}

MutableBytes BytesOf(float* data, int64_t floats) {
  return std::as_writable_bytes(std::span(data, static_cast<size_t>(floats)));
}

// What every rank has of `total` columns or rows of `size` floats each, one after the other.
std::vector<MutableBytes> Places(const Communicator& group, float* data, int64_t total,
                                 int64_t size) {
  std::vector<MutableBytes> places;
  for (int32_t rank = 0; rank < group.size(); ++rank) {
    const Part part = braid::PartOf(total, rank, group.size());
    places.push_back(BytesOf(data + part.begin * size, part.count * size));
  }
  return places;
}

// Of so many rows and more, codes travel, which takes a message for their largest magnitudes.
constexpr int64_t kCodedRowsLeast = 32;

// Where parts of a row lie on their way: rank by rank, each rank's rows one after the other.
struct SentParts {
  SentParts(const OpContext& context, const Communicator& group, const PackedMatrix& w) {
    for (int32_t rank = 0; rank < group.size(); ++rank) {
      columns.push_back(braid::PartOf(w.k, rank, group.size()));
      rows.emplace_back(context.device, w.format, columns.back().count);
      begins.push_back(floats);
      floats += rows.back().part_floats();
      scratch_bytes = std::max(scratch_bytes, RoundUp(rows.back().scratch_bytes(), 64));
    }
  }
  std::vector<Part> columns;
  std::vector<SentRows> rows;
  std::vector<int64_t> begins;  // of a rank's part, in floats of a row
  int64_t floats = 0, scratch_bytes = 0;
};

// largest[r] = of row r, whole, of which each rank has a part.
Status LargestOfRows(Communicator& group, Matrix part, float* largest, float* all) {
  for (int64_t r = 0; r < part.rows; ++r) largest[r] = SentRows::Largest(part.row(r), part.cols);
  RETURN_IF_ERROR(
      group.AllGather(BytesOf(largest, part.rows), BytesOf(all, part.rows * group.size())));
  const auto bits = [](float x) { return std::bit_cast<uint32_t>(x); };
  for (int64_t i = 0; i < part.rows * group.size(); ++i) {
    float& most = largest[i % part.rows];
    if (bits(all[i]) > bits(most)) most = all[i];
  }
  return {};
}

// all = the input of a product with w, of which each rank has some columns. They travel as the
// product reads them (ops/ranks/sent_rows.h).
void GatherInput(const OpContext& context, Matrix part, const PackedMatrix& w, Matrix all) {
  Communicator& group = *Group(context);
  const SentParts parts(context, group, w);
  const bool measuring = context.workspace->measuring();
  const bool codes = parts.rows[0].codes();
  const bool plain = !parts.rows[0].rounds() || (codes && all.rows < kCodedRowsLeast);
  if (plain || measuring) GatherColumns(context, part, all);
  if (plain && !measuring) return;
  WorkspaceScope scope(*context.workspace);
  Workspace& ws = *context.workspace;
  float* data = ws.Take<float>(all.rows * parts.floats);
  float* largest = ws.Take<float>(all.rows);
  float* largest_of_all = ws.Take<float>(all.rows * group.size());
  std::byte* scratch = ws.Take<std::byte>(context.pool->threads() * parts.scratch_bytes);
  if (!Ready(context) || all.rows == 0) return;
  Status& status = context.ranks->status;
  if (codes) status = LargestOfRows(group, part, largest, largest_of_all);
  if (!status.ok()) return;
  const auto here = static_cast<size_t>(group.rank());
  std::vector<MutableBytes> places;
  for (size_t rank = 0; rank < parts.rows.size(); ++rank) {
    places.push_back(
        BytesOf(data + all.rows * parts.begins[rank], all.rows * parts.rows[rank].part_floats()));
  }
  const auto place = [&](size_t rank, int64_t r) {
    return data + all.rows * parts.begins[rank] + r * parts.rows[rank].part_floats();
  };
  constexpr int64_t kRowsPerTask = 16;
  const auto for_rows = [&](const auto& f) {
    const double moved = static_cast<double>(all.rows * all.cols);
    cpu::ForTasks(context, CeilDiv(all.rows, kRowsPerTask), moved, [&](int64_t task, int member) {
      const int64_t end = std::min(all.rows, (task + 1) * kRowsPerTask);
      for (int64_t r = task * kRowsPerTask; r < end; ++r) f(r, member);
    });
  };
  for_rows([&](int64_t r, int member) {
    parts.rows[here].PackPart(part.row(r), codes ? largest[r] : 0.0f,
                              scratch + member * parts.scratch_bytes, place(here, r));
  });
  status = group.AllGatherV(places[here], places);
  if (!status.ok()) return;
  for_rows([&](int64_t r, int) {
    for (size_t rank = 0; rank < parts.rows.size(); ++rank) {
      parts.rows[rank].UnpackPart(place(rank, r), codes ? largest[r] : 0.0f,
                                  all.row(r) + parts.columns[rank].begin);
    }
  });
}

}  // namespace

void GatherColumns(const OpContext& context, Matrix part, Matrix all, int32_t root) {
  Communicator* group = Group(context);
  if (group == nullptr) return Copy(context, part, all);
  const Part own = PartOf(all.cols, *group);
  CHECK(part.cols == own.count && part.rows == all.rows, "{} of {} columns", part.cols, all.cols);
  WorkspaceScope scope(*context.workspace);
  float* data = context.workspace->Take<float>(all.rows * all.cols);
  if (!Ready(context) || all.rows == 0) return;
  const std::vector<MutableBytes> places = Places(*group, data, all.cols, all.rows);
  const auto block = [&](int32_t rank) {
    const Part columns = braid::PartOf(all.cols, rank, group->size());
    return Matrix{data + columns.begin * all.rows, all.rows, columns.count, columns.count};
  };
  const auto here = static_cast<size_t>(group->rank());
  Copy(context, part, block(group->rank()));
  const bool wanted = root == kEveryRank || root == group->rank();
  std::vector<Bytes> send(places.size());
  for (size_t rank = 0; rank < send.size(); ++rank) {
    if (root == kEveryRank || root == static_cast<int32_t>(rank)) send[rank] = places[here];
  }
  context.ranks->status =
      group->AllToAllV(send, wanted ? places : std::vector<MutableBytes>(places.size()));
  for (int32_t rank = 0; wanted && rank < group->size(); ++rank) {
    const Part columns = braid::PartOf(all.cols, rank, group->size());
    const Matrix to = all.columns(columns.begin, columns.count);
    if (rank != group->rank() || to.data != part.data) Copy(context, block(rank), to);
  }
}

Matrix OwnRows(const OpContext& context, Matrix all) {
  Communicator* group = Group(context);
  if (group == nullptr) return all;
  const Part own = PartOf(all.rows, *group);
  return all.some_rows(own.begin, own.count);
}

void GatherRows(const OpContext& context, Matrix all) {
  Communicator* group = Group(context);
  if (group == nullptr) return;
  WorkspaceScope scope(*context.workspace);
  const Matrix whole = {context.workspace->Take<float>(all.rows * all.cols), all.rows, all.cols,
                        all.cols};
  if (!Ready(context) || all.rows == 0) return;
  const Part own = PartOf(all.rows, *group);
  Copy(context, all.some_rows(own.begin, own.count), whole.some_rows(own.begin, own.count));
  const std::vector<MutableBytes> places = Places(*group, whole.data, all.rows, all.cols);
  context.ranks->status = group->AllGatherV(places[static_cast<size_t>(group->rank())], places);
  Copy(context, whole.first_rows(own.begin), all.first_rows(own.begin));
  const int64_t end = own.begin + own.count;
  Copy(context, whole.some_rows(end, all.rows - end), all.some_rows(end, all.rows - end));
}

void DividedLinear(const OpContext& context, const DividedLinearArgs& args) {
  Communicator* group = Group(context);
  if (group == nullptr) return Linear(context, {.x = args.x, .w = args.w, .y = args.y});
  WorkspaceScope scope(*context.workspace);
  const Matrix x = context.workspace->TakeMatrix(args.x.rows, args.w->k);
  const Part own = PartOf(args.y.cols, *group);
  const Matrix part = args.y.columns(own.begin, own.count);
  GatherInput(context, args.x, *args.w, x);
  Linear(context, {.x = x, .w = args.w, .y = part});
  GatherColumns(context, part, args.y);
}

void DividedHead(const OpContext& context, const DividedHeadArgs& args) {
  if (args.x.rows == 0) return;
  Communicator* group = Group(context);
  if (group == nullptr) return Linear(context, {.x = args.x, .w = args.w, .y = args.y});
  const Part own = PartOf(args.y.cols, *group);
  const Matrix part = args.y.columns(own.begin, own.count);
  Linear(context, {.x = args.x, .w = args.w, .y = part});
  GatherColumns(context, part, args.y, args.root);
}

void DividedEmbed(const OpContext& context, const DividedEmbedArgs& args) {
  Communicator* group = Group(context);
  if (group == nullptr) {
    return Embed(context, {.table = args.table, .ids = args.ids, .out = args.out});
  }
  WorkspaceScope scope(*context.workspace);
  const int64_t tokens = args.out.rows, hidden = args.out.cols;
  // Sorted by the rank that has them: where each token's row is, and the rank's own ids.
  int64_t* order = context.workspace->Take<int64_t>(tokens);
  TokenId* own_ids = context.workspace->Take<TokenId>(tokens);
  Matrix rows = {context.workspace->Take<float>(tokens * hidden), tokens, hidden, hidden};
  if (context.workspace->measuring()) {
    return Embed(context, {.table = args.table, .ids = own_ids, .out = rows});
  }
  if (!Ready(context) || tokens == 0) return;
  std::vector<MutableBytes> places;
  int64_t next = 0, own_begin = 0, own_count = 0;
  for (int32_t rank = 0; rank < group->size(); ++rank) {
    const Part part = braid::PartOf(args.vocabulary, rank, group->size());
    const int64_t begin = next;
    for (int64_t t = 0; t < tokens; ++t) {
      if (args.ids[t] < part.begin || args.ids[t] >= part.begin + part.count) continue;
      if (rank == group->rank()) {
        own_ids[own_count++] = static_cast<TokenId>(args.ids[t] - part.begin);
        own_begin = begin;
      }
      order[next++] = t;
    }
    places.push_back(BytesOf(rows.row(begin), (next - begin) * hidden));
  }
  CHECK(next == tokens, "a token is not in a vocabulary of {}", args.vocabulary);
  if (own_count > 0) {
    Embed(context,
          {.table = args.table, .ids = own_ids, .out = rows.some_rows(own_begin, own_count)});
  }
  context.ranks->status = group->AllGatherV(places[static_cast<size_t>(group->rank())], places);
  for (int64_t i = 0; i < tokens; ++i) std::copy_n(rows.row(i), hidden, args.out.row(order[i]));
}

}  // namespace braid::ops

// Mixtures of experts: on the device as a whole, or with the routed ones on the host, to which
// their inputs are handed over.
#include <algorithm>
#include <span>
#include <vector>

#include "ops/vulkan/candidates.h"
#include "ops/vulkan/handed_experts.h"
#include "ops/vulkan/kernels.h"

namespace braid::ops {
namespace gpu {
namespace {

// Tokens whose experts' rows are in scratch at once: as many as bring a piece's weights to use, in
// not much more scratch than this.
int64_t TokensAtOnce(const ExpertsArgs& a) {
  constexpr int64_t kBytes = int64_t{128} << 20;
  if (a.top_k == 0) return 2048;
  const int64_t bytes = 4 * a.top_k * (3 * a.down->k + a.out.cols);
  return std::clamp<int64_t>(kBytes / bytes, 128, 2048);
}
int64_t ExpertsOf(const ExpertsArgs& a) { return a.top_k > 0 ? a.down->count : 0; }

// Rows of a tile of one expert's tokens; 1: each row for itself, because experts have few.
int64_t HeightOf(const ExpertsArgs& a) {
  const int64_t pairs = a.x.rows * a.top_k, experts = ExpertsOf(a);
  if (pairs < 2 * experts) return 1;
  return pairs < 12 * experts ? 8 : pairs < 48 * experts ? 32 : 64;
}
int64_t MostTiles(const ExpertsArgs& a, int64_t height) {
  const int64_t pairs = a.x.rows * a.top_k;
  return std::min(pairs, pairs / height + ExpertsOf(a));
}

struct ExpertsScratch {
  ExpertsScratch(const ExpertsArgs& a, std::byte* memory) : next_(memory) {
    const int64_t tokens = std::min(a.x.rows, TokensAtOnce(a)), pairs = tokens * a.top_k;
    const int64_t shared = a.shared_down ? a.shared_down->k : 0;
    gate_up = Take(pairs, 2 * a.down->k);
    hidden = Take(pairs, a.down->k);
    rows = Take(pairs, a.out.cols);
    shared_gate_up = Take(tokens, 2 * shared);
    shared_hidden = Take(tokens, shared);
    shared_rows = Take(tokens, shared > 0 ? a.out.cols : 0);
    order = TakeInts(pairs);
    begins = TakeInts(ExpertsOf(a));
    tiles = TakeInts(1 + 3 * pairs);
    codes = next_;
    next_ += std::max(GemmScratch(tokens, *a.gate_up), GemmScratch(pairs, *a.down));
    shared_codes = next_;
    if (a.shared_down) {
      next_ +=
          std::max(GemmScratch(tokens, *a.shared_gate_up), GemmScratch(tokens, *a.shared_down));
    }
    bytes = next_ - memory;
  }
  Matrix gate_up, hidden, rows, shared_gate_up, shared_hidden, shared_rows;
  int32_t *order = nullptr, *begins = nullptr, *tiles = nullptr;
  std::byte *codes = nullptr, *shared_codes = nullptr;
  int64_t bytes = 0;

 private:
  Matrix Take(int64_t count, int64_t cols) {
    const Matrix matrix{reinterpret_cast<float*>(next_), count, cols, RoundUp(cols, 16)};
    next_ += 4 * count * matrix.stride;
    return matrix;
  }
  int32_t* TakeInts(int64_t count) {
    auto* ints = reinterpret_cast<int32_t*>(next_);
    next_ += RoundUp(4 * count, 64);
    return ints;
  }
  std::byte* next_;
};

const char* ExpertsWhyNot(const Device&, const ExpertsArgs& a) {
  if (a.x_at) return "tokens share rows";
  for (const PackedMatrix* w : {a.gate_up, a.down, a.shared_gate_up, a.shared_down}) {
    if (w == nullptr) continue;
    if (const char* why = CannotRead(w->format)) return why;
  }
  return nullptr;
}
int64_t ExpertsBytes(const OpContext&, const ExpertsArgs& a) {
  return ExpertsScratch(a, nullptr).bytes;
}

// A gated unit: the routed experts, or the shared one.
struct Unit {
  Gemm gate_up;
  Matrix hidden;
  float limit = 0.0f;
  Gemm down;
  Added sum;
  std::byte* codes = nullptr;
};

// out = the sum of the units, which run beside each other; their sums are added in their order.
void RunUnits(const OpContext& context, std::span<Unit> units) {
  const auto quantise = [&](Gemm Unit::* product) {
    Turn turn = Turn::kAfter;
    for (Unit& unit : units) {
      Gemm gemm = unit.*product;
      gemm.turn = turn;
      if (RunQuantise(context, gemm, unit.codes)) turn = Turn::kBeside;
    }
  };
  const auto multiply = [&](Gemm Unit::* product) {
    for (Unit& unit : units) {
      Gemm gemm = unit.*product;
      gemm.turn = &unit == units.data() ? Turn::kAfter : Turn::kBeside;
      RunProduct(context, gemm, unit.codes);
    }
  };
  quantise(&Unit::gate_up);
  multiply(&Unit::gate_up);
  for (const Unit& unit : units) {
    RunGatedUnit(context, unit.gate_up.y, unit.hidden, unit.limit,
                 &unit == units.data() ? Turn::kAfter : Turn::kBeside);
  }
  quantise(&Unit::down);
  multiply(&Unit::down);
  for (const Unit& unit : units) RunAdd(context, unit.sum);
}

Unit SharedUnit(const ExpertsArgs& a, const ExpertsScratch& s) {
  const int64_t tokens = a.x.rows;
  const Matrix hidden = s.shared_hidden.first_rows(tokens);
  const Matrix rows = s.shared_rows.first_rows(tokens);
  return {.gate_up = {.x = a.x,
                      .w = a.shared_gate_up,
                      .y = s.shared_gate_up.first_rows(tokens),
                      .z = 2,
                      .z_step = a.shared_down->k},
          .hidden = hidden,
          .limit = a.shared_limit,
          .down = {.x = hidden, .w = a.shared_down, .y = rows},
          .sum = {.rows = rows, .weights = a.shared_weight, .add = a.top_k > 0, .out = a.out},
          .codes = s.shared_codes};
}

// The rows of each expert, in tiles.
Tiles SortRows(const OpContext& context, const ExpertsArgs& a, const ExpertsScratch& s) {
  const int64_t height = HeightOf(a), pairs = a.x.rows * a.top_k;
  if (height == 1) return {};
  struct {
    uint64_t ids, order, begins;
    int32_t count, unused = 0;
  } const rows{Address(a.ids), Address(s.order), Address(s.begins), Int(pairs)};
  context.recorder->Run(Kernel{"rows of experts", kShaderExpertRows}, rows, {ExpertsOf(a)});
  struct {
    uint64_t begins, tiles;
    int32_t experts, count, height, unused = 0;
  } const tiles{Address(s.begins), Address(s.tiles), Int(ExpertsOf(a)), Int(pairs), Int(height)};
  context.recorder->Run(Kernel{"tiles of experts", kShaderExpertTiles}, tiles, {1});
  return {s.tiles, s.order, MostTiles(a, height), height};
}

Unit RoutedUnit(const ExpertsArgs& a, const ExpertsScratch& s, const Tiles& tiles) {
  const int64_t pairs = a.x.rows * a.top_k;
  const Matrix hidden = s.hidden.first_rows(pairs), rows = s.rows.first_rows(pairs);
  return {.gate_up = {.x = a.x,
                      .w = a.gate_up,
                      .y = s.gate_up.first_rows(pairs),
                      .ids = a.ids,
                      .tiles = tiles,
                      .x_divisor = a.top_k,
                      .id_step = 2,
                      .z = 2,
                      .z_step = a.down->k},
          .hidden = hidden,
          .limit = a.limit,
          .down = {.x = hidden, .w = a.down, .y = rows, .ids = a.ids, .tiles = tiles, .id_step = 1},
          .sum = {.rows = rows, .weights = a.weights, .k = a.top_k, .out = a.out},
          .codes = s.codes};
}

void RunSome(const OpContext& context, const ExpertsArgs& a, const ExpertsScratch& s) {
  std::vector<Unit> units = {RoutedUnit(a, s, SortRows(context, a, s))};
  if (a.shared_down != nullptr) units.push_back(SharedUnit(a, s));
  RunUnits(context, units);
}
// The tokens in pieces that scratch has room for.
template <class Run>
void ForPieces(const ExpertsArgs& all, const Run& run) {
  const int64_t most = TokensAtOnce(all);
  for (int64_t begin = 0; begin < all.x.rows; begin += most) {
    const int64_t count = std::min(most, all.x.rows - begin);
    ExpertsArgs a = all;
    a.x = all.x.some_rows(begin, count);
    a.out = all.out.some_rows(begin, count);
    a.ids += begin * all.top_k;
    a.weights += begin * all.top_k;
    if (a.shared_weight != nullptr) a.shared_weight += begin;
    run(a);
  }
}

void RunExperts(const OpContext& context, const ExpertsArgs& all, std::byte* scratch) {
  const ExpertsScratch s(all, scratch);
  ForPieces(all, [&](const ExpertsArgs& a) { RunSome(context, a, s); });
}

}  // namespace

constinit const Impl<ExpertsArgs> kExperts = {"vulkan", ExpertsWhyNot, ExpertsBytes, RunExperts,
                                              true};

// The shared expert alone, as that of a mixture without others.
ExpertsArgs SharedOf(ExpertsArgs args) {
  args.top_k = 0;
  return args;
}

void HandOverExperts(const OpContext& context, const ExpertsArgs& args) {
  const bool shared = args.shared_down != nullptr;
  CHECK(args.x_at == nullptr);
  for (const PackedMatrix* w : {args.shared_gate_up, args.shared_down}) {
    const char* why = w == nullptr ? nullptr : CannotRead(w->format);
    if (why == nullptr) continue;
    CHECK(context.missing != nullptr, "experts cannot run on this device: {}", why);
    if (context.missing->empty()) *context.missing = std::string("experts: ") + why;
    return;
  }
  WorkspaceScope scope(*context.workspace);
  const ExpertsArgs beside = SharedOf(args);
  std::byte* memory =
      context.workspace->Take<std::byte>(shared ? ExpertsScratch(beside, nullptr).bytes : 0);
  if (context.workspace->measuring()) return context.handed->Measure(context, args);
  const TraceSpan span(context.pool->trace(), "hand over experts");
  context.handed->Begin(context, args);
  if (shared) {
    const ExpertsScratch s(beside, memory);
    ForPieces(beside, [&](const ExpertsArgs& a) {
      Unit unit = SharedUnit(a, s);
      RunUnits(context, std::span(&unit, 1));
    });
    context.recorder->Mark("shared expert");
  }
  context.handed->End(context, args, shared);
}

}  // namespace gpu

HandedExperts::Places::Places(const ExpertsArgs& args) {
  const auto take = [&](int64_t size) {
    const int64_t at = bytes;
    bytes += RoundUp(size, 64);
    return at;
  };
  x = take(4 * args.x.rows * args.x.stride);
  ids = take(4 * args.x.rows * args.top_k);
  weights = take(4 * args.x.rows * args.top_k);
  out = take(4 * args.x.rows * Workspace::StrideOf(args.out.cols));
}

OpContext HandedExperts::OnHost(const OpContext& context, Workspace& workspace) const {
  return {.device = host_,
          .pool = context.pool,
          .workspace = &workspace,
          .choices = workspace.measuring() ? nullptr : context.choices};
}

// The routed experts alone, as the host sees them; without memory while it is measured.
ExpertsArgs HandedExperts::RoutedOf(const ExpertsArgs& args) const {
  const Places places(args);
  const auto at = [&]<class T>(int64_t offset, T*) {
    return passed_.host() ? reinterpret_cast<T*>(passed_.host() + offset) : nullptr;
  };
  const int64_t stride = Workspace::StrideOf(args.out.cols);
  float* const floats = nullptr;
  return {.x = {at(places.x, floats), args.x.rows, args.x.cols, args.x.stride},
          .gate_up = args.gate_up,
          .down = args.down,
          .ids = at(places.ids, static_cast<int32_t*>(nullptr)),
          .weights = at(places.weights, floats),
          .top_k = args.top_k,
          .limit = args.limit,
          .out = {at(places.out, floats), args.out.rows, args.out.cols, stride}};
}

void HandedExperts::Measure(const OpContext& context, const ExpertsArgs& args) {
  passed_bytes_ = std::max(passed_bytes_, Places(args).bytes);
  Workspace measuring = Workspace::Measuring();
  Experts(OnHost(context, measuring), RoutedOf(args));
  workspace_bytes_ = std::max(workspace_bytes_, measuring.peak());
}

Status HandedExperts::Reserve(vulkan::Gpu& gpu) {
  if (passed_bytes_ == 0) return {};
  ASSIGN_OR_RETURN(passed_, gpu.Allocate(passed_bytes_, vulkan::Place::kReadback));
  workspace_ = Workspace(workspace_bytes_);
  return {};
}

void HandedExperts::Begin(const OpContext& context, const ExpertsArgs& args) {
  const Places at(args);
  CHECK(at.bytes <= passed_.bytes(), "{} bytes to hand over of at most {}", at.bytes,
        passed_.bytes());
  const auto pass = [&](const void* from, int64_t to, int64_t bytes) {
    context.recorder->Copy(static_cast<const std::byte*>(from), passed_.address() + to, bytes);
  };
  pass(args.x.data, at.x, 4 * args.x.rows * args.x.stride);
  pass(args.ids, at.ids, 4 * args.x.rows * args.top_k);
  pass(args.weights, at.weights, 4 * args.x.rows * args.top_k);
  context.recorder->Mark("copy");
  context.recorder->BeginHandOver();
}

void HandedExperts::End(const OpContext& context, const ExpertsArgs& args, bool add) {
  Job& job = jobs_[next_++ % jobs_.size()];
  job.context = OnHost(context, workspace_);
  job.args = RoutedOf(args);
  context.recorder->EndHandOver(job);
  context.recorder->Mark("experts of the host");
  Matrix sum = job.args.out;
  sum.data = reinterpret_cast<float*>(passed_.address() + Places(args).out);
  gpu::RunAdd(context, {.rows = sum, .add = add, .out = args.out});
  context.recorder->Mark("add_rows");
}

void HandedExperts::Job::Run() { Experts(context, args); }

}  // namespace braid::ops

// See the header.
#include "tests/equality/table.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/rng.h"
#include "base/system/thread_pool.h"
#include "model/checkpoint/checkpoint.h"
#include "model/checkpoint/test_directory.h"
#include "model/families/families.h"
#include "model/loading/keep_rows.h"
#include "model/loading/load_weights.h"
#include "model/loading/memory_plan.h"
#include "model/writing/make_model.h"
#include "parallel/rank_view.h"

namespace braid {
namespace {

constexpr Arithmetic kArithmetics[] = {
    {"avx2_fp32", Isa::kAvx2, Compute::kF32, {}, DType::kF32},
    {"avx512_fp32", Isa::kAvx512, Compute::kF32, {}, DType::kF32},
    {"avx512_bf16", Isa::kAvx512, Compute::kBF16, {}, DType::kBF16},
    {"amx_bf16", Isa::kAmx, Compute::kBF16, {}, DType::kBF16},
    {"avx2_int8", Isa::kAvx2, Compute::kF32, ops::WeightFormat::kI8, DType::kI8, DType::kI8},
    {"amx_int8", Isa::kAmx, Compute::kBF16, ops::WeightFormat::kI8, DType::kBF16, DType::kI8},
    {"avx512_fp8", Isa::kAvx512, Compute::kBF16, ops::WeightFormat::kF8, DType::kBF16},
    {"avx512_int4", Isa::kAvx512, Compute::kBF16, ops::WeightFormat::kI4, DType::kI8, DType::kBF16},
    {"avx512_q8_0", Isa::kAvx512, Compute::kBF16, ops::WeightFormat::kQ8_0, DType::kBF16,
     DType::kI8},
    {"avx512_q4_k", Isa::kAvx512, Compute::kBF16, ops::WeightFormat::kQ4K, DType::kBF16},
};

// The first Vulkan device that can be used, or -1.
int UsableDevice() {
  static const int kUsable = [] {
    const auto devices = vulkan::ListDevices();
    for (size_t i = 0; devices && i < devices->size(); ++i) {
      if ((*devices)[i].missing.empty()) return static_cast<int>(i);
    }
    return -1;
  }();
  return kUsable;
}

// One element of a row in bf16, or the scale of a row in int8, as packed.h lays them out.
void InjectNanForTest(ModelWeights& weights) {
  const ops::PackedMatrix& embedding = weights.embedding.matrix;
  const int64_t row = kNanTokenForTest % ops::kPanelRows;
  std::byte* panel = embedding.data + kNanTokenForTest / ops::kPanelRows * embedding.panel_bytes();
  if (embedding.format == ops::WeightFormat::kI8) {
    constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
    constexpr auto kBytes = static_cast<int64_t>(sizeof(kNan));
    std::memcpy(panel + embedding.panel_bytes() - (ops::kPanelRows - row) * kBytes, &kNan, kBytes);
  } else {
    CHECK(embedding.format == ops::WeightFormat::kBF16);
    constexpr uint16_t kNan = 0x7fc0;
    std::memcpy(panel + row * 2 * static_cast<int64_t>(sizeof(kNan)), &kNan, sizeof(kNan));
  }
  CHECK(std::isnan(embedding.At(0, kNanTokenForTest, 0)));
}

template <class T>
T Must(Result<T> result) {
  CHECK(result.ok(), "{}", result.error().message);
  return *std::move(result);
}

class Drawn final : public TokenConstraint {
 public:
  Drawn(bool rewinds, size_t fails_after, size_t ends_after)
      : rewinds_(rewinds), fails_after_(fails_after), ends_after_(ends_after) {}

  Status Mask(std::span<uint32_t> words) override {
    RETURN_IF_ERROR(Broken());
    std::fill(words.begin(), words.end(), 0);
    const auto set = [&](uint64_t token) { words[token / 32] |= uint32_t{1} << (token % 32); };
    if (Single()) {
      set(static_cast<uint64_t>(Draw(0)));
      return {};
    }
    for (uint64_t i = 0; i < 50; ++i) set(static_cast<uint64_t>(Draw(i)));
    if (accepted_.size() >= ends_after_) set(kEndForTest);
    return {};
  }

  Status Accept(TokenId token) override {
    RETURN_IF_ERROR(Broken());
    bool allowed = token == Draw(0);
    for (uint64_t i = 1; i < 50 && !Single(); ++i) allowed |= token == Draw(i);
    if (!allowed) return Error{ErrorCode::kInvalid, "a token that the mask forbids"};
    accepted_.push_back(token);
    return {};
  }

  Status Rewind(size_t count) override {
    if (!rewinds_ || accepted_.size() < count) return Error{ErrorCode::kInvalid, "it cannot"};
    accepted_.resize(accepted_.size() - count);
    return {};
  }

  Result<size_t> Forced(std::span<TokenId> tokens) override {
    const size_t before = accepted_.size();
    size_t count = 0;
    for (; count < tokens.size() && Single(); ++count) accepted_.push_back(tokens[count] = Draw(0));
    accepted_.resize(before);
    return count;
  }

 private:
  Status Broken() const {
    if (accepted_.size() < fails_after_) return {};
    return Error{ErrorCode::kInvalid, "twelve tokens are enough"};
  }
  uint64_t Hash() const {
    uint64_t hash = 1;
    for (const TokenId token : accepted_) hash = MixBits(hash + static_cast<uint64_t>(token));
    return hash;
  }
  bool Single() const { return Hash() % 3 == 0; }
  TokenId Draw(uint64_t i) const { return static_cast<TokenId>(RandomBits(Hash(), i) % 490); }

  bool rewinds_;
  size_t fails_after_, ends_after_;
  std::vector<TokenId> accepted_;
};

}  // namespace

Result<std::unique_ptr<TokenConstraint>> DrawnConstraints::Start(std::string_view grammar, bool) {
  const size_t fails_after = grammar == "fails after 12" ? 12 : SIZE_MAX;
  const size_t ends_after = grammar == "ends at once" ? 0 : 61;
  return std::unique_ptr<TokenConstraint>(
      new Drawn(grammar != "begins anew", fails_after, ends_after));
}

std::vector<const Arithmetic*> ArithmeticsHere() {
  static constexpr Arithmetic kPlain = {"base_fp32", Isa::kBase, Compute::kF32, {}, DType::kF32};
  std::vector<const Arithmetic*> here;
  for (const Arithmetic& arithmetic : kArithmetics) {
    if (arithmetic.isa <= BestIsa(DetectCpu())) here.push_back(&arithmetic);
  }
  if (here.empty()) here.push_back(&kPlain);
  return here;
}

std::vector<const Arithmetic*> ArithmeticsOnDevice() {
  static constexpr Arithmetic kOnDevice[] = {
      {"vulkan_bf16", Isa::kBase, Compute::kF32, {}, DType::kF32, DType::kF32, true},
      {"vulkan_int8", Isa::kBase, Compute::kF32, ops::WeightFormat::kI8, DType::kI8, DType::kF32,
       true},
      {"vulkan_q8_0", Isa::kBase, Compute::kF32, ops::WeightFormat::kQ8_0, DType::kBF16,
       DType::kF32, true}};
  std::vector<const Arithmetic*> here;
  if (UsableDevice() < 0) return here;
  for (const Arithmetic& arithmetic : kOnDevice) here.push_back(&arithmetic);
  return here;
}

std::vector<const Arithmetic*> ArithmeticsHandedOver() {
  using Format = ops::WeightFormat;
  static const Isa kIsa = BestIsa(DetectCpu());
  static const Arithmetic kHanded[] = {
      {"handed_bf16", kIsa, Compute::kF32, {}, DType::kF32, DType::kF32, true, true},
      {"handed_int8", kIsa, Compute::kF32, Format::kI8, DType::kI8, DType::kF32, true, true},
      {"handed_q8_0", kIsa, Compute::kF32, Format::kQ8_0, DType::kBF16, DType::kF32, true, true}};
  std::vector<const Arithmetic*> here;
  if (UsableDevice() < 0) return here;
  for (const Arithmetic& arithmetic : kHanded) here.push_back(&arithmetic);
  return here;
}

const Arithmetic* BestHere(Compute compute) {
  const Arithmetic* best = nullptr;
  for (const Arithmetic* arithmetic : ArithmeticsHere()) {
    if (arithmetic->compute == compute && !arithmetic->weights) best = arithmetic;
  }
  return best;
}

const std::vector<std::string>& ModelNames() {
  static const auto names = std::make_unique<const std::vector<std::string>>([] {
    std::vector<std::string> all = {"braid_tiny", "deepseek_v3", "kimi_linear", "ling_2",
                                    "ling_3",     "qwen3_5",     "qwen3_5_moe", "qwen3_next"};
    CHECK(all[static_cast<size_t>(Model::kQwen3Next)] == "qwen3_next");
    for (const Family& family : Families()) {
      if (std::ranges::count(all, family.name) == 0) all.emplace_back(family.name);
    }
    return all;
  }());
  return *names;
}

ModelSpec TinySpec(Model model) {
  const Family family = Must(FindFamily(NameOf(model)));
  return Must(ParseModelSpec(json::serialize(family.example(ExampleSize::kTiny)), NameOf(model)));
}

bool HasHead(Model model) {
  json::object config = Must(FindFamily(NameOf(model))).example(ExampleSize::kTiny);
  config["num_nextn_predict_layers"] = 1;
  const Result<ModelSpec> spec = ParseModelSpec(json::serialize(config), NameOf(model));
  return spec && spec->draft;
}

void Oracle::Learn(const Request& request, const std::vector<TokenId>& answer) {
  answers_[{request.prompt, request.sampling.seed}] = answer;
}

void Oracle::Propose(const DraftStep& step) {
  static const std::vector<TokenId> kUnknown;
  for (const DraftWish& wish : step.rows) {
    if (wish.count == 0) continue;
    const Slot& slot = *wish.slot;
    const auto prompt = slot.prompt();
    const auto at = answers_.find({{prompt.begin(), prompt.end()}, slot.sampling.seed});
    const std::vector<TokenId>& answer = at == answers_.end() ? kUnknown : at->second;
    const auto made = static_cast<size_t>(slot.length() - slot.prompt_count);
    const auto wrong = MixBits(made) % static_cast<uint64_t>(wish.count + 1);
    for (size_t i = 0; i < static_cast<size_t>(wish.count); ++i) {
      TokenId token = made + i < answer.size() ? answer[made + i] : TokenId{8};
      // The end of a thought where there is none is the worst that can be proposed.
      const bool ends = slot.grammar_after >= 0 && token != slot.grammar_after;
      if (i == wrong) token = ends ? slot.grammar_after : (token + 1) % 512;
      wish.drafts->push_back(token);
    }
  }
}

namespace {

// The model of a subject on disk: one that is made lies in `made`.
std::string DirectoryOf(Model model, const TestDirectory& made, ThreadPool& pool) {
  if (model == Model::kBraidTiny) return BRAID_SOURCE_DIR "/models/braid-tiny";
  const std::string directory = made.path() + "/model";
  Must(
      MakeModel({.directory = directory,
                 .family = NameOf(model),
                 .shape = {"tiny", HasHead(model) ? "num_nextn_predict_layers=1" : "num_experts=8"},
                 .seed = 1,
                 .progress = {}},
                pool));
  return directory;
}

// Every expert somewhere, the redundant slots drawn too, in an order of their own in each layer.
std::vector<LayerSlots> DrawPlacement(const ModelSpec& spec, const Mesh& mesh,
                                      uint64_t number = 0) {
  std::vector<LayerSlots> placement(spec.layers.size());
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    const MoeFfn* moe = std::get_if<MoeFfn>(&spec.layers[i].ffn);
    if (moe == nullptr) continue;
    Rng rng(i + 1 + 1000 * number);
    LayerSlots& slots = placement[i] = InOrder(mesh.SlotsOf(moe->experts));
    for (size_t s = static_cast<size_t>(moe->experts); s < slots.size(); ++s) {
      slots[s] = static_cast<int32_t>(rng.Below(static_cast<uint64_t>(moe->experts)));
    }
    for (size_t s = slots.size(); s > 1; --s) std::swap(slots[s - 1], slots[rng.Below(s)]);
  }
  return placement;
}

MemoryPlan PlanOf(const ModelSpec& spec, const Subject& subject) {
  MemoryPlan plan = Must(
      PlanMemory(spec, {.kv_dtype = subject.arithmetic->kv_dtype,
                        .arena_bytes = subject.model == Model::kBraidTiny ? 256 << 20 : 32 << 20,
                        .model_len_max = 2048,
                        .running_max = 65}));
  // A parent per block: small arenas are then exact.
  for (GroupGeometry& group : plan.geometry.groups) group.blocks_per_page = 1;
  return plan;
}

}  // namespace

// Pieces of a slot, so that a round takes several steps.
constexpr MoverLimits kMoverLimits{.step_bytes = 8 << 10};

Machine::Machine(const Subject& subject, bool inject_nan_for_test)
    : Machine(subject, inject_nan_for_test,
              Moving{[](Communicator&) { return std::unique_ptr<Communicator>(); }, kMoverLimits}) {
}

Machine::Machine(const Subject& subject, const RankThreads::MoveLink& link, MoverLimits limits,
                 std::chrono::milliseconds deadline)
    : Machine(subject, false, Moving{link, limits, deadline}) {}

Machine::Machine(const Subject& subject, bool inject_nan_for_test, const Moving& moving) {
  const auto& [model, arithmetic, mesh, placed, moves, head, sums, parcels, halves] = subject;
  mesh_ = mesh;
  moves_ = moves;
  // A step of a random model, or of a part, is too short to be worth a second thread.
  const int threads = model == Model::kBraidTiny && mesh.ranks() == 1 ? 2 : 1;
  ThreadPool pool(threads);
  const TestDirectory made;
  OpenedModel opened = Must(OpenModel(DirectoryOf(model, made, pool)));
  PlanState(opened.spec, kDraftsMax, arithmetic->state_dtype);
  if (head) UseDraftHead(opened.spec);
  experts_ = opened.spec;
  const Device device = DeviceOf(DetectCpu(), arithmetic->isa, arithmetic->compute);
  const WeightChoice choice{.format = arithmetic->weights, .head = true};
  const auto placement = placed ? DrawPlacement(opened.spec, mesh) : std::vector<LayerSlots>();
  std::vector<RankModel> ranks;
  for (int32_t rank = 0; rank < mesh.ranks(); ++rank) {
    const RankView view = Must(ViewOf(opened.spec, mesh, rank, placement));
    Binding binding = Must(BindWeights(opened.spec, opened.checkpoint, choice));
    KeepRows([&](const WeightSpec& weight) { return view.RowsOf(weight); }, binding);
    ranks.push_back({view.spec, Must(LoadWeights(std::move(binding), pool))});
  }
  if (inject_nan_for_test) InjectNanForTest(ranks[0].weights);
  if (head) {
    spec_ = opened.spec;
    // On the CPU, whatever the subject computes on.
    const Device slow =
        arithmetic->vulkan ? DeviceOf(DetectCpu(), BestIsa(DetectCpu()), Compute::kF32) : device;
    ModelWeights weights =
        Must(LoadWeights(Must(BindWeights(spec_, opened.checkpoint, choice)), pool));
    slow_head_ = std::make_unique<SlowHead>(spec_, std::move(weights), slow, arithmetic->kv_dtype);
  }
  kv_dtype_ = arithmetic->kv_dtype;
  AddMovers(ranks);
  const MemoryPlan plan = PlanOf(ranks[0].spec, subject);
  has_state_ = HasState(plan.geometry);
  config_ = {.cache = plan.geometry,
             .context_tokens_max = plan.model_len_max,
             .step_tokens_max = kStepTokens,
             .running_max = 65,
             .vocabulary = opened.spec.vocabulary,
             .dp_ranks = mesh.dp,
             .report_freed = true};
  std::optional<Device> experts_on;
  if (arithmetic->hands_over) experts_on = device;
  if (arithmetic->vulkan) MoveToDevice(ranks[0], plan, experts_on);
  const ModelExecutorConfig executor{
      .cache = plan.geometry,
      .running_max = 65,
      .step_tokens_max = kStepTokens,
      .context_tokens_max = plan.model_len_max,
      .kv_dtype = arithmetic->kv_dtype,
      .device = device,
      .threads = threads,
      .constraints = &constraints_,
      .draft_tokens_max = kDraftsMax,
      .draft_head = head ? nullptr : &oracle_,
      .home = home_.get(),
      .overlap = halves ? Overlap::kOn : Overlap::kOff,
      .dispatch = parcels ? DispatchRule{DispatchForm::kLatency, 3} : DispatchRule(),
      .reduce_fast = sums,
      .experts_at = {.redundant = mesh.redundant, .placement = placement},
      .move_limits = moving.limits,
      .poison_freed = true};
  executor_ = std::make_unique<RankThreads>(std::move(ranks), mesh, executor,
                                            moves ? moving.link : nullptr, moving.deadline);
}

void Machine::MoveToDevice(RankModel& model, const MemoryPlan& plan,
                           const std::optional<Device>& experts_on) {
  std::unique_ptr<vulkan::Gpu> gpu = Must(vulkan::Gpu::Open(UsableDevice()));
  gpu->RefuseHostAddresses();
  home_ = Must(ModelDevice::Create(std::move(gpu), model.spec, model.weights,
                                   {.cache = plan.geometry,
                                    .running_max = 65,
                                    .step_tokens_max = kStepTokens,
                                    .context_tokens_max = plan.model_len_max,
                                    .kv_dtype = kv_dtype_,
                                    .draft_tokens_max = kDraftsMax,
                                    .experts_on = experts_on,
                                    .threads = 2,
                                    .pages_move = true}));
  for (const Buffer& buffer : model.weights.memory) host_weight_bytes_ += buffer.bytes();
}

void Machine::AddMovers(std::vector<RankModel>& ranks) {
  for (RankModel& rank : ranks) {
    rank.tier = &tiers_.emplace_back();
    rank.peer = &peers_.emplace_back();
  }
}

Machine::~Machine() = default;

std::optional<PageLayout> Machine::layout() const {
  if (mesh_.tp == 1) return {};
  return PageLayoutOf(experts_, mesh_, kv_dtype_);
}

MoveExperts Machine::DrawMove() {
  MoveExperts move;
  for (LayerSlots& slots : DrawPlacement(experts_, mesh_, ++drawn_)) {
    if (!slots.empty()) move.slots.push_back(std::move(slots));
  }
  return move;
}

SchedulerConfig Machine::config(Drafts drafts) const {
  constexpr int32_t kMost[] = {0, 1, 3, kDraftsMax, kDraftsMax, 1, 3, kDraftsMax, 4};
  SchedulerConfig config = config_;
  config.draft_tokens_max = kMost[static_cast<size_t>(drafts)];
  config.draft_lookup = drafts == Drafts::kLookup || drafts == Drafts::kHeadAuto;
  config.draft_head = drafts != Drafts::kLookup;
  config.draft_adapt = drafts == Drafts::kHeadAuto;
  return config;
}

const std::vector<std::vector<TokenId>>& Machine::DraftsOf(const Request& request,
                                                           const std::vector<TokenId>& output) {
  std::vector<TokenId> tokens = request.prompt;
  tokens.insert(tokens.end(), output.begin(), output.end());
  const HeadKey key = KeyOf(request, std::move(tokens));
  auto at = head_drafts_.find(key);
  if (at == head_drafts_.end()) {
    Request drawn = request;
    if (home_ != nullptr) drawn.sampling.repetition_penalty = 1.0f;  // runtime/device_draws.h
    at = head_drafts_.emplace(key, slow_head_->DraftsOf(drawn, output, kDraftsMax)).first;
  }
  return at->second;
}

Machine::HeadKey Machine::KeyOf(const Request& request, std::vector<TokenId> tokens) const {
  const SamplingParams& p = request.sampling;
  return {std::move(tokens),
          p.seed,
          p.temperature,
          p.repetition_penalty,
          request.stop.new_tokens_min,
          request.thinking.tokens_max};
}

void Machine::ExpectDrafts(const Request& request, const std::vector<TokenId>& output,
                           int32_t length, const std::vector<TokenId>& drafts) {
  const auto made = static_cast<size_t>(length) - request.prompt.size();
  const std::vector<TokenId>& all = DraftsOf(request, output)[made];
  const std::vector<TokenId> slow(all.begin(), all.begin() + std::ssize(drafts));
  if (home_ == nullptr) {
    EXPECT_EQ(drafts, slow) << "after " << length << " tokens";
    return;
  }
  ++proposals_;
  not_of_the_slow_head_ += drafts == slow ? 0 : 1;
  std::vector<TokenId> tokens = request.prompt;
  tokens.insert(tokens.end(), output.begin(), output.begin() + static_cast<std::ptrdiff_t>(made));
  std::vector<TokenId>& before = proposed_[KeyOf(request, std::move(tokens))];
  const size_t both = std::min(before.size(), drafts.size());
  EXPECT_EQ(Head(drafts, static_cast<int32_t>(both)), Head(before, static_cast<int32_t>(both)))
      << "after " << length << " tokens";
  if (drafts.size() > both) before = drafts;
}

Machine& MachineOf(const Subject& subject, int copy) {
  using Key = std::pair<Subject, int>;
  static const auto machines = std::make_unique<std::map<Key, std::unique_ptr<Machine>>>();
  std::unique_ptr<Machine>& machine = (*machines)[{subject, copy}];
  if (machine == nullptr) machine = std::make_unique<Machine>(subject);
  return *machine;
}

bool Engine::Step() {
  if (machine_.moves() && steps_++ % 4 == 0) scheduler_.Apply(machine_.DrawMove());
  Plan plan = scheduler_.NextPlan();
  const bool launched = !plan.empty();
  Executor& executor = machine_.executor();
  if (launched) {
    rows_.push_back(plan.rows);
    executor.Launch(std::move(plan), ended_);
    ++in_flight_;
  }
  // Where nothing is in flight, moves of pages are what goes on.
  while (in_flight_ > (launched ? depth_ : 0) ||
         (!launched && in_flight_ == 0 && scheduler_.moves() > 0)) {
    const bool steps = in_flight_ > 0;
    ended_.Wait(1'000'000);
    for (Event& event : ended_.Take()) Apply(std::move(event));
    if (!steps) break;
  }
  for (Output& o : scheduler_.TakeOutputs()) {
    Answer& a = answers_[o.id.value];
    const auto move = [](auto& from, auto& to) { to.insert(to.end(), from.begin(), from.end()); };
    move(o.tokens, a.tokens);
    move(o.logprobs, a.logprobs);
    move(o.prompt_logprobs, a.prompt_logprobs);
    a.reuse = o.reuse;
    a.preemptions = o.preemptions;
    a.error = o.error;
  }
  return launched;
}

void Engine::Apply(Event event) {
  if (StepDone* done = std::get_if<StepDone>(&event)) {
    NoteDrafts(rows_.front(), *done);
    for (size_t r = 0; watch && r < done->rows.size(); ++r) {
      watch(rows_.front()[r], done->rows[r]);
    }
    rows_.pop_front();
    --in_flight_;
  }
  scheduler_.Apply(event);
}

void Engine::NoteDrafts(const std::vector<Row>& rows, const StepDone& done) {
  for (size_t r = 0; r < rows.size(); ++r) {
    const RowResult& result = done.rows[r];
    if (result.request.value != kTarget || result.drafts_of != DraftSource::kHead) continue;
    const int32_t end = rows[r].start + rows[r].token_count - rows[r].drafts + result.accepted;
    drafts_.emplace_back(end + 1, result.drafts);
  }
}

void Engine::CheckDrafts() {
  const std::vector<TokenId>& output = answers_[kTarget].tokens;
  for (const auto& [length, drafts] : drafts_) {
    if (drafts.empty()) continue;
    machine_.ExpectDrafts(target_, output, length, drafts);
    ++drafts_checked_;
  }
  drafts_.clear();
  EXPECT_TRUE(machine_.AgreesWithSlowHead());
}

std::vector<TokenId> Tokens(uint64_t seed, int32_t count) {
  constexpr int64_t kVocabulary = 512;
  Rng rng(seed);
  std::vector<TokenId> tokens;
  for (int32_t i = 0; i < count; ++i) {
    tokens.push_back(static_cast<TokenId>(rng.Below(kVocabulary)));
  }
  return tokens;
}

Request MakeRequest(int64_t id, std::vector<TokenId> prompt, int32_t new_tokens) {
  Request r;
  r.id = RequestId(id);
  r.prompt = std::move(prompt);
  r.stop.new_tokens_max = new_tokens;
  r.logprobs = 3;
  return r;
}

Request Target(bool sampled) {
  Request r = MakeRequest(kTarget, Tokens(1, 333), 130);
  if (sampled) {
    r.sampling.temperature = 0.9f;
    r.sampling.top_p = 0.95f;
    r.sampling.repetition_penalty = 1.1f;
    r.sampling.seed = 77;
  }
  return r;
}

std::vector<Request> ExactingRequests() {
  std::vector<Request> requests;
  const auto add = [&](uint64_t seed) -> Request& {
    requests.push_back(MakeRequest(kTarget, Tokens(seed, 56 + static_cast<int32_t>(seed)), 80));
    requests.back().sampling.temperature = 0.8f;
    requests.back().sampling.seed = seed;
    return requests.back();
  };
  for (uint64_t seed = 0; seed < 8; ++seed) add(seed);
  Request& penalties = add(20);
  penalties.sampling.repetition_penalty = 1.3f;
  penalties.sampling.frequency_penalty = 0.5f;
  add(21).thinking = {.tokens_max = 9, .open = -1, .close = 499};
  Request& stops = add(22);
  stops.stop.stop_tokens = Tokens(5, 300);
  std::sort(stops.stop.stop_tokens.begin(), stops.stop.stop_tokens.end());
  stops.stop.new_tokens_min = 11;
  for (const char* grammar : {"rewinds", "begins anew", "fails after 12"}) {
    for (const TokenId after : {-1, 30}) {
      Request& r = add(23);
      r.grammar = grammar;
      r.grammar_after = after;
      r.sampling.logit_bias = {{30, 4.0f}};
      r.stop.stop_tokens = {kEndForTest};
    }
  }
  return requests;
}

Answer Cold(Machine& machine, const Request& request) {
  SchedulerConfig config = machine.config();
  config.prefix_cache = false;
  Answer answer = Engine(machine, config).Ask(request);
  machine.oracle().Learn(request, answer.tokens);
  return answer;
}

std::vector<TokenId> Head(const std::vector<TokenId>& tokens, int32_t count) {
  return {tokens.begin(), tokens.begin() + count};
}

void ExpectSame(const Answer& got, const Answer& want) {
  EXPECT_EQ(got.error, "");
  EXPECT_EQ(got.tokens, want.tokens);
  EXPECT_EQ(got.logprobs, want.logprobs);
}

}  // namespace braid

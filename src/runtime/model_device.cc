// Placing and passing. Weights keep the form in which they lie on the host; their buffers are cut
// where a weight begins (device/weight_pieces.h).
#include "runtime/model_device.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>

#include "base/block.h"
#include "base/check.h"
#include "base/log.h"
#include "base/math.h"
#include "base/quantities.h"
#include "model/decoder.h"
#include "model/draft_head.h"
#include "runtime/device/weight_pieces.h"
#include "runtime/drafts/head_drafter.h"
#include "runtime/logits_rows.h"
#include "runtime/slots.h"

namespace braid {
namespace {

constexpr int64_t kTableBytes = RoundUp(int64_t{sizeof(ops::DeviceBatchTable)}, 64);
constexpr int64_t kConstantBytes = int64_t{64} << 10;

// Those of the most tokens: of as many sequences, and of one with the longest context.
std::array<std::vector<ops::SequenceSpan>, 2> LargestSteps(const ModelDeviceConfig& config) {
  const int32_t most = std::min(config.step_tokens_max, config.context_tokens_max);
  std::vector<ops::SequenceSpan> many;
  for (int32_t i = 0; i < config.step_tokens_max; ++i) many.push_back({i, 1, 0, {}});
  return {std::move(many), {{0, most, config.context_tokens_max - most, {}}}};
}

// The memory that they need, and the first op that the device lacks, in `missing`. `handed`: as in
// OpContext.
int64_t MeasureStep(const ModelSpec& spec, const ModelWeights& weights,
                    const ModelDeviceConfig& config, ops::HandedExperts* handed,
                    std::string& missing) {
  const CachePlan plan = CachePlanOf(spec, config.kv_dtype);
  const Decoder decoder(spec, weights, plan, config.kv_dtype);
  ThreadPool pool(handed != nullptr ? config.threads : 1);
  int64_t peak = 0;
  for (const std::vector<ops::SequenceSpan>& spans : LargestSteps(config)) {
    Workspace measuring = Workspace::Measuring();
    ops::OpContext context{.device = VulkanDevice(), .pool = &pool, .workspace = &measuring};
    context.missing = &missing;
    context.handed = handed;
    DecoderInput input;
    input.sequences = {spans.data(), static_cast<int32_t>(spans.size()), config.step_tokens_max};
    const Matrix states = measuring.TakeMatrix(config.step_tokens_max, spec.hidden);
    decoder.Forward(context, input, states);
    if (spec.draft && spec.draft->used) {
      const DraftHead head(spec, weights, plan, config.kv_dtype);
      HeadDrafter::Measure(context, {.head = head,
                                     .decoder = decoder,
                                     .spec = spec,
                                     .slots = config.running_max,
                                     .pass_tokens_max = config.step_tokens_max});
    }
    measuring.TakeMatrix(config.step_tokens_max, spec.hidden);  // the wanted ones
    const Matrix logits = measuring.TakeMatrix(kLogitsRows, spec.vocabulary);
    decoder.Logits(context, states.first_rows(std::min(kLogitsRows, config.step_tokens_max)),
                   logits);
    peak = std::max(peak, measuring.peak());
  }
  return peak;
}

const std::byte* DataOf(const Weight& weight) {
  if (weight.matrix.data != nullptr) return weight.matrix.data;
  return reinterpret_cast<const std::byte*>(weight.vector);
}

bool Holds(const Buffer& buffer, const std::byte* data) {
  return data >= buffer.data() && data < buffer.data() + buffer.bytes();
}

std::vector<vulkan::Transfer::Piece> PiecesOf(std::span<const ArenaAccess::Piece> pieces) {
  std::vector<vulkan::Transfer::Piece> all;
  for (const ArenaAccess::Piece& piece : pieces) all.push_back({piece.there, piece.here});
  return all;
}

int64_t WeightBytes(const std::vector<Weight*>& weights) {
  int64_t bytes = 0;
  for (const Weight* weight : weights) bytes += weight->matrix.bytes();
  return bytes;
}

}  // namespace

Result<std::unique_ptr<ModelDevice>> ModelDevice::Create(std::unique_ptr<vulkan::Gpu> gpu,
                                                         const ModelSpec& spec,
                                                         ModelWeights& weights,
                                                         const ModelDeviceConfig& config) {
  const std::string name = gpu->facts().name;
  std::string missing;
  auto handed = config.experts_on ? std::make_unique<ops::HandedExperts>(*config.experts_on)
                                  : std::unique_ptr<ops::HandedExperts>();
  const int64_t workspace_bytes = MeasureStep(spec, weights, config, handed.get(), missing);
  if (!missing.empty()) {
    return Error{ErrorCode::kInvalid,
                 fmt::format("the device {} cannot run {}: {}. Use --device cpu", name,
                             spec.architecture, missing),
                 "device"};
  }
  std::unique_ptr<ModelDevice> device(new ModelDevice(std::move(gpu), config));
  device->handed_ = std::move(handed);
  // Weights last: after an error they are still on the host.
  Status fits = device->Reserve(spec, workspace_bytes);
  if (fits.ok()) fits = device->CheckLargestSteps(spec, weights);
  if (fits.ok()) fits = device->MoveWeights(weights);
  if (fits.ok()) {
    device->CountDecodeStep(spec, weights);
    return device;
  }
  if (fits.error().code != ErrorCode::kExhausted) return fits.error();
  int64_t weight_bytes = 0;
  for (const Buffer& buffer : weights.memory) weight_bytes += buffer.bytes();
  if (device->handed_ != nullptr) weight_bytes -= WeightBytes(RoutedWeights(weights));
  const int64_t cache_bytes = config.cache.page_bytes * config.cache.pages;
  return Error{
      ErrorCode::kExhausted,
      fmt::format("{}. In all {} are wanted there: weights {}, cache {}, steps {}; the "
                  "device has {}. Lower --memory or --max-model-len, or use --device cpu",
                  fits.error().message, ByteText(weight_bytes + cache_bytes + workspace_bytes),
                  ByteText(weight_bytes), ByteText(cache_bytes), ByteText(workspace_bytes),
                  ByteText(device->gpu().facts().memory_bytes)),
      "device"};
}

// Pieces of the host's buffers, each from the beginning of a weight on.
Status ModelDevice::MoveWeights(ModelWeights& weights) {
  std::vector<Weight*> all = AllWeights(weights);
  std::vector<Buffer> kept;
  if (handed_ != nullptr) {
    const std::vector<Weight*> routed = RoutedWeights(weights);
    std::erase_if(all, [&](Weight* weight) { return std::ranges::count(routed, weight) > 0; });
    std::vector<Buffer> leaving;
    for (Buffer& buffer : weights.memory) {
      const bool stays = std::ranges::any_of(
          routed, [&](const Weight* weight) { return Holds(buffer, DataOf(*weight)); });
      (stays ? kept : leaving).push_back(std::move(buffer));
    }
    weights.memory = std::move(leaving);
  }
  const int64_t piece_max = std::min(gpu_->facts().buffer_bytes_max, int64_t{1} << 30);
  std::map<const std::byte*, std::byte*> moved;  // where a weight was, where it is
  for (const Buffer& buffer : weights.memory) {
    RETURN_IF_ERROR(MoveBuffer(buffer, all, piece_max, moved));
  }
  for (Weight* weight : all) {
    const std::byte* data = DataOf(*weight);
    if (data == nullptr) continue;
    const auto at = moved.find(data);
    if (at == moved.end()) {
      return Error{ErrorCode::kInvalid,
                   "a device cannot read the weights of a mapped checkpoint; load the one that it "
                   "was made from, or use --device cpu",
                   "device"};
    }
    if (weight->matrix.data != nullptr) {
      weight->matrix.data = at->second;
    } else {
      weight->vector = reinterpret_cast<const float*>(at->second);
    }
  }
  weights.memory = std::move(kept);
  return {};
}

Status ModelDevice::MoveBuffer(const Buffer& buffer, std::span<Weight* const> all,
                               int64_t piece_max, std::map<const std::byte*, std::byte*>& moved) {
  std::vector<const std::byte*> begins;
  for (const Weight* weight : all) {
    if (Holds(buffer, DataOf(*weight))) begins.push_back(DataOf(*weight));
  }
  const std::byte* end = buffer.data() + buffer.bytes();
  for (const std::span<const std::byte> piece : WeightPieces(begins, end, piece_max)) {
    ASSIGN_OR_RETURN(vulkan::Memory memory,
                     gpu_->Allocate(std::ssize(piece), vulkan::Place::kDevice));
    RETURN_IF_ERROR(gpu_->Upload(piece, memory.address()));
    for (const std::byte* begin : begins) {
      if (begin < piece.data() || begin >= piece.data() + piece.size()) continue;
      moved[begin] = memory.address() + (begin - piece.data());
    }
    weights_.push_back(std::move(memory));
  }
  return {};
}

Status ModelDevice::Reserve(const ModelSpec& spec, int64_t workspace_bytes) {
  groups_ = static_cast<int32_t>(config_.cache.groups.size());
  entries_ = static_cast<int32_t>(CeilDiv(config_.context_tokens_max, kBlockTokens) + 1);
  int64_t bytes = passes_max() * kTableBytes;
  const auto take = [&](int64_t count, int64_t size) {
    const int64_t at = bytes;
    bytes += RoundUp(count * size, 64);
    return at;
  };
  tokens_max_ = config_.step_tokens_max + (passes_max() - 1) * config_.running_max;
  spans_at_ = take(tokens_max_, sizeof(ops::DeviceSpan));
  span_of_at_ = take(tokens_max_, 4);
  tokens_at_ = take(tokens_max_, 4);
  wanted_at_ = take(int64_t{2} * config_.step_tokens_max, 4);
  draws_at_ = take(draws_max(), sizeof(ops::gpu::DeviceDraw));
  tables_at_ = take(int64_t{config_.running_max} * groups_ * entries_, 8);
  // Logits, and the last states of all sequences.
  const int64_t results = 4 * (int64_t{kLogitsRows} * Workspace::StrideOf(spec.vocabulary) +
                               int64_t{config_.running_max} * Workspace::StrideOf(spec.hidden));
  using vulkan::Place;
  ASSIGN_OR_RETURN(arena_,
                   gpu_->Allocate(config_.cache.page_bytes * config_.cache.pages, Place::kDevice));
  ASSIGN_OR_RETURN(workspace_, gpu_->Allocate(RoundUp(workspace_bytes, 64), Place::kDevice));
  ASSIGN_OR_RETURN(inputs_, gpu_->Allocate(bytes, Place::kUpload));
  ASSIGN_OR_RETURN(results_, gpu_->Allocate(results, Place::kReadback));
  ASSIGN_OR_RETURN(drawn_,
                   gpu_->Allocate(draws_max() * static_cast<int64_t>(sizeof(ops::gpu::DeviceDrawn)),
                                  Place::kReadback));
  if (spec.draft && spec.draft->used) {
    const CachePlan plan = CachePlanOf(spec, config_.kv_dtype);
    ASSIGN_OR_RETURN(
        draft_memory_,
        gpu_->Allocate(HeadDrafter::Bytes(spec, plan, config_.running_max), Place::kDevice));
  }
  if (handed_ != nullptr) RETURN_IF_ERROR(handed_->Reserve(*gpu_));
  if (config_.pages_move) {
    ASSIGN_OR_RETURN(auto transfer, vulkan::Transfer::Create(*gpu_, arena_));
    pages_.emplace(std::move(transfer));
  }
  std::memset(inputs_.host(), 0, static_cast<size_t>(bytes));
  ASSIGN_OR_RETURN(vulkan::Memory constants, gpu_->Allocate(kConstantBytes, Place::kDevice));
  constants_ = std::make_unique<ops::DeviceConstants>(std::move(constants));
  return {};
}

// A step as ModelExecutor records it, but into a recorder that counts. Ops get no place for
// constants: what they would put there would count as written.
Status ModelDevice::CountStep(const ModelSpec& spec, const ModelWeights& weights,
                              std::span<const ops::SequenceSpan> spans,
                              vulkan::Counters& counters) {
  const CachePlan plan = CachePlanOf(spec, config_.kv_dtype);
  const Decoder decoder(spec, weights, plan, config_.kv_dtype);
  ThreadPool pool(1);
  Workspace workspace = MakeWorkspace();
  vulkan::Recorder counting(*gpu_, counters);
  const int32_t tokens = spans.back().token_begin + spans.back().token_count;
  const ops::SequenceIndex sequences{spans.data(), static_cast<int32_t>(spans.size()), tokens};
  const std::vector<SlotId> slots(spans.size(), SlotId(0));
  BeginPasses();
  DevicePass pass =
      LayPass(slots, sequences, std::vector<TokenId>(static_cast<size_t>(tokens), TokenId{0}));
  pass.batch.constants = nullptr;
  ops::OpContext context{.device = VulkanDevice(), .pool = &pool, .workspace = &workspace};
  context.recorder = &counting;
  context.batch = &pass.batch;
  context.handed = handed_.get();
  const Matrix states = workspace.TakeMatrix(tokens, spec.hidden);
  decoder.Forward(context, {.tokens = pass.tokens, .sequences = sequences}, states);
  const Matrix last = workspace.TakeMatrix(tokens, spec.hidden);
  ops::AddRows(context, {.rows = states, .at = wanted(), .out = last});
  const int64_t rows = std::min<int64_t>(tokens, kLogitsRows);
  const Matrix logits = workspace.TakeMatrix(rows, spec.vocabulary);
  decoder.Logits(context, last.first_rows(rows), logits);
  ops::gpu::RunSample(
      context, {.logits = logits, .sampled = spec.vocabulary, .draws = draws(), .drawn = drawn()});
  return counting.Finish();
}

void ModelDevice::CountDecodeStep(const ModelSpec& spec, const ModelWeights& weights) {
  const ops::SequenceSpan span{.token_count = 1};
  CHECK(CountStep(spec, weights, std::span(&span, 1), decode_step_).ok());
  decode_step_.writes = 0;  // of constants
}

// A device bounds the workgroups of a dispatch, which grow with the tokens of a step.
Status ModelDevice::CheckLargestSteps(const ModelSpec& spec, const ModelWeights& weights) {
  for (const std::vector<ops::SequenceSpan>& spans : LargestSteps(config_)) {
    vulkan::Counters counters;
    const Status fits = CountStep(spec, weights, spans, counters);
    if (fits.ok()) continue;
    return Error{ErrorCode::kInvalid,
                 fmt::format("steps of {} tokens are too large for the device: {}. Lower "
                             "--max-batch-tokens",
                             config_.step_tokens_max, fits.error().message),
                 "device"};
  }
  return {};
}

Status ModelDevice::Pages::Fetch(std::span<const Piece> pieces) {
  return transfer_->ToHost(PiecesOf(pieces));
}

Status ModelDevice::Pages::Store(std::span<const Piece> pieces) {
  return transfer_->ToDevice(PiecesOf(pieces));
}

void ModelDevice::Apply(const Plan& plan, Slots& slots) {
  for (const Admission& admission : plan.admissions) {
    std::fill_n(Host<uint64_t>(tables_at_) + TableEntry(admission.slot, 0, 0),
                int64_t{groups_} * entries_, 0);
  }
  bytes_laid_ = 0;
  for (const TableUpdate& update : plan.tables) {
    const int32_t group = update.group.value;
    Point(update.slot, group, update.index,
          slots[update.slot].blocks[static_cast<size_t>(group)][static_cast<size_t>(update.index)]);
  }
}

void ModelDevice::Point(SlotId slot, int32_t group, int64_t index, const std::byte* block) {
  Host<uint64_t>(tables_at_)[TableEntry(slot, group, index)] = reinterpret_cast<uint64_t>(block);
  bytes_laid_ += 8;
}

void ModelDevice::BeginPasses() { passes_ = pass_tokens_ = 0; }

bool ModelDevice::HasRoom(int64_t tokens) const {
  return passes_ < passes_max() && pass_tokens_ + tokens <= tokens_max_;
}

DevicePass ModelDevice::LayPass(std::span<const SlotId> slots, const ops::SequenceIndex& sequences,
                                std::span<const TokenId> tokens) {
  CHECK(HasRoom(sequences.tokens) && sequences.count <= sequences.tokens);
  // Every sequence has a token, so the spans of all passes find room where their tokens do.
  const int64_t spans_at = spans_at_ + pass_tokens_ * int64_t{sizeof(ops::DeviceSpan)};
  const int64_t span_of_at = span_of_at_ + 4 * pass_tokens_,
                tokens_at = tokens_at_ + 4 * pass_tokens_;
  for (int32_t s = 0; s < sequences.count; ++s) {
    const ops::SequenceSpan& span = sequences.spans[s];
    Host<ops::DeviceSpan>(spans_at)[s] = {span.token_begin, span.token_count, span.start,
                                          slots[static_cast<size_t>(s)].value};
    std::fill_n(Host<int32_t>(span_of_at) + span.token_begin, span.token_count, s);
  }
  std::copy(tokens.begin(), tokens.end(), Host<TokenId>(tokens_at));
  const auto address = [&](int64_t at) {
    return reinterpret_cast<uint64_t>(inputs_.address() + at);
  };
  const int64_t table_at = passes_ * kTableBytes;
  *Host<ops::DeviceBatchTable>(table_at) = {.spans = address(spans_at),
                                            .span_of = address(span_of_at),
                                            .tables = address(tables_at_),
                                            .groups = groups_,
                                            .entries = entries_};
  bytes_laid_ += sequences.count * int64_t{sizeof(ops::DeviceSpan)} + 4 * sequences.tokens +
                 static_cast<int64_t>(tokens.size_bytes()) + int64_t{sizeof(ops::DeviceBatchTable)};
  ++passes_;
  pass_tokens_ += sequences.tokens;
  return {.batch = {.table = inputs_.address() + table_at,
                    .spans = sequences.spans,
                    .constants = constants_.get()},
          .tokens = reinterpret_cast<TokenId*>(inputs_.address() + tokens_at)};
}

void ModelDevice::LayWanted(std::span<const int32_t> wanted) {
  CHECK(std::ssize(wanted) <= 2 * int64_t{config_.step_tokens_max});
  std::copy(wanted.begin(), wanted.end(), Host<int32_t>(wanted_at_));
  bytes_laid_ += static_cast<int64_t>(wanted.size_bytes());
}

void ModelDevice::LayDraws(std::span<const ops::gpu::DeviceDraw> draws) {
  CHECK(std::ssize(draws) <= draws_max());
  std::copy(draws.begin(), draws.end(), Host<ops::gpu::DeviceDraw>(draws_at_));
  bytes_laid_ += static_cast<int64_t>(draws.size_bytes());
}
const ops::gpu::DeviceDraw* ModelDevice::draws() const {
  return reinterpret_cast<const ops::gpu::DeviceDraw*>(inputs_.address() + draws_at_);
}

const int32_t* ModelDevice::wanted() const {
  return reinterpret_cast<const int32_t*>(inputs_.address() + wanted_at_);
}

Matrix ModelDevice::Return(Matrix rows) {
  const int64_t bytes = 4 * rows.rows * rows.stride;
  CHECK(results_used_ + bytes <= results_.bytes());
  recorder_.Copy(reinterpret_cast<const std::byte*>(rows.data), results_.address() + results_used_,
                 bytes);
  recorder_.Mark("copy");
  Matrix seen = rows;
  seen.data = reinterpret_cast<float*>(results_.host() + results_used_);
  results_used_ += bytes;
  return seen;
}

Status ModelDevice::Finish() {
  results_used_ = 0;
  const Status done = recorder_.Finish();
  for (size_t i = 0; trace_ != nullptr && done.ok() && i < recorder_.timed().size(); ++i) {
    const vulkan::TimedCommands& timed = recorder_.timed()[i];
    trace_->RecordOnDevice(timed.name, timed.start_ns, timed.end_ns);
  }
  return done;
}

void ModelDevice::SetTrace(Trace* trace) {
  if (trace == nullptr) return;
  if (const Status times = recorder_.BeginTiming(); times.ok()) {
    trace_ = trace;
  } else {
    LogWarning("--trace: {}", times.error().message);
  }
}

}  // namespace braid

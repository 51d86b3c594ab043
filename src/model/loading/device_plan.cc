// Two plans at most are made and compared: with all weights on the device, and without the experts.
#include "model/loading/device_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/quantities.h"

namespace braid {
namespace {

// What is asked of the device when the host keeps `handed` bytes of the weights.
MemoryRequest OfDevice(MemoryRequest request, const DeviceRoom& room, int64_t handed) {
  request.weight_bytes -= handed;
  request.available_bytes = room.shared
                                ? std::min(room.memory_bytes, request.available_bytes - handed)
                                : room.memory_bytes;
  const double most = static_cast<double>(room.buffer_bytes_max) / kArenaShare;
  const double fixed = static_cast<double>(request.weight_bytes + request.workspace_bytes);
  request.available_bytes =
      static_cast<int64_t>(std::min(static_cast<double>(request.available_bytes), fixed + most));
  return request;
}

int64_t RoomOf(const MemoryRequest& request) {
  return request.total_bytes.value_or(request.available_bytes);
}

int64_t FixedBytes(const MemoryRequest& request) {
  return request.weight_bytes + request.workspace_bytes;
}

Error OfMemory(const Error& error, const std::string& more) {
  return {error.code, error.message + more, "device"};
}

// A plan of the device's memory, if that can hold the largest weight of those that are there.
Result<MemoryPlan> PlanWith(const ModelSpec& spec, const MemoryRequest& request,
                            const DeviceRoom& room, int64_t weight_max) {
  if (weight_max <= room.buffer_bytes_max) return PlanMemory(spec, request);
  return Error{ErrorCode::kExhausted,
               fmt::format("the largest weight has {}, and the device allows at most {} in one "
                           "allocation",
                           ByteText(weight_max), ByteText(room.buffer_bytes_max))};
}

std::string WhyHost(const MemoryRequest& all, const DeviceRoom& room,
                    const Result<MemoryPlan>& plan) {
  if (room.routed_weight_max > room.buffer_bytes_max) return plan.error().message;
  std::string why = fmt::format("with them, weights and workspace need {} of the device's {}",
                                ByteText(FixedBytes(all)), ByteText(RoomOf(all)));
  if (!plan) return why;
  return why + fmt::format(", which leaves room for sequences of {} tokens", plan->model_len_max);
}

// Fills in the host's part.
MemoryPlan Divided(MemoryPlan plan, int64_t handed, std::string why) {
  plan.host_weight_bytes = handed;
  plan.host_reason = std::move(why);
  return plan;
}

}  // namespace

Result<MemoryPlan> PlanDeviceMemory(const ModelSpec& spec, const MemoryRequest& request,
                                    const DeviceRoom& room) {
  const int64_t handed = room.routed_bytes;
  const bool host_has_room = handed <= request.available_bytes;
  const MemoryRequest all = OfDevice(request, room, 0);
  const MemoryRequest rest = OfDevice(request, room, handed);
  const std::string host_lacks =
      fmt::format("experts on the CPU need {} of the host's memory, of which {} are available",
                  ByteText(handed), ByteText(request.available_bytes));
  if (handed > 0 && room.experts == ExpertsWith::kHost) {
    if (!host_has_room) return Error{ErrorCode::kExhausted, host_lacks, "device"};
    Result<MemoryPlan> plan = PlanWith(spec, rest, room, room.other_weight_max);
    if (plan) return Divided(*std::move(plan), handed, "--experts cpu");
    return plan.error().code == ErrorCode::kExhausted ? OfMemory(plan.error(), "") : plan.error();
  }
  Result<MemoryPlan> whole =
      PlanWith(spec, all, room, std::max(room.routed_weight_max, room.other_weight_max));
  const int32_t wanted = request.model_len_max > 0
                             ? request.model_len_max
                             : std::min(spec.context_tokens_max, kTokensBesideExperts);
  if (whole && whole->model_len_max >= wanted) return whole;
  if (!whole && whole.error().code != ErrorCode::kExhausted) return whole.error();
  const bool may = handed > 0 && room.experts == ExpertsWith::kAuto &&
                   room.other_weight_max <= room.buffer_bytes_max;
  if (may && host_has_room) {
    Result<MemoryPlan> divided = PlanWith(spec, rest, room, room.other_weight_max);
    // Where no allocation can be larger, or host and device have one memory, nothing is gained.
    if (divided && (!whole || divided->geometry.pages > whole->geometry.pages)) {
      return Divided(*std::move(divided), handed, WhyHost(all, room, whole));
    }
  }
  if (whole) return whole;
  if (!may) return OfMemory(whole.error(), "");
  if (!host_has_room) return OfMemory(whole.error(), "; " + host_lacks);
  return OfMemory(
      whole.error(),
      fmt::format("; with {} of experts on the CPU, weights and workspace still need "
                  "{} of {}",
                  ByteText(handed), ByteText(FixedBytes(rest)), ByteText(RoomOf(rest))));
}

}  // namespace braid

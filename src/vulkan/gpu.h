// A device that Vulkan 1.3 offers: its memory, its kernels, and the recorder of a step's commands.
// Device memory is known by its addresses (buffer device addresses): a pointer into it may be
// computed with on the host, and only the device may follow it. Used by one thread at a time; other
// threads may have a Transfer each (vulkan/transfer.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/result.h"

namespace braid::vulkan {

struct DeviceFacts {
  int index = 0;
  std::string name;
  std::string driver;            // its name and version
  std::string version;           // of Vulkan, "1.3.230"
  std::string kind;              // "discrete", "integrated", "virtual", "software", "other"
  int64_t memory_bytes = 0;      // of the largest heap that is the device's own
  int64_t buffer_bytes_max = 0;  // of one allocation
  int32_t subgroup = 0;          // invocations that run together
  int32_t shared_bytes = 0;      // of a workgroup
  int32_t invocations_max = 0;   // of a workgroup
  bool fast_dots = false;        // products of four bytes each are one instruction
  std::string missing;           // why braid cannot use it; empty: it can
};

// All devices, usable or not. kUnavailable: there is no loader or no driver.
Result<std::vector<DeviceFacts>> ListDevices();

// Where an allocation lies.
enum class Place : uint8_t {
  kDevice,    // the device's own memory; the host does not see it
  kUpload,    // the host writes, the device reads
  kReadback,  // the device writes, the host reads
};

struct GpuState;  // gpu.cc

// One allocation. Contents are undefined at first. Must not outlive its Gpu.
class Memory {
 public:
  Memory() = default;
  Memory(Memory&& other) noexcept { *this = static_cast<Memory&&>(other); }
  Memory& operator=(Memory&& other) noexcept;
  ~Memory();

  std::byte* address() const { return address_; }  // on the device
  std::byte* host() const { return host_; }        // null: kDevice
  int64_t bytes() const { return bytes_; }

 private:
  friend class Gpu;
  friend class Recorder;
  GpuState* gpu_ = nullptr;
  std::byte* address_ = nullptr;
  std::byte* host_ = nullptr;
  int64_t bytes_ = 0;
};

using KernelConstants = std::array<uint32_t, 7>;
// A shader with the values of its specialisation constants, which are numbered from 0.
struct Kernel {
  std::string_view name;   // for messages and traces
  std::string_view spirv;  // lives as long as the program
  KernelConstants constants = {};
};

// kBeside: it and the kernel before touch nothing that the other writes, and so with those that the
// kernel before is beside. The device may run them in any order. Where the command before is no
// kernel, as kAfter.
enum class Turn : uint8_t { kAfter, kBeside };

struct Groups {
  int64_t x = 1, y = 1, z = 1;
};

// What was asked of the device so far (tests, --explain-ops).
struct Counters {
  int64_t allocations = 0;
  int64_t pipelines = 0;
  int64_t recordings = 0;  // command buffers; the others are those of earlier steps
  int64_t submissions = 0;
  int64_t waits = 0;
  int64_t dispatches = 0;
  int64_t beside = 0;  // of them, those beside the one before
  int64_t copies = 0;  // and fills
  int64_t writes = 0;  // of what the host has
};

// Commands as the device has timed them, by the host's clock: a submission begins when it is given
// to the driver.
struct TimedCommands {
  std::string_view name;
  int64_t start_ns = 0, end_ns = 0;
};

class Gpu {
 public:
  // The device with this index in ListDevices.
  static Result<std::unique_ptr<Gpu>> Open(int index);
  ~Gpu();

  const DeviceFacts& facts() const;
  const Counters& counters() const;
  // kExhausted, with what was asked for and what there is.
  Result<Memory> Allocate(int64_t bytes, Place place);
  // For tests: a kernel whose arguments name the host's memory ends the program. Software devices
  // share the host's addresses, so kernels run on them which fail on hardware.
  void RefuseHostAddresses();
  // For tests: kernels beside each other run in reverse order.
  void ReverseBeside(bool reverse);
  // Copies to device memory and waits; before the first step.
  Status Upload(std::span<const std::byte> from, std::byte* to);

 private:
  friend class Recorder;
  friend class Transfer;
  explicit Gpu(std::unique_ptr<GpuState> state);
  std::unique_ptr<GpuState> state_;
};

// The most bytes of arguments that a kernel takes.
inline constexpr int64_t kArgumentBytesMax = 128;

// What the host does between two submissions.
class HostWork {
 public:
  virtual ~HostWork() = default;
  virtual void Run() = 0;
};

// Commands in order: each sees what those before it wrote. Record, then Finish: one submission and
// one wait. The first error sticks until Finish returns it.
//
// The host may take part: `work` of EndHandOver runs when the commands before BeginHandOver are
// done, and reads what they wrote to memory of Place::kReadback. The commands between the two run
// meanwhile; those after EndHandOver see what the host wrote. Each hand-over is one submission and
// one wait more. Its work runs in the next EndHandOver or in Finish, so that the device does not
// wait for commands to be recorded; after an error it does not run.
class Recorder {
 public:
  explicit Recorder(Gpu& gpu) : gpu_(*gpu.state_) {}
  // Counts what would be recorded and submitted; nothing runs, neither there nor on the host.
  Recorder(Gpu& gpu, Counters& counted) : gpu_(*gpu.state_), counted_(&counted) {}

  const DeviceFacts& facts() const;
  template <class Arguments>
  void Run(const Kernel& kernel, const Arguments& arguments, Groups groups,
           Turn turn = Turn::kAfter) {
    static_assert(std::is_trivially_copyable_v<Arguments>);
    static_assert(sizeof(Arguments) <= kArgumentBytesMax);
    Dispatch(kernel, std::as_bytes(std::span(&arguments, 1)), groups, turn);
  }
  // Up to 64 KiB, a multiple of 4, which are read now.
  void Write(std::span<const std::byte> from, std::byte* to);
  void Copy(const std::byte* from, std::byte* to, int64_t bytes);
  void Zero(std::byte* to, int64_t bytes);  // a multiple of 4
  void BeginHandOver();
  void EndHandOver(HostWork& work);
  Status Finish();

  // From now on the device times what is recorded, by names, as far as it can and 4095 names go;
  // before, a mark costs nothing. `name` is a literal: of what was recorded since the last mark.
  Status BeginTiming();
  void Mark(std::string_view name) {
    if (timing_) [[unlikely]]
      WriteMark(name);
  }
  const std::vector<TimedCommands>& timed() const { return timed_; }  // of the last Finish

 private:
  bool Begin();
  // Whether the command that `count` counts is to be recorded.
  bool Adds(int64_t Counters::* count);
  void RefuseHostAddresses(const Kernel& kernel, std::span<const std::byte> arguments) const;
  void WriteMark(std::string_view name);
  Status TakeTimes(int64_t submitted_ns);
  void Dispatch(const Kernel& kernel, std::span<const std::byte> arguments, Groups groups,
                Turn turn);
  void Close();
  void Submit(bool last);
  void RunHostWork();

  GpuState& gpu_;
  Counters* counted_ = nullptr;
  bool after_kernel_ = false;  // the last command is one, in the commands that are logged
  bool recording_ = false;     // something was recorded since the last Finish
  HostWork* work_ = nullptr;   // of the last submission
  int64_t submitted_ns_ = 0;   // the first since the last Finish; 0: none, or not timed
  bool timing_ = false;
  std::vector<TimedCommands> timed_;
  std::vector<uint64_t> ticks_;
  Status status_;
};

}  // namespace braid::vulkan

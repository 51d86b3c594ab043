// Copies between the host and one allocation of a device, from any thread, while another thread
// records and submits steps. Commands, memory and fence are its own; the device's queue is shared,
// so a copy lies between two submissions of steps and sees what those before it wrote.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/result.h"
#include "vulkan/gpu.h"

namespace braid::vulkan {

class Transfer {
 public:
  // A range of the allocation, and as many bytes of the host.
  struct Piece {
    std::byte* there;
    std::span<std::byte> here;
  };

  // `memory` outlives it. `at_once`: bytes that lie between both sides; more go in turns.
  static Result<std::unique_ptr<Transfer>> Create(Gpu& gpu, const Memory& memory,
                                                  int64_t at_once = int64_t{8} << 20);
  ~Transfer();

  // Both return when all pieces are there; after an error it is not known which are. Each submits
  // and waits; threads take turns.
  Status ToHost(std::span<const Piece> pieces);
  Status ToDevice(std::span<const Piece> pieces);

 private:
  struct State;
  explicit Transfer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace braid::vulkan

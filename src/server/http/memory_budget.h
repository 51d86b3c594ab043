// Admission control for the server's memory (--server-memory), in addition to the engine's: request
// bodies until they are prepared, the memory that preparation needs, large answers and their
// log-probabilities. Code that needs memory takes a hold first or refuses the request. The budget
// also checks the process's resident memory, which covers what no hold counts: grammars, unread
// answers, free memory that the allocator keeps. Thread-safe.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <optional>
#include <utility>

namespace braid {

class MemoryBudget {
 public:
  static constexpr int64_t kSmallBytes = 1 << 20;
  struct Limits {
    int64_t server_bytes = 0;   // all that is held at once
    int64_t process_bytes = 0;  // resident memory, the engine's included; 0: not known yet
  };
  explicit MemoryBudget(Limits limits) { SetLimits(limits); }
  void SetLimits(Limits limits);

  // Returns its bytes when it is destroyed.
  class Hold {
   public:
    Hold(MemoryBudget& budget, int64_t bytes) : budget_(&budget), bytes_(bytes) {}
    Hold(Hold&& other) noexcept
        : budget_(std::exchange(other.budget_, nullptr)), bytes_(other.bytes_) {}
    Hold& operator=(Hold&&) = delete;
    ~Hold() {
      if (budget_ != nullptr) budget_->used_ -= bytes_;
    }
    int64_t bytes() const { return bytes_; }
    // Holds `more` bytes, too. False, and counted as shed, unless they plus `spare` are free.
    bool Grow(int64_t more, int64_t spare);
    // Returns `less` of its bytes, all of them at most.
    void Shrink(int64_t less) {
      less = std::min(less, bytes_);
      budget_->used_ -= less;
      bytes_ -= less;
    }

   private:
    MemoryBudget* budget_;
    int64_t bytes_;
  };

  // nullopt, and counted as shed, unless `bytes` plus `spare` are free. High resident memory
  // refuses large holds only, so that small requests are still served.
  std::optional<Hold> Take(int64_t bytes, int64_t spare);
  // Whether Take would hold them now; if not, that is counted as shed, too.
  bool HasRoom(int64_t bytes, int64_t spare);
  // Records the resident memory; called a few times a second.
  void NoteResident(int64_t bytes);

  struct Stats {
    int64_t used_bytes = 0, limit_bytes = 0, process_limit_bytes = 0, resident_bytes = 0;
    int64_t shed = 0;
  };
  Stats stats() const;
  // The most that was held since the last call.
  int64_t TakePeak() { return peak_.exchange(used_); }

 private:
  bool Fits(int64_t used, int64_t hold_bytes, int64_t spare) const;
  bool Add(int64_t bytes, int64_t hold_bytes, int64_t spare);

  std::atomic<int64_t> server_bytes_, process_bytes_;
  std::atomic<int64_t> used_{0}, peak_{0}, shed_{0};
  std::atomic<int64_t> resident_{0};
  std::atomic<int64_t> used_then_{0};  // used_ when resident_ was noted
};

// Resident memory of this process; 0 if the kernel does not tell.
int64_t ResidentBytes();

}  // namespace braid

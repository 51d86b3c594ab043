// Holds are counted with atomics; no lock.
#include "server/http/memory_budget.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace braid {

void MemoryBudget::SetLimits(Limits limits) {
  server_bytes_ = limits.server_bytes;
  process_bytes_ = limits.process_bytes;
}

bool MemoryBudget::Fits(int64_t used, int64_t hold_bytes, int64_t spare) const {
  const int64_t process = process_bytes_;
  return used + spare <= server_bytes_ &&
         (process == 0 || hold_bytes < kSmallBytes ||
          resident_ + std::max<int64_t>(used - used_then_, 0) <= process);
}

// Counts `bytes` more of a hold that has `hold_bytes` with them, if they fit. What is refused is
// counted at no moment: it would refuse others.
bool MemoryBudget::Add(int64_t bytes, int64_t hold_bytes, int64_t spare) {
  int64_t before = used_;
  do {
    if (!Fits(before + bytes, hold_bytes, spare)) {
      ++shed_;
      return false;
    }
  } while (!used_.compare_exchange_weak(before, before + bytes));
  const int64_t used = before + bytes;
  for (int64_t peak = peak_; peak < used && !peak_.compare_exchange_weak(peak, used);) continue;
  return true;
}

bool MemoryBudget::HasRoom(int64_t bytes, int64_t spare) {
  const bool fits = Fits(used_ + bytes, bytes, spare);
  if (!fits) ++shed_;
  return fits;
}

std::optional<MemoryBudget::Hold> MemoryBudget::Take(int64_t bytes, int64_t spare) {
  if (!Add(bytes, bytes, spare)) return std::nullopt;
  return Hold(*this, bytes);
}

bool MemoryBudget::Hold::Grow(int64_t more, int64_t spare) {
  if (!budget_->Add(more, bytes_ + more, spare)) return false;
  bytes_ += more;
  return true;
}

void MemoryBudget::NoteResident(int64_t bytes) {
  resident_ = bytes;
  used_then_ = used_.load();
}

MemoryBudget::Stats MemoryBudget::stats() const {
  return {used_, server_bytes_, process_bytes_, resident_, shed_};
}

int64_t ResidentBytes() {
  // "size resident shared …" in pages.
  std::FILE* file = std::fopen("/proc/self/statm", "r");
  if (file == nullptr) return 0;
  long long pages = 0;
  const int read = std::fscanf(file, "%*s %lld", &pages);
  std::fclose(file);
  return read == 1 ? static_cast<int64_t>(pages) * ::sysconf(_SC_PAGESIZE) : 0;
}

}  // namespace braid

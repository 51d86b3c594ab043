// Counts which experts tokens choose, layer by layer: logical experts, so placements and ranks do
// not matter, and every token of a step, so nothing but real tokens. Windows of 100 passes, or each
// pass, go to a file; the balance of windows of 10, 100 and 1000 passes can be asked for at any
// time. One thread counts; any thread may ask for balances and for the last window.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "experts/load_file.h"

namespace braid {

// What a line of the file is: a window of 100 passes; a pass; or a pass with the choices of every
// token, which of several ranks nobody has together.
enum class LoadDetail : uint8_t { kWindows, kPasses, kTokens };

class ExpertRecorder {
 public:
  static constexpr std::array<int32_t, 3> kWindows = {10, 100, 1000};  // each a multiple
  // By window: tokens of the mean expert over those of the fullest one, summed over layers, of the
  // last window that is complete; 0 before the first.
  using Balances = std::array<double, kWindows.size()>;

  // `header` has no windows.
  explicit ExpertRecorder(ExpertLoads header);
  ~ExpertRecorder();
  ExpertRecorder(const ExpertRecorder&) = delete;

  // Replaces the file. kInternal when it cannot be written.
  Status Open(const std::string& path, LoadDetail detail = LoadDetail::kWindows);
  // Writes what the last windows did not; the first error of any write.
  // Of several ranks: of complete shortest windows only.
  Status Close(bool several_ranks = false);

  // Of several ranks each counts its own tokens: before the pass ends that completes the shortest
  // window, one of them gets all that the others have counted since the last one, layer by layer,
  // and adds it; the others forget it. The index is that of the header's layers.
  bool completes_window() const { return windows_[0].passes + 1 == kWindows[0]; }
  std::span<const int64_t> Open(size_t index) const { return windows_[0].counts[index]; }
  void AppendOpen(std::vector<int64_t>& counts) const;
  void AddOpen(std::span<const int64_t> counts);
  void ForgetOpen();
  const ExpertLoads& header() const { return header_; }

  // The experts of a layer's tokens, top_k each. The layer is one of the header's.
  void Count(int32_t layer, std::span<const int32_t> experts);
  // All layers have counted a step of so many tokens.
  void EndPass(int64_t tokens);

  Balances balances() const;
  // The last complete window of 100 passes; before the first, that of 10; no passes before that.
  LoadWindow last() const;

 private:
  void Complete(size_t window);
  void Write(const LoadWindow& window);
  void WritePass(int64_t tokens);
  void EndFile();  // after an error

  const ExpertLoads header_;
  std::vector<int32_t> index_;  // of a layer of the model in header_.layers
  // Each holds the passes since the last complete window of its length that the one before it has
  // handed over; the first those of its own.
  std::array<LoadWindow, kWindows.size()> windows_;
  std::array<std::atomic<double>, kWindows.size()> balances_ = {};
  mutable std::mutex last_mutex_;
  LoadWindow last_;
  std::FILE* file_ = nullptr;
  LoadDetail detail_ = LoadDetail::kWindows;
  std::vector<std::vector<int32_t>> pass_;  // choices of the pass that is open, if lines are passes
  std::string path_;
  Status error_;
};

}  // namespace braid

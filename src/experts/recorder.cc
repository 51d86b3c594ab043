// Shorter windows are added to the next longer one when they are complete, so a step counts once.
#include "experts/recorder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <numeric>

#include "base/check.h"

namespace braid {
namespace {

constexpr size_t kFileWindow = 1;  // of kWindows

void Clear(LoadWindow& window) {
  window.passes = window.tokens = 0;
  for (auto& counts : window.counts) std::ranges::fill(counts, 0);
}

double BalanceOf(const LoadWindow& window) {
  int64_t sum = 0, fullest = 0;
  for (const auto& counts : window.counts) {
    sum += std::accumulate(counts.begin(), counts.end(), int64_t{0});
    fullest += std::ranges::max(counts) * static_cast<int64_t>(counts.size());
  }
  return fullest > 0 ? static_cast<double>(sum) / static_cast<double>(fullest) : 1;
}

}  // namespace

ExpertRecorder::ExpertRecorder(ExpertLoads header) : header_(std::move(header)) {
  CHECK(header_.windows.empty() && !header_.layers.empty());
  index_.assign(static_cast<size_t>(header_.layers.back()) + 1, -1);
  for (size_t i = 0; i < header_.layers.size(); ++i) {
    index_[static_cast<size_t>(header_.layers[i])] = static_cast<int32_t>(i);
  }
  for (LoadWindow& window : windows_) {
    window.counts.assign(header_.layers.size(),
                         std::vector<int64_t>(static_cast<size_t>(header_.experts)));
  }
}

ExpertRecorder::~ExpertRecorder() {
  if (file_ != nullptr) std::fclose(file_);
}

Status ExpertRecorder::Open(const std::string& path, LoadDetail detail) {
  path_ = path;
  detail_ = detail;
  pass_.resize(header_.layers.size());
  file_ = std::fopen(path.c_str(), "w");
  const std::string line = HeaderLine(header_);
  if (file_ == nullptr || std::fputs(line.c_str(), file_) < 0 || std::fflush(file_) != 0) {
    EndFile();
    return error_;
  }
  return {};
}

// The first error ends the file, not the run.
void ExpertRecorder::EndFile() {
  error_ = Error{ErrorCode::kInternal,
                 fmt::format("{} cannot be written: {}", path_, std::strerror(errno))};
  if (file_ != nullptr) std::fclose(file_);
  file_ = nullptr;
}

void ExpertRecorder::AppendOpen(std::vector<int64_t>& counts) const {
  for (const auto& layer : windows_[0].counts) {
    counts.insert(counts.end(), layer.begin(), layer.end());
  }
}

void ExpertRecorder::AddOpen(std::span<const int64_t> counts) {
  CHECK(counts.size() == header_.layers.size() * static_cast<size_t>(header_.experts));
  auto next = counts.begin();
  for (auto& layer : windows_[0].counts) {
    for (int64_t& count : layer) count += *next++;
  }
}

void ExpertRecorder::ForgetOpen() {
  for (auto& layer : windows_[0].counts) std::ranges::fill(layer, 0);
}

Status ExpertRecorder::Close(bool several_ranks) {
  if (file_ == nullptr) return error_;
  if (several_ranks) Clear(windows_[0]);
  for (size_t window = 0; window < kFileWindow; ++window) {
    windows_[window + 1] += windows_[window];
    Clear(windows_[window]);
  }
  if (windows_[kFileWindow].passes > 0 && detail_ == LoadDetail::kWindows) {
    Write(windows_[kFileWindow]);
  }
  if (file_ != nullptr) std::fclose(file_);
  file_ = nullptr;
  return error_;
}

void ExpertRecorder::Count(int32_t layer, std::span<const int32_t> experts) {
  const int32_t at = index_[static_cast<size_t>(layer)];
  CHECK(at >= 0, "layer {} has no experts", layer);
  int64_t* counts = windows_[0].counts[static_cast<size_t>(at)].data();
  for (const int32_t expert : experts) ++counts[expert];
  if (file_ == nullptr || detail_ == LoadDetail::kWindows) return;
  std::vector<int32_t>& pass = pass_[static_cast<size_t>(at)];
  pass.insert(pass.end(), experts.begin(), experts.end());
}

void ExpertRecorder::WritePass(int64_t tokens) {
  if (file_ == nullptr || detail_ == LoadDetail::kWindows) return;
  LoadWindow window{.passes = 1, .tokens = tokens, .counts = {}};
  for (const std::vector<int32_t>& layer : pass_) {
    std::vector<int64_t>& counts = window.counts.emplace_back(header_.experts);
    for (const int32_t expert : layer) ++counts[static_cast<size_t>(expert)];
  }
  if (detail_ == LoadDetail::kTokens) window.choices = pass_;
  Write(window);
  for (std::vector<int32_t>& layer : pass_) layer.clear();
}

void ExpertRecorder::EndPass(int64_t tokens) {
  ++windows_[0].passes;
  windows_[0].tokens += tokens;
  WritePass(tokens);
  for (size_t w = 0; w < kWindows.size() && windows_[w].passes == kWindows[w]; ++w) Complete(w);
}

void ExpertRecorder::Complete(size_t window) {
  balances_[window].store(BalanceOf(windows_[window]), std::memory_order_relaxed);
  if (window == kFileWindow && detail_ == LoadDetail::kWindows) Write(windows_[window]);
  if (window <= kFileWindow) {
    const std::lock_guard lock(last_mutex_);
    if (window == kFileWindow || last_.passes < kWindows[kFileWindow]) last_ = windows_[window];
  }
  if (window + 1 < kWindows.size()) windows_[window + 1] += windows_[window];
  Clear(windows_[window]);
}

void ExpertRecorder::Write(const LoadWindow& window) {
  if (file_ == nullptr) return;
  const std::string line = WindowLine(window);
  if (std::fputs(line.c_str(), file_) < 0 || std::fflush(file_) != 0) EndFile();
}

ExpertRecorder::Balances ExpertRecorder::balances() const {
  Balances out = {};
  for (size_t i = 0; i < out.size(); ++i) out[i] = balances_[i].load(std::memory_order_relaxed);
  return out;
}

LoadWindow ExpertRecorder::last() const {
  const std::lock_guard lock(last_mutex_);
  return last_;
}

}  // namespace braid

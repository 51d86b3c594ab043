// Cases of transfer.h for its test and for the test that its planted mistakes are found.
#pragma once

#include <fmt/format.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/check.h"
#include "vulkan/transfer.h"

namespace braid::vulkan {

class TransferCases {
 public:
  // The first device that can be used; null: there is none.
  static std::unique_ptr<Gpu> OpenAny() {
    const auto devices = ListDevices();
    for (size_t i = 0; devices && i < devices->size(); ++i) {
      if (!(*devices)[i].missing.empty()) continue;
      auto gpu = Gpu::Open(static_cast<int>(i));
      CHECK(gpu.ok(), "{}", gpu.error().message);
      return *std::move(gpu);
    }
    return nullptr;
  }

  // What went wrong, a line for each: pieces that fit at once, that fill what lies between both
  // sides, that go past it, alone and together.
  static std::vector<std::string> Failed(Gpu& gpu) {
    TransferCases cases(gpu);
    for (const std::vector<int64_t>& sizes : std::vector<std::vector<int64_t>>{{1},
                                                                               {kAtOnce},
                                                                               {kAtOnce + 1},
                                                                               {3 * kAtOnce + 7},
                                                                               {10, 20, 30},
                                                                               {kAtOnce - 5, 10, 7},
                                                                               {kAtOnce, kAtOnce},
                                                                               {0, 5},
                                                                               {}}) {
      cases.GoAndComeBack(sizes);
    }
    return cases.failed_;
  }

 private:
  static constexpr int64_t kAtOnce = 1000, kBytes = 8192;

  explicit TransferCases(Gpu& gpu) {
    auto memory = gpu.Allocate(kBytes, Place::kDevice);
    CHECK(memory.ok());
    memory_ = *std::move(memory);
    auto transfer = Transfer::Create(gpu, memory_, kAtOnce);
    CHECK(transfer.ok());
    transfer_ = *std::move(transfer);
    sent_.resize(kBytes);
    got_.resize(kBytes);
  }

  std::vector<Transfer::Piece> Pieces(const std::vector<int64_t>& sizes,
                                      std::vector<std::byte>& bytes) const {
    std::vector<Transfer::Piece> pieces;
    int64_t at = 0;
    for (const int64_t size : sizes) {
      at += 16;  // that stay
      pieces.push_back(
          {memory_.address() + at,
           std::span(bytes).subspan(static_cast<size_t>(at), static_cast<size_t>(size))});
      at += size;
    }
    CHECK(at <= kBytes);
    return pieces;
  }

  void GoAndComeBack(const std::vector<int64_t>& sizes) {
    const auto whole = std::vector<Transfer::Piece>{{memory_.address(), std::span(sent_)}};
    std::vector<std::byte> want(kBytes, std::byte{0xee});
    std::memset(sent_.data(), 0xee, kBytes);
    bool done = transfer_->ToDevice(whole).ok();
    for (size_t i = 0; i < sent_.size(); ++i) sent_[i] = static_cast<std::byte>(i * 7 + i / 256);
    for (const Transfer::Piece& piece : Pieces(sizes, sent_)) {
      const int64_t at = piece.there - memory_.address();
      std::copy(piece.here.begin(), piece.here.end(), want.begin() + at);
    }
    done = done && transfer_->ToDevice(Pieces(sizes, sent_)).ok();
    std::memset(got_.data(), 0, kBytes);
    const auto back = std::vector<Transfer::Piece>{{memory_.address(), std::span(got_)}};
    done = done && transfer_->ToHost(back).ok();
    if (!done || got_ != want) failed_.push_back(fmt::format("{} pieces there", sizes.size()));
    std::memset(got_.data(), 0xee, kBytes);
    done = done && transfer_->ToHost(Pieces(sizes, got_)).ok();
    if (!done || got_ != want) failed_.push_back(fmt::format("{} pieces back", sizes.size()));
  }

  Memory memory_;
  std::unique_ptr<Transfer> transfer_;
  std::vector<std::byte> sent_, got_;
  std::vector<std::string> failed_;
};

}  // namespace braid::vulkan

// A Vulkan device for the op tests: ops called with host memory run on copies of it, which come
// back. The copies are made by memcpy, through memory that both sides see.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <vector>

#include "base/check.h"
#include "base/math.h"
#include "ops/vulkan/batch.h"
#include "ops/vulkan/candidates.h"
#include "ops/vulkan/sample.h"
#include "tensor/tensor.h"
#include "vulkan/gpu.h"

namespace braid::ops {

class TestDevice {
 public:
  // The first usable device; null and why there is none.
  static std::unique_ptr<TestDevice> Open(std::string* why) {
    const auto found = vulkan::ListDevices();
    *why = found ? "no device can be used" : found.error().message;
    for (size_t i = 0; found && i < found->size(); ++i) {
      if (!(*found)[i].missing.empty()) continue;
      auto gpu = vulkan::Gpu::Open((*found)[i].index);
      CHECK(gpu.ok(), "{}", gpu.error().message);
      return std::unique_ptr<TestDevice>(new TestDevice(*std::move(gpu)));
    }
    return nullptr;
  }

  template <class T>
  T* In(const T* data, int64_t count) {
    if (data == nullptr) return nullptr;
    const int64_t at = Take(count * static_cast<int64_t>(sizeof(T)));
    std::memcpy(memory_.host() + at, data, static_cast<size_t>(count) * sizeof(T));
    return reinterpret_cast<T*>(memory_.address() + at);
  }
  template <class T>
  T* Out(T* data, int64_t count) {
    T* copy = In(data, count);
    Return(copy, data, count * static_cast<int64_t>(sizeof(T)));
    return copy;
  }
  Matrix In(Matrix m) { return Copy(m, false); }
  Matrix Out(Matrix m) { return Copy(m, true); }
  const PackedMatrix* In(const PackedMatrix* w) {
    if (w == nullptr) return nullptr;
    matrices_.push_back(std::make_unique<PackedMatrix>(*w));
    matrices_.back()->data = In(w->data, w->bytes());
    return matrices_.back().get();
  }
  // With the blocks behind them, of group 0, which come back.
  SequenceIndex Out(const SequenceIndex& from, int64_t block_bytes) {
    spans_.assign(from.spans, from.spans + from.count);
    std::vector<DeviceSpan> spans;
    std::vector<int32_t> span_of(static_cast<size_t>(from.tokens));
    int64_t entries = 1;
    for (const SequenceSpan& span : spans_) {
      entries = std::max(entries, CeilDiv(span.start + span.token_count, kBlockTokens));
    }
    std::vector<uint64_t> tables;
    for (int32_t s = 0; s < from.count; ++s) {
      const SequenceSpan& span = spans_[static_cast<size_t>(s)];
      spans.push_back({span.token_begin, span.token_count, span.start, s});
      for (int32_t i = 0; i < span.token_count; ++i) {
        span_of[static_cast<size_t>(span.token_begin + i)] = s;
      }
      const int64_t own = CeilDiv(span.start + span.token_count, kBlockTokens);
      for (int64_t b = 0; b < entries; ++b) {
        std::byte* block = b < own ? span.tables[0][b] : nullptr;
        tables.push_back(reinterpret_cast<uint64_t>(Out(block, block_bytes)));
      }
    }
    const DeviceBatchTable table{
        .spans = reinterpret_cast<uint64_t>(In(spans.data(), std::ssize(spans))),
        .span_of = reinterpret_cast<uint64_t>(In(span_of.data(), std::ssize(span_of))),
        .tables = reinterpret_cast<uint64_t>(In(tables.data(), std::ssize(tables))),
        .groups = 1,
        .entries = static_cast<int32_t>(entries)};
    batch_ = {reinterpret_cast<std::byte*>(In(&table, 1)), spans_.data()};
    return {spans_.data(), from.count, from.tokens};
  }

  // Runs an op on the copies that were made since the last.
  template <class Args>
  void Run(void (*op)(const OpContext&, const Args&), const Args& args) {
    Workspace workspace(scratch_.address(), scratch_.bytes());
    vulkan::Recorder recorder(*gpu_);
    OpContext context{.device = {.vulkan = true}, .pool = &pool_, .workspace = &workspace};
    context.recorder = &recorder;
    context.batch = &batch_;
    std::memset(scratch_.host(), 0xff, size_t{1} << 16);  // exposes reads of unwritten scratch
    op(context, args);
    const Status done = recorder.Finish();
    EXPECT_TRUE(done.ok()) << done.error().message;
    for (const Returned& r : returned_) {
      std::memcpy(r.to, memory_.host() + (r.from - memory_.address()), r.bytes);
    }
    returned_.clear();
    matrices_.clear();
    used_ = 0;
  }
  vulkan::Gpu& gpu() { return *gpu_; }
  // A device on which nothing runs any more, or none.
  static void Close(TestDevice* device) {
    if (device == nullptr) return;
    device->memory_ = {};
    device->scratch_ = {};
    device->gpu_.reset();
  }

 private:
  struct Returned {
    const std::byte* from;
    void* to;
    size_t bytes;
  };
  explicit TestDevice(std::unique_ptr<vulkan::Gpu> gpu)
      : gpu_(std::move(gpu)), pool_(1), memory_(Memory(256)), scratch_(Memory(128)) {}
  vulkan::Memory Memory(int64_t mib) {
    auto memory = gpu_->Allocate(mib << 20, vulkan::Place::kReadback);
    CHECK(memory.ok(), "{}", memory.error().message);
    return *std::move(memory);
  }
  int64_t Take(int64_t bytes) {
    const int64_t at = used_;
    used_ += RoundUp(bytes, 64);
    CHECK(used_ <= memory_.bytes());
    return at;
  }
  template <class T>
  void Return(T* from, T* to, int64_t bytes) {
    if (to == nullptr) return;
    returned_.push_back({reinterpret_cast<const std::byte*>(from), to, static_cast<size_t>(bytes)});
  }
  // Rows as far apart as they are.
  Matrix Copy(Matrix m, bool back) {
    if (m.data == nullptr) return m;
    const int64_t at = Take(std::max<int64_t>(m.rows, 1) * m.stride * 4);
    Matrix copy = m;
    copy.data = reinterpret_cast<float*>(memory_.address() + at);
    for (int64_t r = 0; r < m.rows; ++r) {
      std::memcpy(memory_.host() + at + 4 * r * m.stride, m.row(r),
                  static_cast<size_t>(4 * m.cols));
      if (back) Return(copy.row(r), m.row(r), 4 * m.cols);
    }
    return copy;
  }

  std::unique_ptr<vulkan::Gpu> gpu_;
  ThreadPool pool_;
  vulkan::Memory memory_, scratch_;
  int64_t used_ = 0;
  std::vector<Returned> returned_;
  std::vector<SequenceSpan> spans_;
  DeviceBatch batch_;
  std::vector<std::unique_ptr<PackedMatrix>> matrices_;
};

// The ops, on copies.
inline void SpoilWorkspace(TestDevice&) {}  // every run does

inline void Embed(TestDevice& d, EmbedArgs a) {
  a.table = d.In(a.table);
  a.ids = d.In(a.ids, a.out.rows);
  a.out = d.Out(a.out);
  d.Run(Embed, a);
}
inline void RmsNorm(TestDevice& d, RmsNormArgs a) {
  a.x = d.Out(a.x);
  a.delta = d.In(a.delta);
  a.weight = d.In(a.weight, a.x.cols);
  a.out = d.Out(a.out);
  d.Run(RmsNorm, a);
}
inline void GatedNorm(TestDevice& d, GatedNormArgs a) {
  a.x = d.In(a.x);
  a.gate = d.In(a.gate);
  a.weight = d.In(a.weight, a.weight_per_channel ? a.x.cols : a.head_dim);
  a.out = d.Out(a.out);
  d.Run(GatedNorm, a);
}
inline void Linear(TestDevice& d, LinearArgs a) {
  a.x = d.In(a.x);
  a.w = d.In(a.w);
  a.y = d.Out(a.y);
  d.Run(Linear, a);
}
inline void Swiglu(TestDevice& d, SwigluArgs a) {
  a.gate_up = d.In(a.gate_up);
  a.out = d.Out(a.out);
  d.Run(Swiglu, a);
}
inline void ScalarGate(TestDevice& d, ScalarGateArgs a) {
  a.out = d.Out(a.out, a.x.rows);
  a.weight = d.In(a.weight, a.x.cols);
  a.x = d.In(a.x);
  d.Run(ScalarGate, a);
}
inline void AddRows(TestDevice& d, AddRowsArgs a) {
  a.rows = d.In(a.rows);
  a.at = d.In(a.at, a.out.rows * a.k);
  a.weights = d.In(a.weights, a.out.rows * a.k);
  a.out = d.Out(a.out);
  d.Run(AddRows, a);
}
inline void Route(TestDevice& d, RouteArgs a) {
  a.bias = d.In(a.bias, a.logits.cols);
  a.ids = d.Out(a.ids, a.logits.rows * a.top_k);
  a.weights = d.Out(a.weights, a.logits.rows * a.top_k);
  a.logits = d.In(a.logits);
  d.Run(Route, a);
}
inline void Experts(TestDevice& d, ExpertsArgs a) {
  a.gate_up = d.In(a.gate_up);
  a.down = d.In(a.down);
  a.shared_gate_up = d.In(a.shared_gate_up);
  a.shared_down = d.In(a.shared_down);
  a.ids = d.In(a.ids, a.x.rows * a.top_k);
  a.weights = d.In(a.weights, a.x.rows * a.top_k);
  a.shared_weight = d.In(a.shared_weight, a.x.rows);
  a.x = d.In(a.x);
  a.out = d.Out(a.out);
  d.Run(Experts, a);
}
inline void NormRopeWriteKv(TestDevice& d, WriteKvArgs a) {
  a.sequences = d.Out(a.sequences, a.cache.byte_offset + a.shape.kv_heads * a.shape.head_bytes());
  a.q = d.In(a.q);
  a.k = d.In(a.k);
  a.v = d.In(a.v);
  a.q_norm = d.In(a.q_norm, a.shape.head_dim);
  a.k_norm = d.In(a.k_norm, a.shape.head_dim);
  a.inverse_frequency = d.In(a.inverse_frequency, a.rotary_pairs);
  a.q_out = d.Out(a.q_out);
  d.Run(NormRopeWriteKv, a);
}
inline void Attention(TestDevice& d, AttentionArgs a) {
  a.sequences = d.Out(a.sequences, a.cache.byte_offset + a.shape.kv_heads * a.shape.head_bytes());
  a.q = d.In(a.q);
  a.gate = d.In(a.gate);
  a.out = d.Out(a.out);
  d.Run(Attention, a);
}
inline void HeadNormRotate(TestDevice& d, HeadNormRotateArgs a) {
  a.sequences = d.Out(a.sequences, 64);
  a.x = d.Out(a.x);
  a.weight = d.In(a.weight, a.head_dim);
  a.rotation.inverse_frequency = d.In(a.rotation.inverse_frequency, a.rotation.pairs);
  d.Run(HeadNormRotate, a);
}
inline void WriteLatent(TestDevice& d, WriteLatentArgs a) {
  a.sequences = d.Out(a.sequences, a.cache.byte_offset + a.shape.head_bytes());
  a.row = d.In(a.row);
  a.norm = d.In(a.norm, a.shape.value_dim);
  a.rotation.inverse_frequency = d.In(a.rotation.inverse_frequency, a.rotation.pairs);
  a.q = d.In(a.q);
  a.q_out = d.Out(a.q_out);
  d.Run(WriteLatent, a);
}
inline void HeadLinear(TestDevice& d, HeadLinearArgs a) {
  a.x = d.In(a.x);
  a.w = d.In(a.w);
  a.gate = d.In(a.gate);
  a.y = d.Out(a.y);
  d.Run(HeadLinear, a);
}
inline void SampleRows(TestDevice& d, gpu::SampleRowsArgs a) {
  a.draws = d.In(a.draws, a.logits.rows);
  a.drawn = d.Out(a.drawn, a.logits.rows);
  a.logits = d.In(a.logits);
  d.Run(gpu::RunSample, a);
}
inline void CausalConv(TestDevice& d, ConvArgs a) {
  a.sequences = d.Out(a.sequences, a.cache.byte_offset + StateBlockBytes(a.shape));
  a.x = d.In(a.x);
  a.weight = d.In(a.weight, a.shape.conv_width * a.shape.conv_channels());
  a.out = d.Out(a.out);
  d.Run(CausalConv, a);
}
inline void LinearAttentionStep(TestDevice& d, LinearAttentionArgs a) {
  a.sequences = d.Out(a.sequences, a.cache.byte_offset + StateBlockBytes(a.shape));
  a.qkv = d.In(a.qkv);
  a.a = d.In(a.a);
  a.b = d.In(a.b);
  a.a_log = d.In(a.a_log, a.shape.value_heads);
  a.dt_bias = d.In(a.dt_bias, a.shape.value_heads * a.shape.decay_width());
  a.constant = d.In(a.constant, a.shape.value_heads);
  a.out = d.Out(a.out);
  d.Run(LinearAttentionStep, a);
}

}  // namespace braid::ops

// Row-wise functions: norms, gates, convolution, conversions. A row's length is fixed by the model,
// so whole vectors and the masked tail cut a row in the same places every time.
#pragma once

#include "ops/cpu/kernels/table.h"

namespace braid::ops::cpu {

template <class V>
struct Rows {
  using F = typename V::F;
  static constexpr int64_t kLanes = V::kLanes;

  // f(index, count) for whole vectors, then for the tail with count < kLanes.
  template <class Whole, class Tail>
  static void ForEach(int64_t count, const Whole& whole, const Tail& tail) {
    int64_t i = 0;
    for (; i + kLanes <= count; i += kLanes) whole(i);
    if (i < count) tail(i, count - i);
  }

  // out[i] = f(x..., i) with masked loads at the end.
  template <class Function>
  static void Map(int64_t count, float* out, const Function& f) {
    ForEach(
        count,
        [&](int64_t i) { V::Store(out + i, f([&](const float* p) { return V::Load(p + i); })); },
        [&](int64_t i, int64_t n) {
          V::StoreSome(out + i, f([&](const float* p) { return V::LoadSome(p + i, n); }), n);
        });
  }

  static F Sigmoid(F x) {
    return V::Div(V::Set1(1.0f), V::Add(V::Set1(1.0f), V::Exp(V::Sub(V::Zero(), x))));
  }
  static F Silu(F x) { return V::Mul(x, Sigmoid(x)); }

  static float Dot(const float* a, const float* b, int64_t count) {
    F sum = V::Zero();
    ForEach(
        count, [&](int64_t i) { sum = V::Fma(V::Load(a + i), V::Load(b + i), sum); },
        [&](int64_t i, int64_t n) {
          sum = V::Fma(V::LoadSome(a + i, n), V::LoadSome(b + i, n), sum);
        });
    return V::Sum(sum);
  }

  static float InverseRms(const float* x, int64_t count, float eps) {
    return 1.0f / V::Sqrt(Dot(x, x, count) / static_cast<float>(count) + eps);
  }

  static void RmsNorm(const NormTask& t) {
    if (t.delta) {
      Map(t.cols, t.x, [&](auto load) { return V::Add(load(t.x), load(t.delta)); });
    }
    if (!t.out) return;
    const F scale = V::Set1(InverseRms(t.x, t.cols, t.eps));
    const F offset = V::Set1(t.weight_offset);
    Map(t.cols, t.out, [&](auto load) {
      return V::Mul(V::Mul(load(t.x), scale), V::Add(offset, load(t.weight)));
    });
  }

  static void GatedNorm(const GatedNormTask& t) {
    const F scale = V::Set1(InverseRms(t.x, t.cols, t.eps));
    Map(t.cols, t.out, [&](auto load) {
      const F gate = t.sigmoid ? Sigmoid(load(t.gate)) : Silu(load(t.gate));
      return V::Mul(V::Mul(V::Mul(load(t.x), scale), load(t.weight)), gate);
    });
  }

  // Width and tokens as constants keep inputs in registers that several tokens read.
  template <int kWidth, int kTokens>
  static void ConvTokens(const ConvTask& t) {
    const int64_t whole = t.channels / kLanes * kLanes;
    for (int64_t c = 0; c < whole; c += kLanes) {
      F x[kWidth + kTokens - 1], sums[kTokens];
      for (int j = 0; j < kWidth + kTokens - 1; ++j) x[j] = V::Load(t.x[j] + c);
      for (F& sum : sums) sum = V::Zero();
      for (int j = 0; j < kWidth; ++j) {
        const F weight = V::Load(t.weight + j * t.channels + c);
        for (int i = 0; i < kTokens; ++i) sums[i] = V::Fma(weight, x[i + j], sums[i]);
      }
      for (int i = 0; i < kTokens; ++i) {
        float* out = t.out + i * t.out_stride + c;
        t.past_caches ? V::StorePastCaches(out, Silu(sums[i])) : V::Store(out, Silu(sums[i]));
      }
    }
    if (t.past_caches) V::StoreFence();
    for (int i = 0; whole < t.channels && i < kTokens; ++i) ConvToken(t, i, whole);
  }

  // One token's channels from `begin` on.
  static void ConvToken(const ConvTask& t, int token, int64_t begin) {
    Map(t.channels - begin, t.out + token * t.out_stride + begin, [&](auto load) {
      F sum = V::Zero();
      for (int j = 0; j < t.width; ++j) {
        const float* weight = t.weight + j * t.channels + begin;
        sum = V::Fma(load(weight), load(t.x[token + j] + begin), sum);
      }
      return Silu(sum);
    });
  }

  static void Conv(const ConvTask& t) {
    if (t.width == 4 && t.tokens == kConvTokens) return ConvTokens<4, kConvTokens>(t);
    for (int i = 0; i < t.tokens; ++i) ConvToken(t, i, 0);
  }

  static void Swiglu(const float* gate, const float* up, float* out, int64_t count, float limit) {
    if (limit <= 0.0f) {
      Map(count, out, [&](auto load) { return V::Mul(Silu(load(gate)), load(up)); });
      return;
    }
    const F low = V::Set1(-limit);
    auto negative = [](F x) { return V::Sub(V::Zero(), x); };
    auto at_most = [&](F x) { return negative(V::Max(low, negative(x))); };
    Map(count, out, [&](auto load) {
      return V::Mul(at_most(Silu(load(gate))), at_most(V::Max(low, load(up))));
    });
  }

  static void SigmoidMul(const float* gate, float* x, int64_t count) {
    Map(count, x, [&](auto load) { return V::Mul(load(x), Sigmoid(load(gate))); });
  }

  static void SigmoidOf(const float* x, float* out, int64_t count) {
    Map(count, out, [&](auto load) { return Sigmoid(load(x)); });
  }

  // log(1 + exp(x)) = max(x, 0) + log1p(t), t = exp(-|x|) in (0, 1]; log1p(t) = 2 artanh(t / (2 +
  // t)), whose argument is at most 1 / 3.
  static F Softplus(F x) {
    const F negative = V::Sub(V::Zero(), x);
    const F t = V::Exp(V::Sub(V::Zero(), V::Max(x, negative)));
    const F s = V::Div(t, V::Add(V::Set1(2.0f), t));
    const F s2 = V::Mul(s, s);
    F p = V::Set1(2.0f / 17);
    for (int n = 15; n >= 1; n -= 2) p = V::Fma(p, s2, V::Set1(2.0f / static_cast<float>(n)));
    return V::Fma(p, s, V::Max(V::Zero(), x));
  }

  static void LogDecay(const LogDecayTask& t) {
    if (t.bound < 0.0f) {
      const F bound = V::Set1(t.bound);
      Map(t.count, t.out, [&](auto load) {
        return V::Mul(bound, Sigmoid(V::Mul(load(t.rate), V::Add(load(t.a), load(t.bias)))));
      });
      return;
    }
    Map(t.count, t.out, [&](auto load) {
      const F rate = V::Sub(V::Zero(), load(t.rate));
      return V::Mul(rate, Softplus(V::Add(load(t.a), load(t.bias))));
    });
  }

  static void AddScaled(const float* x, float scale, float* y, int64_t count) {
    const F s = V::Set1(scale);
    Map(count, y, [&](auto load) { return V::Fma(s, load(x), load(y)); });
  }

  static void Unit(float* x, int64_t count, float scale) {
    const F s = V::Set1(scale / V::Sqrt(Dot(x, x, count) + 1e-6f));
    Map(count, x, [&](auto load) { return V::Mul(load(x), s); });
  }

  // Pair j by the angle whose cosine is cos_sin[j] and sine cos_sin[pairs + j]: channels j and
  // j + pairs, or 2 j and 2 j + 1 when interleaved.
  static void Rotate(float* x, const float* cos_sin, int64_t pairs, bool interleaved) {
    const int64_t step = interleaved ? 2 : 1, apart = interleaved ? 1 : pairs;
    for (int64_t j = 0; j < pairs; ++j) {
      float* p = x + j * step;
      const float a = p[0], b = p[apart], c = cos_sin[j], s = cos_sin[pairs + j];
      p[0] = a * c - b * s;
      p[apart] = b * c + a * s;
    }
  }

  static void ToBf16(const float* x, uint16_t* out, int64_t count) {
    ForEach(
        count, [&](int64_t i) { V::StoreBf16(out + i, V::Load(x + i)); },
        [&](int64_t i, int64_t n) {
          uint16_t tail[kLanes];
          V::StoreBf16(tail, V::LoadSome(x + i, n));
          for (int64_t j = 0; j < n; ++j) out[i + j] = tail[j];
        });
  }

  // Returns the scale. See KernelTable::to_int8.
  static float ToInt8(const float* x, int8_t* out, int64_t count) {
    F most = V::Zero(), poison = V::Zero();
    auto look = [&](F v) {
      most = V::Max(most, V::Max(v, V::Sub(V::Zero(), v)));
      poison = V::Fma(v, V::Zero(), poison);
    };
    ForEach(
        count, [&](int64_t i) { look(V::Load(x + i)); },
        [&](int64_t i, int64_t n) { look(V::LoadSome(x + i, n)); });
    const float maximum = V::MaxLane(most), finite = V::Sum(poison);
    const bool some = finite == 0.0f && maximum >= 0x1p-100f;
    const F factor = V::Set1(some ? 127.0f / maximum : 0.0f);
    ForEach(
        count, [&](int64_t i) { V::StoreI8(out + i, V::Mul(V::Load(x + i), factor)); },
        [&](int64_t i, int64_t n) {
          int8_t tail[kLanes];
          V::StoreI8(tail, V::Mul(V::LoadSome(x + i, n), factor));
          for (int64_t j = 0; j < n; ++j) out[i + j] = tail[j];
        });
    return finite != 0.0f ? __builtin_nanf("") : some ? maximum / 127.0f : 0.0f;
  }

  static float Max(const float* x, int64_t count) {
    if (count < kLanes) {
      float m = x[0];
      for (int64_t i = 1; i < count; ++i) m = x[i] > m ? x[i] : m;
      return m;
    }
    F m = V::Load(x);
    for (int64_t i = kLanes; i + kLanes <= count; i += kLanes) m = V::Max(m, V::Load(x + i));
    return V::MaxLane(V::Max(m, V::Load(x + count - kLanes)));
  }

  static float SumExp(const float* x, int64_t count, float maximum, float scale) {
    const F m = V::Set1(maximum), by = V::Set1(scale);
    auto exp = [&](F v) { return V::Exp(V::Mul(V::Sub(v, m), by)); };
    F sum = V::Zero();
    float rest = 0.0f;
    ForEach(
        count, [&](int64_t i) { sum = V::Add(sum, exp(V::Load(x + i))); },
        [&](int64_t i, int64_t n) {
          float tail[kLanes];
          V::Store(tail, exp(V::LoadSome(x + i, n)));
          for (int64_t j = 0; j < n; ++j) rest += tail[j];
        });
    return V::Sum(sum) + rest;
  }
};

// Rows of a state page (ops/state_layout.h): rounded, stored and as floats again. Rounding is
// idempotent, so a row that was rounded when it was computed is stored without a further error.
// Rows are whole vectors.
template <class V>
struct KeptRows {
  using F = typename V::F;
  static constexpr int64_t kLanes = V::kLanes;

  // The least power of two of which the row has at most 127; 0 where max |x| < 2^-100, NaN where x
  // is not finite. A rounded row has the scale that it was rounded with.
  static float Scale(const float* x, int64_t dim) {
    F most = V::Zero(), poison = V::Zero();
    for (int64_t i = 0; i < dim; i += kLanes) {
      const F v = V::Load(x + i);
      most = V::Max(most, V::Max(v, V::Sub(V::Zero(), v)));
      poison = V::Fma(v, V::Zero(), poison);
    }
    const float maximum = V::MaxLane(most);
    if (V::Sum(poison) != 0.0f) return __builtin_nanf("");
    if (maximum < 0x1p-100f) return 0.0f;
    // 127 is 1.984375 * 2^6: what exceeds that mantissa takes the next power.
    const uint32_t bits = __builtin_bit_cast(uint32_t, maximum);
    return __builtin_bit_cast(float, (((bits + 0x1ffffu) >> 23) - 6) << 23);
  }
  // A factor of zero leaves rows of zeros, and rows that are not finite to their scale.
  static F Inverse(float scale) { return V::Set1(scale > 0.0f ? 1.0f / scale : 0.0f); }

  static void RoundRow(CacheFormat format, float* x, int64_t dim) {
    if (format == CacheFormat::kBF16) {
      uint16_t some[kLanes];
      for (int64_t i = 0; i < dim; i += kLanes) {
        V::StoreBf16(some, V::Load(x + i));
        V::Store(x + i, V::LoadBf16(some));
      }
    } else if (format == CacheFormat::kI8) {
      int8_t some[kLanes];
      const float scale = Scale(x, dim);
      const F inverse = Inverse(scale), by = V::Set1(scale);
      for (int64_t i = 0; i < dim; i += kLanes) {
        V::StoreI8(some, V::Mul(V::Load(x + i), inverse));
        V::Store(x + i, V::Mul(by, V::LoadI8(some)));
      }
    }
  }

  static void Round(CacheFormat format, float* x, int64_t rows, int64_t dim) {
    for (int64_t r = 0; r < rows; ++r) RoundRow(format, x + r * dim, dim);
  }

  static void Store(const float* x, const KeptBlock& kept) {
    const auto [format, rows, dim, numbers, scales] = kept;
    if (format == CacheFormat::kF32) {
      auto* to = reinterpret_cast<float*>(numbers);
      for (int64_t i = 0; i < rows * dim; i += kLanes) V::Store(to + i, V::Load(x + i));
    } else if (format == CacheFormat::kBF16) {
      auto* to = reinterpret_cast<uint16_t*>(numbers);
      for (int64_t i = 0; i < rows * dim; i += kLanes) V::StoreBf16(to + i, V::Load(x + i));
    } else {
      for (int64_t r = 0; r < rows; ++r) {
        scales[r] = Scale(x + r * dim, dim);
        const F inverse = Inverse(scales[r]);
        auto* to = reinterpret_cast<int8_t*>(numbers) + r * dim;
        for (int64_t i = 0; i < dim; i += kLanes) {
          V::StoreI8(to + i, V::Mul(V::Load(x + r * dim + i), inverse));
        }
      }
    }
  }

  static void Load(const KeptBlock& kept, float* out) {
    const auto [format, rows, dim, numbers, scales] = kept;
    if (format == CacheFormat::kF32) {
      auto* from = reinterpret_cast<const float*>(numbers);
      for (int64_t i = 0; i < rows * dim; i += kLanes) V::Store(out + i, V::Load(from + i));
    } else if (format == CacheFormat::kBF16) {
      auto* from = reinterpret_cast<const uint16_t*>(numbers);
      for (int64_t i = 0; i < rows * dim; i += kLanes) V::Store(out + i, V::LoadBf16(from + i));
    } else {
      for (int64_t r = 0; r < rows; ++r) {
        const F by = V::Set1(scales[r]);
        auto* from = reinterpret_cast<const int8_t*>(numbers) + r * dim;
        for (int64_t i = 0; i < dim; i += kLanes) {
          V::Store(out + r * dim + i, V::Mul(by, V::LoadI8(from + i)));
        }
      }
    }
  }
};

}  // namespace braid::ops::cpu

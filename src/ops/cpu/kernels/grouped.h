// GEMM of the formats in kGroupedFormats: up to 256 columns of a few panels at a time become bytes
// and fp32 scales in the first-level cache (a slab), whatever the format; one loop over tiles of
// rows multiplies them. Outputs carry the sums from slab to slab, so an output adds its groups in
// ascending order whichever rows are beside it: total = fma(exact sum, scale, total), and where
// there is a base total = fma(-sum of the row's integers, base, total); at the end total * the
// row's scale.
#pragma once

#include "ops/cpu/kernels/gemm.h"

namespace braid::ops::cpu {

inline constexpr int64_t kSlabColumns = 256;
// Of one panel: codes [columns / 4][16][4], scales and bases [columns / group][16], which there are
// at least 16 columns apart.
inline constexpr int64_t kSlabScales = kSlabColumns * 16;
inline constexpr int64_t kSlabBases = kSlabScales + kSlabColumns / 16 * 64;
inline constexpr int64_t kSlabBytes = kSlabBases + kSlabColumns / 16 * 64;

// Rows that pass by one slab; their totals stay in the second-level cache.
inline constexpr int64_t kSlabRows = 192;

// The columns of a slab of some rows and panels.
struct SlabTile {
  const std::byte* x;       // of the first row; rows are 64 bytes apart
  int64_t x_step;           // from 64 columns to the next
  const std::byte* next_x;  // of the next tile, fetched ahead
  // Of the rows' groups at [g * terms_stride + r]: minus the sum times the codes' centre, and the
  // sum times -8.
  const int32_t* centres;
  const float* sums;
  int64_t terms_stride;
  const std::byte* slab;
  int64_t groups;
  float* carry;         // [rows][16 * panels]: totals of the slabs before this one and after it
  bool first;           // there are none before
  const float* scales;  // of the rows, at the last slab, whose results go to y; else null
  float* y;
  int64_t y_stride;
  int64_t cols;  // outputs that exist, counted from the first panel's
  // Lines of the panels' next blocks, fetched ahead: `ahead_lines` per group and panel.
  const std::byte* ahead;
  int64_t ahead_lines;
  int64_t panel_bytes;
};

// Where a vector of outputs has its part of a line of a slab.
template <class V>
const std::byte* PartAt(const std::byte* slab, int64_t offset, int c) {
  constexpr int kParts = 16 / V::kLanes;
  return slab + c / kParts * kSlabBytes + offset + c % kParts * (64 / kParts);
}

// Fetches a group's share of the next tile's activations and of the panels' next blocks.
template <int R, int P>
void FetchAhead(const SlabTile& t, int64_t group, int64_t column) {
  for (int r = 0; r < R && column % 64 == 0; ++r) {
    __builtin_prefetch(t.next_x + column / 64 * t.x_step + r * 64);
  }
  const std::byte* ahead = t.ahead + group * t.ahead_lines * 64;
  for (int64_t i = 0; i < t.ahead_lines; ++i, ahead += 64) {
    for (int p = 0; p < P; ++p) __builtin_prefetch(ahead + p * t.panel_bytes, 0, 2);
  }
}

// R rows by P panels of a format. `V`: vectors of one instruction set.
template <class V, int R, int P, int kRow>
void MultiplySlab(const SlabTile& t) {
  constexpr GroupedFormat kFormat = kGroupedFormats[kRow];
  constexpr int kLines = static_cast<int>(kFormat.group / 4);
  constexpr bool kBase = kFormat.has_base(), kWide = kFormat.Most() + kFormat.centre > 128;
  constexpr int kVecs = P * 16 / V::kLanes;
  const auto part_at = [&](int64_t offset, int c) { return PartAt<V>(t.slab, offset, c); };
  // Totals stay in registers where the sums of a group leave room, else in the first-level cache.
  constexpr bool kKept = 2 * R * kVecs + P < V::kRegisters;
  const auto carry_at = [&](int r, int c) { return t.carry + (r * kVecs + c) * V::kLanes; };
  typename V::F kept[R][kVecs];
  for (int r = 0; r < R; ++r) {
    for (int c = 0; c < kVecs; ++c) {
      if constexpr (kKept) {
        kept[r][c] = t.first ? V::Zero() : V::Load(carry_at(r, c));
      } else if (t.first) {
        V::Store(carry_at(r, c), V::Zero());
      }
    }
  }
  for (int64_t g = 0; g < t.groups; ++g) {
    const int64_t column = g * kLines * 4, terms = g * t.terms_stride;
    const std::byte* x = t.x + column / 64 * t.x_step + column % 64;
    FetchAhead<R, P>(t, g, column);
    typename V::I sums[R][kVecs];
    for (int r = 0; r < R; ++r) {
      for (int c = 0; c < kVecs; ++c)
        sums[r][c] = V::Set(kFormat.centre == 0 ? 0 : t.centres[terms + r]);
    }
#pragma GCC unroll 8
    for (int line = 0; line < kLines; ++line) {
      typename V::I b[kVecs];
      for (int c = 0; c < kVecs; ++c) b[c] = V::LoadCodes(part_at((g * kLines + line) * 64, c));
      for (int r = 0; r < R; ++r) {
        const typename V::I a = V::Broadcast(x + r * 64 + line * 4);
        for (int c = 0; c < kVecs; ++c) sums[r][c] = V::template Dot<kWide>(sums[r][c], a, b[c]);
      }
    }
    for (int c = 0; c < kVecs; ++c) {
      const auto scale = V::Load(reinterpret_cast<const float*>(part_at(kSlabScales + g * 64, c)));
      typename V::F base;
      if constexpr (kBase) {
        base = V::Load(reinterpret_cast<const float*>(part_at(kSlabBases + g * 64, c)));
      }
      for (int r = 0; r < R; ++r) {
        auto total = kKept ? kept[r][c] : V::Load(carry_at(r, c));
        total = V::Fma(V::ToFloat(sums[r][c]), scale, total);
        if constexpr (kBase) total = V::Fma(V::Set1(t.sums[terms + r]), base, total);
        kKept ? void(kept[r][c] = total) : V::Store(carry_at(r, c), total);
      }
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int c = 0; c < kVecs; ++c) {
      const auto total = kKept ? kept[r][c] : V::Load(carry_at(r, c));
      if (!t.scales) {
        if constexpr (kKept) V::Store(carry_at(r, c), total);
        continue;
      }
      const int64_t col = c * V::kLanes, lanes = t.cols - col;
      const auto result = V::Mul(total, V::Set1(t.scales[r]));
      float* y = t.y + r * t.y_stride + col;
      if (lanes >= V::kLanes) {
        V::Store(y, result);
      } else if (lanes > 0) {
        V::StoreSome(y, result, lanes);
      }
    }
  }
}

// How a format's blocks become columns of a slab.
template <class V, int kRow>
class SlabFiller {
 public:
  static constexpr GroupedFormat kFormat = kGroupedFormats[kRow];

  // One block, whose columns begin at `column` of the slab.
  static void Fill(const std::byte* block, int64_t column, std::byte* slab) {
    const std::byte* lines = block + kFormat.CodesOffset();
    for (int64_t c = 0; c < kFormat.block; c += 32) {
      Codes<0>(lines + c * 2 * kFormat.bits, slab + (column + c) * 16);
    }
    const int64_t group = column / kFormat.group;
    Numbers<0>(block, 1.0f, slab + kSlabScales + group * 64);
    if constexpr (kFormat.has_base()) {
      Numbers<2>(block, 0.125f, slab + kSlabBases + group * 64);  // row sums come times -8
    }
  }

 private:
  static constexpr GroupedLines kLines = {kFormat.bits};

  // Word t of 32 columns, and those that follow.
  template <int t>
  static void Codes(const std::byte* lines, std::byte* out) {
    for (int64_t part = 0; part < 64; part += V::kBytes) {
      auto code = Plane<8, t>(lines + part, V::NoBytes());
      code = Plane<4, t>(lines + part, code);
      code = Plane<2, t>(lines + part, code);
      code = Plane<1, t>(lines + part, code);
      if constexpr (kFormat.has_values()) code = V::Lookup(kFormat.values.of, code);
      V::StoreBytes(out + t * 64 + part, code);
    }
    if constexpr (t < 7) Codes<t + 1>(lines, out);
  }
  // Puts the bits of a plane into codes.
  template <int kPlane, int t>
  static typename V::Bytes Plane(const std::byte* lines, typename V::Bytes code) {
    if constexpr (kLines.Has(kPlane)) {
      constexpr int kWords = 8 / kPlane, kTo = kLines.Shift(kPlane);
      constexpr int kBy = t % kWords * kPlane - kTo;  // to the right
      const auto line = V::LoadBytes(lines + (kLines.Line(kPlane) + t / kWords) * 64);
      const auto bits = V::And(V::template Right<kBy>(line), ((1 << kPlane) - 1) << kTo);
      return kTo == 0 ? bits : V::Or(code, bits);
    }
    return code;
  }

  // The products of numbers i and i + 1, and a factor, per group.
  template <int i>
  static void Numbers(const std::byte* block, float factor, std::byte* out) {
    constexpr int kAt = StoredNumber(kFormat.numbers, i);
    constexpr SharedNumber kFirst = kFormat.numbers[kAt], kSecond = kFormat.numbers[i + 1];
    constexpr int64_t kGroups = kFirst.columns / kFormat.group;  // that share the first
    for (int64_t lane = 0; lane < 16; lane += V::kLanes) {
      const std::byte* first = block + kFormat.NumberOffset(kAt) + lane * kFirst.bytes();
      const std::byte* second = block + kFormat.NumberOffset(i + 1) + lane * kSecond.bytes();
      auto* to = reinterpret_cast<float*>(out) + lane;
      for (int64_t n = 0; n < kFormat.block / kFirst.columns; ++n) {
        const auto one = V::Mul(V::template Number<kFirst.type>(first), V::Set1(factor));
        first += 16 * kFirst.bytes();
        for (int64_t g = 0; g < kGroups; ++g, to += 16) {
          if constexpr (kSecond.type == NumberType::kNone) {
            V::Store(to, one);
          } else {
            static_assert(kSecond.columns % kFormat.group == 0);
            const auto other = V::template Number<kSecond.type>(second);
            V::Store(to, kFormat.divides ? V::Div(other, one) : V::Mul(one, other));
            const bool last = (g + 1) * kFormat.group % kSecond.columns == 0;  // that shares it
            if (last) second += 16 * kSecond.bytes();
          }
        }
      }
    }
  }
};

// A task in tiles of up to V::kRows rows by V::kPanels panels, each of them a stream of weights, or
// half as many, and so on to the last.
template <class V, int kRow>
class GroupedGemm {
 public:
  static constexpr GroupedFormat kFormat = kGroupedFormats[kRow];
  static constexpr const ActivationLayout* kLayout = kFormat.block == 64    ? &kInt8Rows
                                                     : kFormat.block == 128 ? &kInt8RowsOf128
                                                                            : &kInt8RowsOf256;
  static void Run(const GemmTask& t) {
    for (int64_t row = 0; row < t.rows; row += kSlabRows) {
      const int64_t rows = t.rows - row < kSlabRows ? t.rows - row : kSlabRows;
      for (int64_t p = t.panel_begin; p < t.panel_end;) {
        int64_t count = V::kPanels;
        while (count > t.panel_end - p) count /= 2;
        Panels(t, {row, row + rows, p, count});
        p += count;
      }
    }
  }

 private:
  struct Part {
    int64_t row, row_end;
    int64_t panel, count;
  };
  static void Panels(const GemmTask& t, const Part& part) {
    alignas(64) std::byte slab[V::kPanels * kSlabBytes];
    alignas(64) float carry[kSlabRows * V::kPanels * 16];
    const std::byte* panel = t.w + part.panel * t.panel_bytes;
    const int64_t next = part.panel + part.count;
    for (int64_t k = 0; k < t.k; k += kSlabColumns) {
      const int64_t left = t.k - k, columns = left < kSlabColumns ? left : kSlabColumns;
      const int64_t blocks = columns / kFormat.block, at = k / kFormat.block;
      for (int64_t i = 0; i < part.count * blocks; ++i) {
        const int64_t p = i / blocks, b = i % blocks;
        SlabFiller<V, kRow>::Fill(panel + p * t.panel_bytes + (at + b) * kFormat.BlockBytes(),
                                  b * kFormat.block, slab + p * kSlabBytes);
      }
      SlabTile tile = {};
      tile.slab = slab;
      tile.groups = columns / kFormat.group;
      tile.carry = carry;
      tile.first = k == 0;
      tile.panel_bytes = t.panel_bytes;
      tile.ahead = left > columns       ? panel + (at + blocks) * kFormat.BlockBytes()
                   : next < t.panel_end ? t.w + next * t.panel_bytes
                                        : t.next;
      Rows(t, part, k, tile);
    }
  }

  // Of a block of rows and the groups of a slab.
  struct Terms {
    alignas(64) int32_t centres[kSlabColumns / 16 * kDotRows];
    alignas(64) float sums[kSlabColumns / 16 * kDotRows];

    void Set(const int32_t* from, int64_t count) {
      for (int64_t i = 0; i < count; ++i) {
        if (kFormat.centre != 0) centres[i] = kFormat.centre * from[i] >> 3;
        if (kFormat.has_base()) sums[i] = static_cast<float>(from[i]);
      }
    }
  };

  // All rows of a part, in equal tiles that do not cross the blocks of the activations.
  static void Rows(const GemmTask& t, const Part& part, int64_t k, SlabTile& tile) {
    const int64_t columns = tile.groups * kFormat.group;
    const bool last = k + columns == t.k;
    const int64_t tiles = (part.row_end - part.row + V::kRows - 1) / V::kRows;
    const int64_t lines = columns / kFormat.block * kFormat.BlockBytes() / 64;
    // Every tile fetches its share of the lines.
    tile.ahead_lines = tile.ahead ? (lines + tiles * tile.groups - 1) / (tiles * tile.groups) : 0;
    int64_t fetched = 0;
    Terms terms;
    for (int64_t row = part.row; row < part.row_end;) {
      const int64_t begin = row / kDotRows * kDotRows;
      const int64_t end = begin + kDotRows < t.rows ? begin + kDotRows : t.rows;
      const int64_t parts = (end - row + V::kRows - 1) / V::kRows;
      const int64_t rows = (end - row + parts - 1) / parts, inside = row - begin;
      const std::byte* block = t.x + begin * Int8RowBytes(t.k);
      const auto* scales = reinterpret_cast<const float*>(block + (end - begin) * t.k);
      const auto* sums = reinterpret_cast<const int32_t*>(scales + 2 * (end - begin));
      if (kFormat.group == 16) sums += t.k / 32 * (end - begin);
      tile.x = block + k * (end - begin) + inside * 64;
      tile.x_step = (end - begin) * 64;
      tile.next_x =
          row + rows < end ? tile.x + rows * 64 : t.x + end * Int8RowBytes(t.k) + k * (end - begin);
      if (inside == 0) {
        terms.Set(sums + k / kFormat.group * (end - begin), tile.groups * (end - begin));
      }
      tile.centres = terms.centres + inside;
      tile.sums = terms.sums + inside;
      tile.terms_stride = end - begin;
      tile.scales = last ? scales + inside : nullptr;
      tile.y = t.y + row * t.y_stride + (part.panel - t.panel_begin) * 16;
      tile.y_stride = t.y_stride;
      tile.cols = t.n - part.panel * 16;
      if (fetched >= lines) tile.ahead_lines = 0;
      ByPanels<V::kPanels>(tile, rows, part.count);
      tile.ahead += tile.ahead_lines * tile.groups * 64;
      fetched += tile.ahead_lines * tile.groups;
      tile.carry += rows * part.count * 16;
      row += rows;
    }
  }

  // The form for kMost panels, or half as many, and so on.
  template <int kMost>
  static void ByPanels(const SlabTile& tile, int64_t rows, int64_t panels) {
    if constexpr (kMost > 1) {
      if (panels < kMost) return ByPanels<kMost / 2>(tile, rows, panels);
    }
    ByRows<V::kRows, kMost>(tile, rows);
  }
  // The form for 1 … kMost rows.
  template <int kMost, int P>
  static void ByRows(const SlabTile& tile, int64_t rows) {
    if constexpr (kMost > 1) {
      if (rows < kMost) return ByRows<kMost - 1, P>(tile, rows);
    }
    MultiplySlab<V, kMost, P, kRow>(tile);
  }
};

// The kernels for all formats of the table on one instruction set.
template <class V, CpuNeed kNeeds>
struct GroupedKernels {
  GemmKernel all[kGroupedCount] = {};

  constexpr GroupedKernels() { Add<0>(); }
  template <int kRow>
  constexpr void Add() {
    using Gemm = GroupedGemm<V, kRow>;
    all[kRow] = {Gemm::kFormat.format, kNeeds, Gemm::kLayout, false, PackInt8Avx2, Gemm::Run};
    if constexpr (kRow + 1 < kGroupedCount) Add<kRow + 1>();
  }
};

}  // namespace braid::ops::cpu

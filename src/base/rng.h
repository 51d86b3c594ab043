// Random numbers that are functions of a key, never of a history: the same (seed, counter) gives
// the same bits on every thread, rank and run. splitmix64 finaliser (Steele, Lea, Flood 2014).
#pragma once

#include <cstdint>

namespace braid {

constexpr uint64_t MixBits(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

// 64 uniform bits for draw number `counter` of stream `seed`.
constexpr uint64_t RandomBits(uint64_t seed, uint64_t counter) {
  return MixBits(MixBits(seed + 0x9e3779b97f4a7c15ull) + (counter + 1) * 0x9e3779b97f4a7c15ull);
}

// Uniform in [0, 1), 53 bits.
constexpr double RandomUniform(uint64_t seed, uint64_t counter) {
  return static_cast<double>(RandomBits(seed, counter) >> 11) * 0x1.0p-53;
}

// A sequential generator over the same stream, for tests, simulation and weight initialisation.
class Rng {
 public:
  explicit constexpr Rng(uint64_t seed) : seed_(seed) {}
  constexpr uint64_t Next() { return RandomBits(seed_, counter_++); }
  constexpr double Uniform() { return RandomUniform(seed_, counter_++); }
  // Uniform in [0, n); n > 0. The bias of 2^-64 * n is irrelevant here.
  constexpr int64_t Below(int64_t n) {
    return static_cast<int64_t>(Next() % static_cast<uint64_t>(n));
  }
  // Standard normal by Irwin-Hall of 12 uniforms: light tails are what weight initialisation wants.
  constexpr double Normal() {
    double sum = -6;
    for (int i = 0; i < 12; ++i) sum += Uniform();
    return sum;
  }

 private:
  uint64_t seed_;
  uint64_t counter_ = 0;
};

}  // namespace braid

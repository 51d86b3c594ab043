// All runs of the hand-off protocol within small bounds: prefill and decode engines made of their
// rooms alone, a network that delivers in any order, and as many faults as `faults` says, each at
// any place. One thread.
#pragma once

#include <cstdint>
#include <string>

namespace braid::handoff {

struct Bounds {
  int prefills = 2, decodes = 2, rooms = 3;
  int parts = 2;  // of a room; the first leaves while the prompt is computed
  // Losses, duplicates, strays, damage, aborts, deaths, failed devices, deadlines, in all.
  int faults = 1;
};

struct Explored {
  int64_t states = 0;
  int64_t ends = 0;       // states in which nothing is left to happen
  std::string violation;  // the first one, with the actions that lead to it; empty: none
};

Explored Explore(const Bounds& bounds);

}  // namespace braid::handoff

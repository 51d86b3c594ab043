// The moves of plans, and what is read ahead for later ones: handed to the movers of their places.
// Moves end where the arena is lost. Engine thread.
#pragma once

#include <array>

#include "base/result.h"
#include "cache/geometry.h"
#include "scheduler/mover.h"
#include "scheduler/plan.h"

namespace braid {

// By place; null: the scheduler plans no moves for it.
using MoversByPlace = std::array<Mover*, kPlaces>;

class PlanMoves {
 public:
  // The movers outlive it; what was attached to them before is forgotten.
  PlanMoves(const MoversByPlace& movers, const Arena& arena, const CacheGeometry& geometry);

  void Start(const Plan& plan, EventSink& events) const;
  // Each move as it would begin, with nothing moved: the arena is lost.
  static void End(const Plan& plan, const Error& error, EventSink& events);
  // Returns when the ends of all moves are posted.
  void Drain() const;

 private:
  MoversByPlace movers_;
};

}  // namespace braid

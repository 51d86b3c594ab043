// Who carries out moves of pages: one mover for each place. An executor hands every move of a plan
// to its place's mover when it launches the plan; the end is an event.
#pragma once

#include <cstddef>

#include "cache/geometry.h"
#include "scheduler/event.h"
#include "scheduler/plan.h"

namespace braid {

struct Mover {
  virtual ~Mover() = default;
  // Where blocks lie (BlockBytesOffset from `arena` on); once, before the first move. Both outlive
  // every move.
  virtual void Attach(std::byte* arena, const CacheGeometry& geometry) = 0;
  // Engine thread; must not block: the work is done elsewhere. Exactly one PagesMoved of this id is
  // posted to `events` later, from any thread. Until then the blocks are the move's: nobody writes
  // to those that leave, and nobody looks at those that come. After it the mover touches them no
  // more, whatever the move's status: a mover that cannot be sure of that does not post.
  virtual void Start(const PageMove& move, EventSink& events) = 0;
};

}  // namespace braid

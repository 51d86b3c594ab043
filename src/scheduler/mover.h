// Who carries out moves of pages: one mover for each place. An executor hands every move of a plan
// to its place's mover when it launches the plan; the end is an event.
#pragma once

#include <cstddef>
#include <span>

#include "base/result.h"
#include "cache/geometry.h"
#include "scheduler/event.h"
#include "scheduler/plan.h"

namespace braid {

// The bytes of an arena that the host cannot address: those of a device.
struct ArenaAccess {
  // Of the arena, and as many of the host.
  struct Piece {
    std::byte* there;
    std::span<std::byte> here;
  };
  virtual ~ArenaAccess() = default;
  // Any thread. They return when all pieces are copied; after an error it is not known which are.
  virtual Status Fetch(std::span<const Piece> pieces) = 0;
  virtual Status Store(std::span<const Piece> pieces) = 0;
};

// Where the blocks of a cache lie: at BlockBytesOffset from `data` on.
struct Arena {
  std::byte* data = nullptr;
  ArenaAccess* access = nullptr;  // null: the host reads and writes there
};

struct Mover {
  virtual ~Mover() = default;
  // Before the first move, and again when the arena was lost and is another one: then a tier posts
  // all parts that it holds, for the scheduler has forgotten those of the moves that failed. Both
  // outlive every move.
  virtual void Attach(const Arena& arena, const CacheGeometry& geometry) = 0;
  // Engine thread; must not block: the work is done elsewhere. Exactly one PagesMoved of this id is
  // posted to `events` later, from any thread. Until then the blocks are the move's: nobody writes
  // to those that leave, and nobody looks at those that come. After it the mover touches them no
  // more, whatever the move's status: a mover that cannot be sure of that does not post.
  virtual void Start(const PageMove& move, EventSink& events) = 0;
  // Engine thread; must not block. A place that has nothing to gain by it ignores it.
  virtual void ReadAhead(const PagesAhead& /*ahead*/) {}
  // Returns when the ends of all moves are posted, none of which waits for the engine thread, that
  // calls this.
  virtual void Drain() = 0;
};

}  // namespace braid

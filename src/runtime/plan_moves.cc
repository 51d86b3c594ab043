// See the header.
#include "runtime/plan_moves.h"

#include <utility>

#include "base/check.h"

namespace braid {

PlanMoves::PlanMoves(const MoversByPlace& movers, const Arena& arena, const CacheGeometry& geometry)
    : movers_(movers) {
  for (Mover* mover : movers_) {
    if (mover != nullptr) mover->Attach(arena, geometry);
  }
}

void PlanMoves::Start(const Plan& plan, EventSink& events) const {
  if (Mover* tier = movers_[static_cast<size_t>(Place::kDisk)]; tier != nullptr) {
    for (const PagesAhead& ahead : plan.ahead) tier->ReadAhead(ahead);
  }
  for (const PageMove& move : plan.moves) {
    Mover* mover = movers_[static_cast<size_t>(move.place)];
    CHECK(mover != nullptr, "nobody moves pages of place {}", static_cast<int>(move.place));
    mover->Start(move, events);
  }
}

void PlanMoves::End(const Plan& plan, const Error& error, EventSink& events) {
  for (const PageMove& move : plan.moves) {
    PagesMoved moved{.move = move.id, .error = error.message, .lost = {}, .logprob = {}};
    for (int32_t i = 0; i < std::ssize(move.parts); ++i) moved.lost.push_back(i);
    events.Post(std::move(moved));
  }
}

void PlanMoves::Drain() const {
  for (Mover* mover : movers_) {
    if (mover != nullptr) mover->Drain();
  }
}

}  // namespace braid

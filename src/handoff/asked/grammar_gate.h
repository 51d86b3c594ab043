// Where a partner's request that has a grammar waits until this is compiled: no step waits for it
// then. Whoever knows grammars implements it (engine/partners/partner_grammars.h).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/result.h"

namespace braid::handoff {

class GrammarGate {
 public:
  virtual ~GrammarGate() = default;

  // Destroying it cancels the compilation, or lets the compiled grammar be evicted.
  class Ticket {
   public:
    virtual ~Ticket() = default;
    // Whether the grammar can be used, and then it is kept while the ticket lives; nullopt: it is
    // not compiled yet.
    virtual std::optional<Status> Outcome() = 0;
  };
  // Does not wait. Those of one `key` share a part of the queue and of the time. `wake` is called
  // on another thread when the outcome is known, unless the ticket is destroyed by then. An error:
  // there is no room.
  virtual Result<std::unique_ptr<Ticket>> Enter(const std::string& key, const std::string& grammar,
                                                std::function<void()> wake) = 0;
};

}  // namespace braid::handoff

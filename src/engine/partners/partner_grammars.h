// The grammars of requests that partners send, and on a rank that follows those of rank 0's: tried
// and compiled in a queue, as those of clients, and kept as long as their tickets live.
// Thread-safe; nothing here waits for a compilation.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "handoff/asked/grammar_gate.h"
#include "handoff/partners.h"
#include "text/grammar/compile_queue.h"
#include "text/grammar/grammar_library.h"

namespace braid {

class PartnerGrammars final : public handoff::GrammarGate {
 public:
  // `library` must outlive the object.
  explicit PartnerGrammars(GrammarLibrary& library, CompileQueue::Limits limits = {})
      : library_(library), queue_(library, limits) {}

  Result<std::unique_ptr<Ticket>> Enter(const std::string& key, const std::string& grammar,
                                       std::function<void()> wake) override;

 private:
  GrammarLibrary& library_;
  CompileQueue queue_;
};

// Those of a prefill engine, which its partners know then; null: nobody asks, or there are no
// grammars.
std::unique_ptr<PartnerGrammars> GrammarsFor(handoff::PartnerOptions& partners,
                                             GrammarLibrary* library);

}  // namespace braid

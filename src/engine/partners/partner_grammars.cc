// A ticket is one of the queue, then a hold on the compiled grammar.
#include "engine/partners/partner_grammars.h"

#include <optional>
#include <utility>

namespace braid {
namespace {

constexpr int64_t kStreams = 1;  // of a prompt

class GrammarTicket final : public handoff::GrammarGate::Ticket {
 public:
  GrammarTicket(GrammarLibrary& library, std::string grammar)
      : library_(library), grammar_(std::move(grammar)) {}

  void Await(CompileQueue::Ticket ticket) { ticket_.emplace(std::move(ticket)); }
  void Settle(const Status& checked) {
    ticket_.reset();
    if (!checked) {
      outcome_ = checked;
      return;
    }
    Result<GrammarLibrary::Hold> hold = library_.HoldFor(grammar_, kStreams);
    outcome_ = hold ? Status() : Status(hold.error());
    if (hold) hold_.emplace(*std::move(hold));
  }

  std::optional<Status> Outcome() override {
    if (ticket_) {
      const std::optional<GrammarLibrary::Checked> checked = ticket_->Outcome();
      if (checked) Settle(checked->status);
    }
    return outcome_;
  }

 private:
  GrammarLibrary& library_;
  const std::string grammar_;
  std::optional<CompileQueue::Ticket> ticket_;
  std::optional<Status> outcome_;
  std::optional<GrammarLibrary::Hold> hold_;
};

}  // namespace

Result<std::unique_ptr<handoff::GrammarGate::Ticket>> PartnerGrammars::Enter(
    const std::string& key, const std::string& grammar, std::function<void()> wake) {
  auto out = std::make_unique<GrammarTicket>(library_, grammar);
  if (const std::optional<Status> known = library_.Known(grammar)) {
    out->Settle(*known);
  } else {
    ASSIGN_OR_RETURN(CompileQueue::Ticket queued, queue_.Enter(key, grammar, std::move(wake)));
    out->Await(std::move(queued));
  }
  return std::unique_ptr<Ticket>(std::move(out));
}

std::unique_ptr<PartnerGrammars> GrammarsFor(handoff::PartnerOptions& partners,
                                             GrammarLibrary* library) {
  if (partners.side != handoff::Side::kPrefill || library == nullptr) return nullptr;
  auto grammars = std::make_unique<PartnerGrammars>(*library);
  partners.grammars = grammars.get();
  return grammars;
}

}  // namespace braid

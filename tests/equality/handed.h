// Engines that divide the work: some compute prompts and hand their pages to others, which answer.
// Each has the driver that serves, an executor with an arena of its own, and partners that talk
// through a loopback. The test's thread submits and waits.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "handoff/handoff_executor.h"
#include "handoff/partners.h"
#include "scheduler/driver.h"
#include "tests/equality/table.h"
#include "tests/handoff/loopback.h"
#include "tiers/rank_tiers.h"

namespace braid {

struct HandedOptions {
  int prefills = 1, decodes = 1;
  int prefill_tp = 1, decode_tp = 1;
  int32_t first_context = 0;  // the first prefill engine's, in tokens; 0: as the others'
  Drafts drafts = Drafts::kNone;
  handoff::LoopbackFaults faults;
  // What is otherwise in the config of a side's engines.
  std::function<void(handoff::Side, SchedulerConfig&)> tune;
  handoff::PrefillLimits limits;  // of prefill engines
  handoff::DecodeLimits decode_limits;
  int64_t flight_bytes = handoff::Transport::kFlightBytes;
  int64_t staging_bytes = handoff::kStagingBytes;
  // Where each engine has a folder for its pages, by its side and number; empty: none has.
  std::string directory;
};

class Handed {
 public:
  Handed(const Subject& subject, const HandedOptions& options);
  // Answers what is left, and checks that every engine has its pages back.
  ~Handed();

  // To a decode engine; returns the ticket.
  size_t Submit(Request request, size_t decode = 0);
  const Answer& Await(size_t ticket);
  const Answer& Ask(const Request& request, size_t decode = 0) {
    return Await(Submit(request, decode));
  }
  void Abort(size_t ticket);
  // As when the device of the first engine of a side is lost, and comes back.
  void LosePages(handoff::Side side);
  // When it has so many tokens, or has ended.
  void AwaitTokens(size_t ticket, size_t count);
  // The engines that compute prompts end what they do.
  void StopPrefills();
  // One takes no new prompts.
  void DrainPrefill(size_t i) { prefills_[i]->driver->Stop(false); }
  void AwaitPartners();
  // Until no decode engine is paired.
  void AwaitParting();
  // Until a part has found no place.
  void AwaitNoPlace();
  // Until so many have been asked for, or are over.
  void AwaitRooms(int64_t count);
  void AwaitHanded(int64_t count);
  // Until a part is on its way.
  void AwaitPart();

  // Why the first prefill engine refuses a decode engine of another protocol version; empty: it
  // does not.
  std::string RefusalOf(uint32_t version);

  handoff::Loopback& network() { return network_; }
  const handoff::Partners& prefill(size_t i) const { return *prefills_[i]->partners; }
  const handoff::Partners& decode(size_t i) const { return *decodes_[i]->partners; }
  DriverStats decode_stats(size_t i) const { return decodes_[i]->driver->stats(); }
  // Of prompts whose pages were asked for, over all decode engines: how many arrived, and how many
  // did not. A partners' thread counts, perhaps after the answer.
  int64_t handed() const;
  int64_t failed() const;
  // As many bytes of pages have left as have come: nothing was sent in vain. Waits for the counts.
  bool BytesAgree() const;
  // Drafts of the model's head that were compared with the slow head's, of awaited answers.
  int64_t drafts_checked() const { return drafts_checked_; }

 private:
  // Notes what heads propose.
  class Watch final : public Executor, public EventSink {
   public:
    explicit Watch(Executor& inner) : inner_(inner) {}
    void Launch(Plan plan, EventSink& events) override;
    void Post(Event event) override;
    // After how many tokens, and what.
    using Noted = std::vector<std::pair<int32_t, std::vector<TokenId>>>;
    Noted Take(RequestId request);

   private:
    Executor& inner_;
    EventSink* to_ = nullptr;
    std::vector<Row> rows_;
    std::mutex mutex_;
    std::map<RequestId, Noted> noted_;
  };
  struct Engine {
    Machine* machine;
    SchedulerConfig config;
    std::unique_ptr<handoff::Partners> partners;
    std::unique_ptr<RankTiers> tiers;  // null: none
    std::unique_ptr<Watch> watch;
    std::unique_ptr<handoff::HandoffExecutor> executor;
    std::unique_ptr<Driver> driver;
    std::thread thread;
  };
  struct Asked final : OutputSink {
    void OnOutput(Output output) override;
    std::mutex mutex;
    std::condition_variable changed;
    Request request;
    size_t decode = 0;
    Answer answer;
    bool done = false;
  };
  std::unique_ptr<Engine> Make(Machine& machine, handoff::PartnerOptions partners,
                               const std::string& folder);
  void Stop(Engine& engine);

  HandedOptions options_;
  handoff::Loopback network_;
  std::vector<std::unique_ptr<Engine>> prefills_, decodes_;
  std::deque<Asked> asked_;
  int64_t drafts_checked_ = 0;
};

}  // namespace braid

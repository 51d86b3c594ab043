// The batches of one publisher in their order, from messages that may come late, twice, with gaps
// or from another process at the same address. What is missing is asked for; when it cannot be had,
// all that was known is forgotten and the batches go on from there. Pure: times are passed in.
//
// Another process is known by its smaller numbers. One whose numbers are larger when they come is
// taken for a gap: messages have no id of their process, and the format has no room for one, since
// some readers refuse batches with more fields. Who sees that a process is gone begins anew.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "kv_events/batch.h"

namespace braid::kv {

class EventStream {
 public:
  using Take = std::function<void(EventBatch)>;

  // `can_ask`: missed batches can be asked for.
  EventStream(bool can_ask, Take take) : can_ask_(can_ask), take_(std::move(take)) {}

  // The number from which on batches should be asked for, told once; none: nothing is missing.
  // Until a message has come by itself, it is told again a second after an answer.
  std::optional<uint64_t> Question(int64_t now_us);
  // A message that came by itself.
  void OnLive(uint64_t number, std::string_view payload);
  // One of an answer; the end of an answer has no payload.
  void OnAnswer(uint64_t number, std::string_view payload);

  int64_t malformed() const { return malformed_; }

 private:
  struct Held {
    uint64_t number;
    std::string payload;
  };
  void Deliver(uint64_t number, std::string_view payload);
  // Nobody knows what happened in between.
  void GoOnAt(uint64_t number);
  void DeliverHeld(bool may_ask);

  const bool can_ask_;
  Take take_;
  uint64_t next_ = 0;
  std::optional<uint64_t> live_;  // the last number that came by itself
  bool asks_ = true;              // there is something to ask for, or it was asked
  int64_t asked_us_ = 0;          // 0: not yet
  int64_t heard_us_ = 0;          // when it was asked, or when a batch of the answer was last there
  bool hears_ = false;            // one has come since
  bool answered_ = false;         // the last question, to its end
  uint64_t asked_from_ = 0;
  std::deque<Held> held_;  // came while something was asked for
  int64_t held_bytes_ = 0;
  int64_t malformed_ = 0;
};

}  // namespace braid::kv

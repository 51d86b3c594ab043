// See the header.
#include "comm/turns.h"

#include <span>
#include <vector>

#include "base/check.h"

namespace braid {
namespace {

class GivingGroup final : public Communicator {
 public:
  GivingGroup(Communicator& group, Turns& turns)
      : Communicator(group.rank(), group.size()), group_(group), turns_(turns) {}

 private:
  Status Exchange(std::span<const Bytes> send, std::span<const MutableBytes> receive) override {
    // What a rank has for itself is not the group's to copy.
    const auto own = static_cast<size_t>(rank());
    send_.assign(send.begin(), send.end());
    receive_.assign(receive.begin(), receive.end());
    send_[own] = {};
    receive_[own] = {};
    turns_.Give();
    Status status = group_.AllToAllV(send_, receive_);
    turns_.Take();
    return status;
  }

  Communicator& group_;
  Turns& turns_;
  std::vector<Bytes> send_;
  std::vector<MutableBytes> receive_;
};

}  // namespace

void Turns::Take() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !taken_; });
  taken_ = true;
}

void Turns::Give() {
  {
    std::lock_guard lock(mutex_);
    CHECK(taken_);
    taken_ = false;
  }
  changed_.notify_all();
}

void Turns::Reset() {
  std::lock_guard lock(mutex_);
  reached_ = 0;
}

void Turns::Reach(int64_t value) {
  {
    std::lock_guard lock(mutex_);
    CHECK(value >= reached_, "{} after {}", value, reached_);
    reached_ = value;
  }
  changed_.notify_all();
}

void Turns::Await(int64_t value) {
  std::unique_lock lock(mutex_);
  if (reached_ >= value) return;
  CHECK(taken_);
  taken_ = false;
  changed_.notify_all();
  changed_.wait(lock, [&] { return !taken_ && reached_ >= value; });
  taken_ = true;
}

std::unique_ptr<Communicator> GivingTurns(Communicator& group, Turns& turns) {
  return std::make_unique<GivingGroup>(group, turns);
}

}  // namespace braid

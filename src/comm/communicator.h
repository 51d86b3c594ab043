// Messages between the ranks of a group. Every rank makes the same calls in the same order, from
// one thread at a time, with sizes that agree. Sums add the ranks' values in ascending order of
// rank, so all ranks get the same bits.
//
// No call waits longer than the group's deadline. A rank that does not come in time, or sends
// another size than is expected, is an error (kUnavailable, kInternal) that names it and ends the
// group: every later call returns the same error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"

namespace braid {

using Bytes = std::span<const std::byte>;
using MutableBytes = std::span<std::byte>;

// What rank `index` of `count` has of `total` things in order; sizes differ by one at most.
struct Part {
  int64_t begin = 0;
  int64_t count = 0;
};
constexpr Part PartOf(int64_t total, int64_t index, int64_t count) {
  const int64_t begin = total * index / count;
  return {begin, total * (index + 1) / count - begin};
}

// What a rank has sent.
struct Traffic {
  int64_t calls = 0;    // of collectives
  int64_t bytes = 0;    // to other ranks
  int64_t wait_ns = 0;  // that the calls took
};

class Communicator {
 public:
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int32_t rank() const { return rank_; }
  int32_t size() const { return size_; }
  const Traffic& traffic() const { return traffic_; }  // on the thread that calls

  // send[i] goes to rank i, receive[i] comes from rank i; one part per rank, its own included.
  Status AllToAllV(std::span<const Bytes> send, std::span<const MutableBytes> receive);
  // all[i] = what rank i gives.
  Status AllGatherV(Bytes mine, std::span<const MutableBytes> all);
  // The same with equal sizes, one after the other: all has size() * mine bytes.
  Status AllGather(Bytes mine, MutableBytes all);
  // data of rank `root` to all.
  Status Broadcast(int32_t root, MutableBytes data);
  // Elements [values * rank / size, values * (rank + 1) / size) of the sum of all ranks' values.
  Status ReduceScatter(std::span<const float> values, std::span<float> sum);
  // values = the sum of all ranks' values.
  Status AllReduce(std::span<float> values);
  // Returns when every rank has come.
  Status Barrier();

 protected:
  Communicator(int32_t rank, int32_t size) : rank_(rank), size_(size) {}
  // AllToAllV among two ranks and more.
  virtual Status Exchange(std::span<const Bytes> send, std::span<const MutableBytes> receive) = 0;

 private:
  std::span<const float> Share(std::span<const float> values, int32_t rank) const;

  const int32_t rank_, size_;
  Traffic traffic_;
  // Of the call in progress.
  std::vector<Bytes> send_;
  std::vector<MutableBytes> receive_;
  std::vector<float> parts_;
};

}  // namespace braid

// Every collective is an exchange of parts; a backend implements that one.
#include "comm/communicator.h"

#include <cstring>

#include "base/check.h"
#include "base/clock.h"

namespace braid {

Status Communicator::AllToAllV(std::span<const Bytes> send, std::span<const MutableBytes> receive) {
  const auto ranks = static_cast<size_t>(size_), own = static_cast<size_t>(rank_);
  CHECK(send.size() == ranks && receive.size() == ranks, "{} and {} parts for {} ranks",
        send.size(), receive.size(), ranks);
  CHECK(send[own].size() == receive[own].size(), "rank {} sends itself {} bytes and expects {}",
        rank_, send[own].size(), receive[own].size());
  ++traffic_.calls;
  for (size_t i = 0; i < ranks; ++i) {
    if (i != own) traffic_.bytes += static_cast<int64_t>(send[i].size());
  }
  if (size_ > 1) {
    const int64_t start_ns = MonotonicNs();
    Status status = Exchange(send, receive);
    traffic_.wait_ns += MonotonicNs() - start_ns;
    RETURN_IF_ERROR(status);
  }
  if (!send[own].empty() && send[own].data() != receive[own].data()) {
    std::memcpy(receive[own].data(), send[own].data(), send[own].size());
  }
  return {};
}

Status Communicator::AllGatherV(Bytes mine, std::span<const MutableBytes> all) {
  send_.assign(static_cast<size_t>(size_), mine);
  return AllToAllV(send_, all);
}

Status Communicator::AllGather(Bytes mine, MutableBytes all) {
  CHECK(all.size() == mine.size() * static_cast<size_t>(size_), "{} bytes for {} of {}", all.size(),
        size_, mine.size());
  receive_.clear();
  for (size_t i = 0; i < static_cast<size_t>(size_); ++i) {
    receive_.push_back(all.subspan(i * mine.size(), mine.size()));
  }
  return AllGatherV(mine, receive_);
}

Status Communicator::Broadcast(int32_t root, MutableBytes data) {
  CHECK(root >= 0 && root < size_, "rank {} of {}", root, size_);
  send_.assign(static_cast<size_t>(size_), rank_ == root ? Bytes(data) : Bytes());
  receive_.assign(static_cast<size_t>(size_), MutableBytes());
  receive_[static_cast<size_t>(root)] = data;
  return AllToAllV(send_, receive_);
}

std::span<const float> Communicator::Share(std::span<const float> values, int32_t rank) const {
  const Part part = PartOf(std::ssize(values), rank, size_);
  return values.subspan(static_cast<size_t>(part.begin), static_cast<size_t>(part.count));
}

Status Communicator::ReduceScatter(std::span<const float> values, std::span<float> sum) {
  const size_t count = Share(values, rank_).size();
  CHECK(sum.size() == count, "{} of {} values", sum.size(), count);
  parts_.resize(count * static_cast<size_t>(size_));
  send_.clear();
  receive_.clear();
  for (int32_t rank = 0; rank < size_; ++rank) {
    send_.push_back(std::as_bytes(Share(values, rank)));
    receive_.push_back(std::as_writable_bytes(
        std::span(parts_).subspan(static_cast<size_t>(rank) * count, count)));
  }
  RETURN_IF_ERROR(AllToAllV(send_, receive_));
  for (size_t i = 0; i < count; ++i) {
    float total = parts_[i];
    for (size_t at = i + count; at < parts_.size(); at += count) total += parts_[at];
    sum[i] = total;
  }
  return {};
}

Status Communicator::AllReduce(std::span<float> values) {
  std::vector<float> sum(Share(values, rank_).size());
  RETURN_IF_ERROR(ReduceScatter(values, sum));
  receive_.clear();
  for (int32_t rank = 0; rank < size_; ++rank) {
    const std::span<const float> share = Share(values, rank);
    receive_.push_back(std::as_writable_bytes(
        values.subspan(static_cast<size_t>(share.data() - values.data()), share.size())));
  }
  return AllGatherV(std::as_bytes(std::span<const float>(sum)), receive_);
}

Status Communicator::Barrier() {
  receive_.assign(static_cast<size_t>(size_), MutableBytes());
  return AllGatherV({}, receive_);
}

}  // namespace braid

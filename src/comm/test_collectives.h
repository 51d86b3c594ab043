// For tests of groups: one set of claims for every backend. All ranks of a group run a check, each
// in the thread that calls it, and get the first error.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <vector>

#include "base/rng.h"
#include "comm/communicator.h"

namespace braid {

// A rank of a busy machine may not run for some hundred ms: that is not its absence.
constexpr std::chrono::milliseconds kLong{30'000}, kShort{1000};

// Values that depend on who has them, so that no two messages are alike.
inline float ValueOf(int32_t rank, size_t i) {
  return static_cast<float>(Rng(static_cast<uint64_t>(rank) * 1'000'003 + i).Normal());
}

inline Status Differs(const char* call) { return Error{ErrorCode::kInternal, call}; }

inline Status CheckGather(Communicator& comm, size_t bytes) {
  const auto ranks = static_cast<size_t>(comm.size());
  const auto byte = [](size_t rank, size_t i) { return std::byte(37 * rank + 7 * i + i / 256); };
  std::vector<std::byte> mine(bytes), all(bytes * ranks);
  for (size_t i = 0; i < bytes; ++i) mine[i] = byte(static_cast<size_t>(comm.rank()), i);
  RETURN_IF_ERROR(comm.AllGather(mine, all));
  for (size_t rank = 0; rank < ranks; ++rank) {
    for (size_t i = 0; i < bytes; ++i) {
      if (all[rank * bytes + i] != byte(rank, i)) return Differs("AllGather");
    }
  }
  return {};
}

// Rank a sends rank b a text of a + 3 b bytes.
inline Status CheckAllToAll(Communicator& comm) {
  const auto text = [&](int32_t from, int32_t to) {
    return std::vector(static_cast<size_t>(from + 3 * to), std::byte(from * 16 + to));
  };
  std::vector<std::vector<std::byte>> out, in;
  std::vector<Bytes> send;
  std::vector<MutableBytes> receive;
  for (int32_t r = 0; r < comm.size(); ++r) {
    out.push_back(text(comm.rank(), r));
    in.emplace_back(text(r, comm.rank()).size());
  }
  for (size_t r = 0; r < out.size(); ++r) {
    send.emplace_back(out[r]);
    receive.emplace_back(in[r]);
  }
  RETURN_IF_ERROR(comm.AllToAllV(send, receive));
  for (int32_t r = 0; r < comm.size(); ++r) {
    if (in[static_cast<size_t>(r)] != text(r, comm.rank())) return Differs("AllToAllV");
  }
  return {};
}

inline Status CheckSums(Communicator& comm, size_t count) {
  std::vector<float> values(count), expected(count);
  for (size_t i = 0; i < count; ++i) {
    values[i] = ValueOf(comm.rank(), i);
    expected[i] = ValueOf(0, i);
    for (int32_t r = 1; r < comm.size(); ++r) expected[i] += ValueOf(r, i);
  }
  const size_t begin = count * static_cast<size_t>(comm.rank()) / static_cast<size_t>(comm.size());
  const size_t end =
      count * static_cast<size_t>(comm.rank() + 1) / static_cast<size_t>(comm.size());
  std::vector<float> share(end - begin);
  RETURN_IF_ERROR(comm.ReduceScatter(values, share));
  if (!std::equal(share.begin(), share.end(), expected.begin() + static_cast<ptrdiff_t>(begin))) {
    return Differs("ReduceScatter");
  }
  RETURN_IF_ERROR(comm.AllReduce(values));
  return values == expected ? Status() : Differs("AllReduce");
}

inline Status CheckBroadcast(Communicator& comm, int32_t root) {
  std::vector<std::byte> data(777, std::byte(comm.rank()));
  RETURN_IF_ERROR(comm.Broadcast(root, data));
  const bool same = data == std::vector(777, std::byte(root));
  return same ? Status() : Differs("Broadcast");
}

// Every collective, again and again, in sizes from nothing to more than a backend buffers.
inline Status CheckAll(Communicator& comm) {
  for (int round = 0; round < 50; ++round) {
    for (const size_t bytes : {1, 64, 4096, 300'000}) RETURN_IF_ERROR(CheckGather(comm, bytes));
    for (const size_t count : {0, 1, 2, 3, 1000}) RETURN_IF_ERROR(CheckSums(comm, count));
    RETURN_IF_ERROR(CheckAllToAll(comm));
    for (int32_t root = 0; root < comm.size(); ++root) RETURN_IF_ERROR(CheckBroadcast(comm, root));
    RETURN_IF_ERROR(comm.Barrier());
  }
  return CheckGather(comm, 3'000'000);  // more than a connection takes at once
}

}  // namespace braid

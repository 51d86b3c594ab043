// What the kernel says of the memory policy at an address, for tests of placement.
#pragma once

#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>

namespace braid {

// MPOL_DEFAULT, MPOL_PREFERRED …; -1 where the kernel does not say.
inline int PagePolicyAt(const std::byte* address) {
  int policy = -1;
  const int64_t rc = ::syscall(SYS_get_mempolicy, &policy, nullptr, 0, address, MPOL_F_ADDR);
  return rc == 0 ? policy : -1;
}

}  // namespace braid

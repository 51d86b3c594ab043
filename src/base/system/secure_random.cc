// getrandom(2) never returns fewer bytes than asked for up to 256.
#include "base/system/secure_random.h"

#include <fmt/core.h>
#include <sys/random.h>

#include <array>

#include "base/check.h"

namespace braid {

std::string SecureRandomHex(size_t bytes) {
  std::array<unsigned char, 256> random;
  CHECK(bytes <= random.size());
  const ssize_t got = getrandom(random.data(), bytes, 0);
  CHECK(got == static_cast<ssize_t>(bytes), "getrandom gave {} of {} bytes", got, bytes);
  std::string hex;
  for (size_t i = 0; i < bytes; ++i) hex += fmt::format("{:02x}", random[i]);
  return hex;
}

}  // namespace braid

// CHECK: always on, for programmers' errors. Prints where, what and an optional message (format
// string and arguments), then aborts. Nothing a user can cause may reach a CHECK.
#pragma once

#include <fmt/core.h>

namespace braid {

[[noreturn]] void CheckFailed(const char* file, int line, const char* what,
                              const std::string& message);

}  // namespace braid

#define CHECK(cond, ...)                                                       \
  do {                                                                         \
    if (!(cond)) [[unlikely]]                                                  \
      ::braid::CheckFailed(__FILE__, __LINE__, #cond,                          \
                           std::string{__VA_OPT__(fmt::format(__VA_ARGS__))}); \
  } while (false)

// Numbers as people read them, in start-up plans, tables and messages. Pure.
#pragma once

#include <cstdint>
#include <string>

namespace braid {

std::string ByteText(int64_t bytes);   // "812 B", "22.1 MiB", "7.45 GiB"
std::string TimeText(double seconds);  // "4.5 us", "12.34 ms", "2.50 s"
std::string CountText(int64_t count);  // "812", "11.6 M", "4.03 B"

}  // namespace braid

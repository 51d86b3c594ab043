// Flags whose value is a list of named numbers: "in=512,out=64".
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>

#include "base/result.h"

namespace braid {

struct NamedNumber {
  std::string_view name;
  int64_t* value;
  int64_t least = 1;
};

// Sets the numbers that the text names; the others keep their values. The error shows the form.
Status ReadPairs(std::string_view flag, std::string_view text,
                 std::initializer_list<NamedNumber> names);

}  // namespace braid

// Facts that a build adds to the binary. A program may define them in a file of its own
// (cmake/dist.cmake); otherwise it gets the empty ones of braid_cli.
#pragma once

#include <string_view>

namespace braid {

extern const std::string_view kCommit;   // of the sources, with -dirty after changes; may be empty
extern const std::string_view kNotices;  // licences of what is linked in; `make dist` alone has it

}  // namespace braid

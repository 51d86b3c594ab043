// Linked where the build adds no notices: everywhere except in `make dist`. Must define nothing
// else: the linker takes this file from the library only if its symbols are still undefined.
#include "cli/command/build_facts.h"

namespace braid {

constinit const std::string_view kNotices;

}  // namespace braid

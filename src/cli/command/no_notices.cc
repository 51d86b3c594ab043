// Linked where the build adds no notices, that is, everywhere but in `make dist`. Has nothing else:
// the linker takes this file from the library only when nobody else has defined what is here.
#include "cli/command/build_facts.h"

namespace braid {

constinit const std::string_view kNotices;

}  // namespace braid

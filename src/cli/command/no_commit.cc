// Linked where the build names no commit, as in tests. Has nothing else: the linker takes this file
// from the library only when nobody else has defined what is here.
#include "cli/command/build_facts.h"

namespace braid {

constinit const std::string_view kCommit;

}  // namespace braid

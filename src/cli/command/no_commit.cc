// Linked where the build names no commit, as in tests. Must define nothing else: the linker takes
// this file from the library only if its symbols are still undefined.
#include "cli/command/build_facts.h"

namespace braid {

constinit const std::string_view kCommit;

}  // namespace braid

// Threads that give way to others of their process. Any thread.
#pragma once

namespace braid {

// Sets the priority of the calling thread `steps` (0 to 39) of nice below that of the process's
// first thread, at most the lowest there is (Linux), however often it is called. A failure only
// costs latency.
void GiveWay(int steps);

}  // namespace braid

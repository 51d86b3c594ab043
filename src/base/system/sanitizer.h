// What the sanitizer offers that this program is built with. Without one, each is null.
#pragma once

#include <cstddef>

extern "C" {

// Bytes that its allocator has given out; mallinfo2 does not count them.
[[gnu::weak]] size_t __sanitizer_get_current_allocated_bytes();

// Looks for leaks now instead of at the end of the process, which ends if there are some.
[[gnu::weak]] void __lsan_do_leak_check();

// Between the two, what this thread allocates never counts as leaked.
[[gnu::weak]] void __lsan_disable();
[[gnu::weak]] void __lsan_enable();

}  // extern "C"

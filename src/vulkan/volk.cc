// The loader of Vulkan's functions, which the package brings as a header. It finds libvulkan when
// the program asks for a device, so the program starts without one.
#define VOLK_IMPLEMENTATION
#include <volk.h>

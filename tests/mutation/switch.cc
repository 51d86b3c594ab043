// The switch of a mutation build: read from the environment before anything else of the program
// runs. $BRAID_MUTANTS_REACHED names a file of one byte per mutant, which survives the process.
#include "switch.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>

namespace {

constexpr int kMutantsMax = 1 << 14;
unsigned char nobody_asks[kMutantsMax];

}  // namespace

int braid_mutant = 0;
unsigned char* braid_mutants_reached = nobody_asks;

namespace {

[[gnu::constructor(101)]] void ReadEnvironment() {
  if (const char* number = std::getenv("BRAID_MUTANT")) braid_mutant = std::atoi(number);
  const char* name = std::getenv("BRAID_MUTANTS_REACHED");
  if (name == nullptr) return;
  const int file = ::open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (file < 0 || ::ftruncate(file, kMutantsMax) != 0) return;
  void* bytes = ::mmap(nullptr, kMutantsMax, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (bytes != MAP_FAILED) braid_mutants_reached = static_cast<unsigned char*>(bytes);
  ::close(file);
}

}  // namespace

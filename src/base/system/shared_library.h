// Shared libraries that the program can do without: each is loaded when a flag needs it, so the
// program starts where it is not installed. A library stays loaded until the process ends.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace braid {

class SharedLibrary {
 public:
  struct Need {
    const char* product;                 // with its version: "ZeroMQ 4"
    const char* purpose;                 // "for KV events"
    const char* package;                 // Debian's
    std::span<const char* const> files;  // all of them, each after those that it needs
    bool global = false;                 // plugins of the library look for its symbols
  };
  // kUnavailable names the file that cannot be loaded, why, and the package.
  static Result<SharedLibrary> Load(const Need& need);

  // Sets a pointer to a function, or to an object, of that name in one of the files.
  template <class T>
  void Find(const char* name, T*& to) {
    to = reinterpret_cast<T*>(Symbol(name));
  }
  // kUnavailable names the first symbol that was not found.
  Status FoundAll() const;

 private:
  explicit SharedLibrary(const Need& need) : product_(need.product), file_(need.files.back()) {}
  void* Symbol(const char* name);

  std::string product_, file_, missing_;
  std::vector<void*> handles_;
};

}  // namespace braid

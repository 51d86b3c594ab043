// See the header. Errors are those of dlerror, which belong to the thread.
#include "base/system/shared_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

namespace braid {

Result<SharedLibrary> SharedLibrary::Load(const Need& need) {
  SharedLibrary library(need);
  for (const char* file : need.files) {
    void* handle = ::dlopen(file, RTLD_NOW | (need.global ? RTLD_GLOBAL : RTLD_LOCAL));
    if (handle == nullptr) {
      return Error{ErrorCode::kUnavailable,
                   fmt::format("{} is needed {}, and {} cannot be loaded: {}. Install it (Debian: "
                               "{})",
                               need.product, need.purpose, file, ::dlerror(), need.package)};
    }
    library.handles_.push_back(handle);
  }
  return library;
}

void* SharedLibrary::Symbol(const char* name) {
  for (void* handle : handles_) {
    if (void* symbol = ::dlsym(handle, name)) return symbol;
  }
  if (missing_.empty()) missing_ = name;
  return nullptr;
}

Status SharedLibrary::FoundAll() const {
  if (missing_.empty()) return {};
  return Error{ErrorCode::kUnavailable,
               fmt::format("{} has no {}; {} is needed", file_, missing_, product_)};
}

}  // namespace braid

// `braid version` and `braid licences`.
#include "cli/command/version.h"

#include <fmt/core.h>

#include <cstdio>

#include "cli/command/build_facts.h"
#include "cli/command/command_factories.h"

namespace braid {
namespace {

class VersionCommand : public Command {
 public:
  void AddFlags(Flags&) override {}
  Status Run() override {
    fmt::print("braid {}", kVersion);
    if (!kCommit.empty()) fmt::print(" (commit {})", kCommit);
    fmt::print("\n");
    return {};
  }
};

class LicencesCommand : public Command {
 public:
  void AddFlags(Flags&) override {}
  Status Run() override {
    if (kNotices.empty()) {
      fmt::print(
          "Braid is under the Apache License 2.0 (the file LICENSE). This binary was built\n"
          "without the licences of the libraries in it; `make dist` builds one that has them.\n");
      return {};
    }
    std::fwrite(kNotices.data(), 1, kNotices.size(), stdout);
    return {};
  }
};

}  // namespace

CommandPointer MakeVersionCommand() { return std::make_unique<VersionCommand>(); }
CommandPointer MakeLicencesCommand() { return std::make_unique<LicencesCommand>(); }

}  // namespace braid

// The flags of one command: typed, bounded, each with its aliases and its environment variable.
// Hides the parsing library from the commands.
//
// A flag "--max-model-len" is also read from BRAID_MAX_MODEL_LEN and has the names of the same flag
// in other servers as aliases. The command line overrides the environment.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace braid {

// "--max-model-len,-c,--context-length,--ctx-size": the flag, then its aliases.
std::string FlagNames(std::string_view flag);
// "BRAID_MAX_MODEL_LEN", or another server's variable for the same where only that is set.
std::string EnvironmentName(std::string_view flag);
// "8G", "512MiB", "1.5 GB", "4096": bytes, with K, M, G, T as powers of 1024; -1 if it is none.
int64_t ParseBytes(std::string_view text);

struct Range {
  double least;
  double most;
};

class Flags {
 public:
  explicit Flags(CLI::App& app) : app_(app) {}

  // Positional arguments, in order of the calls.
  void Required(std::string_view name, std::string& value, std::string_view help);
  void Optional(std::string_view name, std::string& value, std::string_view help);
  void RequiredList(std::string_view name, std::vector<std::string>& values, std::string_view help);

  void Switch(std::string_view flag, bool& value, std::string_view help);
  // Makes the value false.
  void SwitchOff(std::string_view flag, bool& value, std::string_view help);
  void Text(std::string_view flag, std::string& value, std::string_view help);
  // A text that protects something, as a key does. Check refuses an empty one: it mostly comes from
  // a variable that is not set, and would leave open what was to be protected.
  void NonEmpty(std::string_view flag, std::string& value, std::string_view help);
  void Choice(std::string_view flag, std::string& value, std::vector<std::string> choices,
              std::string_view help);
  void Bytes(std::string_view flag, int64_t& value, std::string_view help);
  void Number(std::string_view flag, int32_t& value, Range range, std::string_view help);
  // `value` counts in units of which the flag has `unit` for each of its own.
  void Number(std::string_view flag, int64_t& value, int64_t unit, Range range,
              std::string_view help);
  void Number(std::string_view flag, double& value, Range range, std::string_view help);
  void Number(std::string_view flag, std::optional<int32_t>& value, Range range,
              std::string_view help);
  void Number(std::string_view flag, std::optional<double>& value, Range range,
              std::string_view help);
  void Seed(std::string_view flag, std::optional<uint64_t>& value, std::string_view help);

  // After the command line was read: kInvalid for an empty text that must not be empty.
  Status Check() const;

 private:
  template <class T>
  CLI::Option* Add(std::string_view flag, T& value, std::string_view help);
  CLI::App& app_;
  std::vector<std::pair<const CLI::Option*, const std::string*>> non_empty_;
};

}  // namespace braid

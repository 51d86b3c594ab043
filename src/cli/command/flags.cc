// Flags through CLI11. The alias table holds only names that mean the same thing elsewhere.
#include "cli/command/flags.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <cmath>
#include <cstdlib>

namespace braid {
namespace {

struct Alias {
  std::string_view flag;
  std::string_view others;
  std::string_view variables = {};  // of the environment, with blanks between
};

// Of vLLM, SGLang and llama.cpp.
constexpr Alias kAliases[] = {
    {"--host", "", "LLAMA_ARG_HOST"},
    {"--port", "", "LLAMA_ARG_PORT"},
    {"--max-model-len", "-c,--context-length,--ctx-size", "LLAMA_ARG_CTX_SIZE"},
    {"--max-num-seqs", "--max-running-requests,--parallel", "LLAMA_ARG_N_PARALLEL"},
    {"--max-batch-tokens", "--max-num-batched-tokens,--batch-size,-b", "LLAMA_ARG_BATCH"},
    {"--chunk-tokens", "--chunked-prefill-size,--ubatch-size", "LLAMA_ARG_UBATCH"},
    {"--served-model-name", "-a,--alias", "LLAMA_ARG_ALIAS"},
    {"--threads", "-t", "LLAMA_ARG_THREADS"},
    {"--temperature", "--temp"},
    {"--max-tokens", "-n,--n-predict"},
    {"--kv-dtype", "--kv-cache-dtype"},
    {"--no-prefix-cache", "--disable-radix-cache,--no-enable-prefix-caching"},
    {"--drain-seconds", "--shutdown-timeout"},
    {"--watchdog-seconds", "--watchdog-timeout"},
    {"--tool-parser", "--tool-call-parser"},
    {"--api-key", "", "VLLM_API_KEY LLAMA_API_KEY"},
    {"--tls-cert", "--ssl-certfile,--ssl-cert-file", "LLAMA_ARG_SSL_CERT_FILE"},
    {"--tls-key", "--ssl-keyfile,--ssl-key-file", "LLAMA_ARG_SSL_KEY_FILE"},
    {"--cors-origins", "--allowed-origins"},
};

const Alias* FindAlias(std::string_view flag) {
  for (const Alias& alias : kAliases) {
    if (alias.flag == flag) return &alias;
  }
  return nullptr;
}

std::string Upper(std::string_view text) {
  std::string out;
  for (const char c : text) {
    out += c == '-' ? '_' : c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  }
  return out;
}

std::string Plain(double value) {
  return value == std::floor(value) && std::abs(value) < 1e15 ? fmt::format("{:.0f}", value)
                                                              : fmt::format("{}", value);
}

// One message for a number of the wrong form and for one out of range.
// Refuses what is out of range. Removes leading zeros of an integer, which CLI11 takes for octal.
CLI::Validator Within(Range range, bool integer) {
  const auto check = [range, integer](std::string& text) -> std::string {
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool number = error == std::errc() && end == text.data() + text.size() &&
                        (!integer || value == std::floor(value));
    if (number && value >= range.least && value <= range.most) {
      const size_t digits = text.find_first_not_of('0');
      if (integer) text.erase(0, std::min(digits, text.size() - 1));
      return {};
    }
    return fmt::format("{} is not {} from {} to {}", text, integer ? "an integer" : "a number",
                       Plain(range.least), Plain(range.most));
  };
  return CLI::Validator(check, "");
}

}  // namespace

std::string FlagNames(std::string_view flag) {
  const Alias* alias = FindAlias(flag);
  if (alias == nullptr || alias->others.empty()) return std::string(flag);
  return fmt::format("{},{}", flag, alias->others);
}

std::string EnvironmentName(std::string_view flag) {
  const std::string own = "BRAID_" + Upper(flag.substr(flag.find_first_not_of('-')));
  const Alias* alias = FindAlias(flag);
  if (alias == nullptr || std::getenv(own.c_str()) != nullptr) return own;
  for (std::string_view left = alias->variables; !left.empty();) {
    const size_t end = std::min(left.find(' '), left.size());
    const std::string name(left.substr(0, end));
    if (std::getenv(name.c_str()) != nullptr) return name;
    left.remove_prefix(std::min(end + 1, left.size()));
  }
  return own;
}

int64_t ParseBytes(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || !(value >= 0)) return -1;
  std::string unit = Upper(text.substr(static_cast<size_t>(end - text.data())));
  while (!unit.empty() && unit.front() == ' ') unit.erase(0, 1);
  if (unit.ends_with("IB")) {
    unit.resize(unit.size() - 2);
  } else if (unit.ends_with("B")) {
    unit.pop_back();
  }
  if (unit.size() > 1) return -1;
  const size_t power = unit.empty() ? 0 : std::string_view("KMGT").find(unit[0]) + 1;
  if (!unit.empty() && power == 0) return -1;
  const double bytes = value * std::pow(1024.0, static_cast<double>(power));
  return bytes < 0x1p62 ? static_cast<int64_t>(bytes) : -1;
}

template <class T>
CLI::Option* Flags::Add(std::string_view flag, T& value, std::string_view help) {
  return app_.add_option(FlagNames(flag), value, std::string(help))->envname(EnvironmentName(flag));
}

void Flags::Required(std::string_view name, std::string& value, std::string_view help) {
  // Other servers take the model as a flag.
  const std::string names = name == "MODEL" ? "MODEL,--model,--model-path,-m" : std::string(name);
  app_.add_option(names, value, std::string(help))->required();
}

void Flags::Optional(std::string_view name, std::string& value, std::string_view help) {
  app_.add_option(std::string(name), value, std::string(help));
}

void Flags::RequiredList(std::string_view name, std::vector<std::string>& values,
                         std::string_view help) {
  app_.add_option(std::string(name), values, std::string(help))->required();
}

void Flags::Switch(std::string_view flag, bool& value, std::string_view help) {
  app_.add_flag(FlagNames(flag), value, std::string(help))->envname(EnvironmentName(flag));
}

void Flags::SwitchOff(std::string_view flag, bool& value, std::string_view help) {
  const auto set = [&value](int64_t count) { value = count <= 0; };  // -1: "false"
  app_.add_flag_function(FlagNames(flag), set, std::string(help))->envname(EnvironmentName(flag));
}

void Flags::Text(std::string_view flag, std::string& value, std::string_view help) {
  CLI::Option* option = Add(flag, value, help);
  if (!value.empty()) option->default_str(value);
}

void Flags::NonEmpty(std::string_view flag, std::string& value, std::string_view help) {
  non_empty_.emplace_back(Add(flag, value, help), &value);
}

// CLI11 takes an empty variable for one that is not set.
Status Flags::Check() const {
  for (const auto& [option, value] : non_empty_) {
    const std::string variable = option->get_envname();
    const bool given = option->count() > 0;
    if (!value->empty() || (!given && std::getenv(variable.c_str()) == nullptr)) continue;
    return Error{ErrorCode::kInvalid, fmt::format("{} is empty: give it a value, or leave it out",
                                                  given ? option->get_name() : variable)};
  }
  return {};
}

void Flags::Choice(std::string_view flag, std::string& value, std::vector<std::string> choices,
                   std::string_view help) {
  const std::string list = fmt::format("{}", fmt::join(choices, "|"));
  const auto check = [choices = std::move(choices), list](std::string& text) -> std::string {
    for (const std::string& choice : choices) {
      if (choice == text) return {};
    }
    return fmt::format("{} is none of {}", text, list);
  };
  Add(flag, value, help)->check(CLI::Validator(check, ""))->type_name(list)->default_str(value);
}

void Flags::Bytes(std::string_view flag, int64_t& value, std::string_view help) {
  const auto convert = [](std::string& text) -> std::string {
    const int64_t bytes = ParseBytes(text);
    if (bytes < 0) return fmt::format("{} is not a size such as 8G, 512MiB or 1.5GB", text);
    text = std::to_string(bytes);
    return {};
  };
  Add(flag, value, help)->transform(CLI::Validator(convert, ""))->type_name("SIZE");
}

void Flags::Number(std::string_view flag, int32_t& value, Range range, std::string_view help) {
  Add(flag, value, help)->transform(Within(range, true))->type_name("N");
  if (value > 0) app_.get_option(std::string(flag))->default_str(std::to_string(value));
}

void Flags::Number(std::string_view flag, int64_t& value, int64_t unit, Range range,
                   std::string_view help) {
  const auto convert = [within = Within(range, true), unit](std::string& text) -> std::string {
    std::string error = within(text);
    if (!error.empty()) return error;
    double number = 0;  // whole, perhaps written as 1e3
    std::from_chars(text.data(), text.data() + text.size(), number);
    text = std::to_string(static_cast<int64_t>(number) * unit);
    return {};
  };
  Add(flag, value, help)->transform(CLI::Validator(convert, ""))->type_name("N");
  if (value > 0) app_.get_option(std::string(flag))->default_str(std::to_string(value / unit));
}

void Flags::Number(std::string_view flag, double& value, Range range, std::string_view help) {
  Add(flag, value, help)->check(Within(range, false))->type_name("X");
  if (value > 0) app_.get_option(std::string(flag))->default_str(Plain(value));
}

void Flags::Number(std::string_view flag, std::optional<int32_t>& value, Range range,
                   std::string_view help) {
  Add(flag, value, help)->transform(Within(range, true))->type_name("N");
}

void Flags::Number(std::string_view flag, std::optional<double>& value, Range range,
                   std::string_view help) {
  Add(flag, value, help)->check(Within(range, false))->type_name("X");
}

void Flags::Seed(std::string_view flag, std::optional<uint64_t>& value, std::string_view help) {
  Add(flag, value, help)->transform(Within({0, 0x1p64}, true))->type_name("N");
}

}  // namespace braid

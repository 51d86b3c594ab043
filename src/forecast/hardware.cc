// Reading hardware: one table of keys.
#include "forecast/hardware.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/json.h"
#include "base/system/file.h"

namespace braid {

extern const std::string_view kHardwareH100, kHardwareH200, kHardwareB200, kHardwareTpuV7x,
    kHardwareEpyc2Core;

namespace {

constexpr size_t kFileBytesMax = size_t{1} << 20;

struct Key {
  std::string_view name;
  double Hardware::* number;
  bool required = false;
  double most = 1e21;
};
constexpr Key kKeys[] = {
    {"memory_bytes", &Hardware::memory_bytes, true},
    {"memory_bytes_per_second", &Hardware::memory_bytes_per_second, true},
    {"bf16_flops", &Hardware::bf16_flops, true},
    {"fp8_flops", &Hardware::fp8_flops},
    {"int8_flops", &Hardware::int8_flops},
    {"int4_flops", &Hardware::int4_flops},
    {"link_bytes_per_second", &Hardware::link_bytes_per_second},
    {"link_devices", &Hardware::link_devices},
    {"network_bytes_per_second", &Hardware::network_bytes_per_second},
    {"exchange_seconds", &Hardware::exchange_seconds},
    {"mean_hops", &Hardware::mean_hops},
    {"host_seconds", &Hardware::host_seconds},
    {"arithmetic_fraction", &Hardware::arithmetic_fraction, false, 1},
    {"memory_fraction", &Hardware::memory_fraction, false, 1},
    {"link_fraction", &Hardware::link_fraction, false, 1},
    {"dollars_per_hour", &Hardware::dollars_per_hour},
    {"watts", &Hardware::watts},
};

struct Known {
  std::string_view name;
  const std::string_view* json;
};
constexpr Known kKnown[] = {{"h100", &kHardwareH100},
                            {"h200", &kHardwareH200},
                            {"b200", &kHardwareB200},
                            {"tpu_v7x", &kHardwareTpuV7x},
                            {"epyc_2core", &kHardwareEpyc2Core}};

Error Wrong(std::string_view source, std::string_view key, std::string_view what) {
  return {ErrorCode::kInvalid, fmt::format("{}: {} {}", source, key, what), std::string(key)};
}

const std::string* TextOf(const json::object& object, std::string_view key, std::string& text) {
  const json::value* value = object.if_contains(key);
  if (value == nullptr || !value->is_string() || value->as_string().empty()) return nullptr;
  text = std::string(value->as_string());
  return &text;
}

Status ReadNumber(std::string_view source, std::string_view key, const json::value& entry,
                  Hardware& hardware) {
  const Key* known = std::ranges::find(kKeys, key, &Key::name);
  if (known == std::end(kKeys)) {
    std::string names;
    for (const Key& k : kKeys) names += fmt::format("{}{}", names.empty() ? "" : ", ", k.name);
    return Wrong(source, key, "is unknown; the numbers are " + names);
  }
  std::string origin;
  const json::object* object = entry.if_object();
  if (object == nullptr || !object->contains("value") || !TextOf(*object, "source", origin)) {
    return Wrong(source, key, "must be {\"value\": a number, \"source\": where it is from}");
  }
  const json::value& value = object->at("value");
  const double number = value.is_number() ? value.to_number<double>() : -1;
  if (!(number > 0) || number > known->most) {
    return Wrong(source, key,
                 fmt::format("is {}; it must be above 0{}", JsonExcerpt(value),
                             known->most == 1 ? " and at most 1" : ""));
  }
  hardware.*known->number = number;
  hardware.sources.push_back(fmt::format("{} {:g}: {}", key, number, origin));
  return {};
}

}  // namespace

double Hardware::FlopsFor(ops::WeightFormat format) const {
  double flops = 0;
  if (format == ops::WeightFormat::kF8) flops = fp8_flops;
  if (ops::RowOf(format).integers) flops = int8_flops;
  if (format == ops::WeightFormat::kI4) flops = int4_flops;
  return flops > 0 ? flops : bf16_flops;
}

Result<Hardware> ParseHardware(std::string_view text, std::string_view source) {
  ASSIGN_OR_RETURN(const json::value value, ParseJson(text, source));
  const json::object* object = value.if_object();
  Hardware hardware;
  if (object == nullptr || !TextOf(*object, "name", hardware.name)) {
    return Wrong(source, "name", "is missing: the file must be an object with name and numbers");
  }
  TextOf(*object, "description", hardware.description);
  const json::value* numbers = object->if_contains("numbers");
  if (numbers == nullptr || !numbers->is_object()) {
    return Wrong(source, "numbers", "must be an object of numbers with their sources");
  }
  for (const auto& [key, entry] : numbers->as_object()) {
    RETURN_IF_ERROR(ReadNumber(source, key, entry, hardware));
  }
  for (const Key& key : kKeys) {
    if (key.required && !(hardware.*key.number > 0)) {
      return Wrong(source, key.name, "is missing; it must be a number above 0 with its source");
    }
  }
  for (double Hardware::* flops : {&Hardware::bf16_flops, &Hardware::fp8_flops,
                                   &Hardware::int8_flops, &Hardware::int4_flops}) {
    hardware.*flops *= hardware.arithmetic_fraction;
  }
  hardware.memory_bytes_per_second *= hardware.memory_fraction;
  hardware.link_bytes_per_second *= hardware.link_fraction;
  hardware.network_bytes_per_second *= hardware.link_fraction;
  return hardware;
}

std::vector<std::string_view> KnownHardware() {
  std::vector<std::string_view> names;
  for (const Known& known : kKnown) names.push_back(known.name);
  return names;
}

Result<Hardware> ReadHardware(const std::string& name_or_path) {
  for (const Known& known : kKnown) {
    if (known.name == name_or_path) return ParseHardware(*known.json, known.name);
  }
  Result<std::string> text = ReadFile(name_or_path, kFileBytesMax);
  if (!text) {
    return Error{ErrorCode::kNotFound,
                 fmt::format("{} is neither known hardware ({}) nor a file that can be read: {}",
                             name_or_path, fmt::join(KnownHardware(), ", "), text.error().message),
                 "--hardware"};
  }
  return ParseHardware(*text, name_or_path);
}

}  // namespace braid

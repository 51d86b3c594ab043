// Reading hardware: one table of keys.
#include "forecast/hardware.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/json.h"
#include "base/system/file.h"

namespace braid {

extern const std::string_view kHardwareH100, kHardwareH200, kHardwareB200, kHardwareTpuV7x,
    kHardwareEpyc2Core;

namespace {

constexpr size_t kFileBytesMax = size_t{1} << 20;
constexpr size_t kCalibrationBytesMax = size_t{64} << 20;

enum class Range : uint8_t { kPositive, kFraction, kBytes, kDevices };
struct Key {
  std::string_view name;
  double Hardware::* number;
  Range range = Range::kPositive;
  bool required = false;
};
constexpr Key kKeys[] = {
    {"memory_bytes", &Hardware::memory_bytes, Range::kBytes, true},
    {"memory_bytes_per_second", &Hardware::memory_bytes_per_second, Range::kPositive, true},
    {"bf16_flops", &Hardware::bf16_flops, Range::kPositive, true},
    {"fp8_flops", &Hardware::fp8_flops},
    {"int8_flops", &Hardware::int8_flops},
    {"int4_flops", &Hardware::int4_flops},
    {"link_bytes_per_second", &Hardware::link_bytes_per_second},
    {"link_devices", &Hardware::link_devices, Range::kDevices},
    {"network_bytes_per_second", &Hardware::network_bytes_per_second},
    {"exchange_seconds", &Hardware::exchange_seconds},
    {"mean_hops", &Hardware::mean_hops},
    {"host_seconds", &Hardware::host_seconds},
    {"host_sequence_seconds", &Hardware::host_sequence_seconds},
    {"arithmetic_fraction", &Hardware::arithmetic_fraction, Range::kFraction},
    {"memory_fraction", &Hardware::memory_fraction, Range::kFraction},
    {"link_fraction", &Hardware::link_fraction, Range::kFraction},
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

bool InRange(Range range, double number) {
  switch (range) {
    case Range::kPositive:
      return number > 0 && number <= 1e21;
    case Range::kFraction:
      return number > 0 && number <= 1;
    case Range::kBytes:
      return number >= 1 && number <= 1e18;
    case Range::kDevices:
      return number >= 1 && number <= 4096 && number == std::floor(number);
  }
  return false;
}

std::string_view TextOf(Range range) {
  constexpr std::string_view kTexts[] = {"above 0 and at most 1e21", "above 0 and at most 1",
                                         "from 1 to 1e18", "a whole number from 1 to 4096"};
  return kTexts[static_cast<size_t>(range)];
}

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
  if (!InRange(known->range, number)) {
    return Wrong(source, key,
                 fmt::format("is {}; it must be {}", JsonExcerpt(value), TextOf(known->range)));
  }
  hardware.*known->number = number;
  hardware.sources.push_back(fmt::format("{} {:g}: {}", key, number, origin));
  return {};
}

// What a result of `bench ops` says of a part of a step; nothing if it is of none.
Status ReadMeasured(const json::object& run, std::string_view source,
                    std::vector<MeasuredPart>& parts, std::vector<double> (&fractions)[2]) {
  const json::value* results = run.if_contains("results");
  if (results == nullptr || !results->is_array()) {
    return Wrong(source, "results", "is missing; write the lines with `braid bench ops --json`");
  }
  for (const json::value& entry : results->as_array()) {
    const json::object* row = entry.if_object();
    const auto number = [&](std::string_view key) {
      const json::value* value = row == nullptr ? nullptr : row->if_contains(key);
      return value != nullptr && value->is_number() ? value->to_number<double>() : -1;
    };
    const auto text = [&](std::string_view key) {
      const json::value* value = row == nullptr ? nullptr : row->if_contains(key);
      return value != nullptr && value->is_string() ? std::string(value->as_string())
                                                    : std::string();
    };
    const MeasuredPart part{.part = text("part"),
                            .format = text("format"),
                            .flops = number("flops"),
                            .bytes = number("bytes"),
                            .seconds = number("ns_median") * 1e-9};
    const bool nothing = !part.part.empty() && !(part.flops + part.bytes > 0);
    if (part.flops < 0 || part.bytes < 0 || nothing || part.seconds <= 0) {
      return Wrong(
          source, "results",
          fmt::format("has {}; each needs flops and bytes, of a part of a step not both 0, "
                      "and an ns_median above 0",
                      JsonExcerpt(entry)));
    }
    if (part.part.empty()) continue;
    const double fraction = number("fraction_of_limit");
    const bool memory = text("limited_by") == "memory";
    if (fraction > 0) fractions[memory ? 0 : 1].push_back(std::min(1.0, fraction));
    parts.push_back(part);
  }
  return {};
}

// bf16 if the line does not say.
Result<DType> KvDtypeOf(const json::object& run, std::string_view source) {
  std::string name;
  if (!TextOf(run, "kv_dtype", name)) return DType::kBF16;
  for (const DType type : {DType::kF32, DType::kBF16, DType::kI8}) {
    if (name == NameOf(type)) return type;
  }
  return Wrong(source, "kv_dtype", fmt::format("is {}; it must be f32, bf16 or i8", name));
}

// 1 if there are none.
double MedianOf(std::vector<double> values) {
  if (values.empty()) return 1;
  std::ranges::sort(values);
  return values[values.size() / 2];
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
  if (hardware.link_devices > 1 && !(hardware.link_bytes_per_second > 0)) {
    return Wrong(
        source, "link_bytes_per_second",
        fmt::format("is missing; links that join {} devices have a rate", hardware.link_devices));
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

Result<Hardware> ParseCalibration(std::string_view lines, std::string_view source) {
  std::optional<Hardware> hardware;
  std::vector<MeasuredPart> parts;
  std::vector<double> fractions[2];
  for (int64_t line = 1; !lines.empty(); ++line) {
    const std::string_view text = lines.substr(0, lines.find('\n'));
    lines.remove_prefix(std::min(lines.size(), text.size() + 1));
    if (text.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const std::string where = fmt::format("{}, line {}", source, line);
    ASSIGN_OR_RETURN(const json::value run, ParseJson(text, where));
    const json::object* object = run.if_object();
    const json::value* device = object == nullptr ? nullptr : object->if_contains("hardware");
    if (device == nullptr) {
      return Wrong(where, "hardware", "is missing; write the lines with `braid bench ops --json`");
    }
    ASSIGN_OR_RETURN(Hardware of_line, ParseHardware(json::serialize(*device), where));
    ASSIGN_OR_RETURN(of_line.kv_dtype, KvDtypeOf(*object, where));
    if (!hardware) hardware = of_line;
    if (of_line.name != hardware->name) {
      return Wrong(where, "hardware",
                   fmt::format("is {} and that of earlier lines {}; give each device a file of its "
                               "own",
                               of_line.name, hardware->name));
    }
    if (of_line.kv_dtype != hardware->kv_dtype) {
      return Wrong(where, "kv_dtype",
                   fmt::format("is {} and that of earlier lines {}; give each a file of its own",
                               NameOf(of_line.kv_dtype), NameOf(hardware->kv_dtype)));
    }
    RETURN_IF_ERROR(ReadMeasured(*object, where, parts, fractions));
  }
  if (parts.empty()) {
    return Wrong(source, "results",
                 "has no part of a step; write the lines with `braid bench ops --json`");
  }
  hardware->measured_on = hardware->name;
  hardware->sources.push_back(fmt::format("times of {} parts of steps, measured on {}: {}",
                                          parts.size(), hardware->name, source));
  hardware->calibration =
      Calibration(std::move(parts), MedianOf(fractions[0]), MedianOf(fractions[1]));
  return *std::move(hardware);
}

Result<Hardware> ReadCalibrated(const std::string& hardware, const std::string& calibration) {
  if (calibration.empty()) return ReadHardware(hardware.empty() ? "h200" : hardware);
  ASSIGN_OR_RETURN(const std::string text, ReadFile(calibration, kCalibrationBytesMax));
  ASSIGN_OR_RETURN(Hardware measured, ParseCalibration(text, calibration));
  if (hardware.empty()) return measured;
  ASSIGN_OR_RETURN(Hardware named, ReadHardware(hardware));
  named.calibration = std::move(measured.calibration);
  named.measured_on = measured.name;
  named.kv_dtype = measured.kv_dtype;
  named.sources.push_back(measured.sources.back());
  return named;
}

}  // namespace braid

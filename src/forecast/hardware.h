// What a device can do, as data: a JSON object in which every number has its source as a value, not
// as a comment, so that a plan can print it. Known devices are embedded (hardware/*.json); a user's
// file has the same form. Pure apart from ReadHardware.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "forecast/calibration.h"
#include "ops/weight_format.h"
#include "tensor/dtype.h"

namespace braid {

// One device. Rates are limits, per second; 0: the device has none or nobody says.
struct Hardware {
  std::string name;         // "h100"
  std::string description;  // "NVIDIA H100 SXM, 80 GB"
  double memory_bytes = 0;
  double memory_bytes_per_second = 0;
  double bf16_flops = 0;  // a multiply-add is two
  double fp8_flops = 0;   // 0: products with weights of the format run as bf16
  double int8_flops = 0;
  double int4_flops = 0;
  double link_bytes_per_second = 0;     // sent by a device to its link_devices, one direction
  double link_devices = 1;              // devices that the links join, this one included
  double network_bytes_per_second = 0;  // to any other device; 0: links only
  double exchange_seconds = 0;          // latency of a collective
  double mean_hops = 1;                 // links that a byte to a random device crosses
  double host_seconds = 0;              // per step: launches, scheduling
  double host_sequence_seconds = 0;     // likewise, for each sequence of the step
  // Parts of the limits that measurements reached; ParseHardware has multiplied the rates by them.
  double arithmetic_fraction = 1;
  double memory_fraction = 1;
  double link_fraction = 1;
  double dollars_per_hour = 0;
  double watts = 0;
  Calibration calibration;        // empty: all times are the limits
  std::string measured_on;        // the device of the calibration, which may be another one
  DType kv_dtype = DType::kBF16;  // of keys and values: as the calibration measured them
  // One line per number that was given: "memory_bytes 80000000000: NVIDIA ... data sheet".
  std::vector<std::string> sources;

  // Of products with weights of the format.
  double FlopsFor(ops::WeightFormat format) const;
};

// The error names the key that is wrong or missing; `source` names the text.
Result<Hardware> ParseHardware(std::string_view json, std::string_view source);
// A name of KnownHardware or a path to a file. The error lists the names.
Result<Hardware> ReadHardware(const std::string& name_or_path);
std::vector<std::string_view> KnownHardware();

// The device that results of `braid bench ops --json`, an object per line, are of, with what they
// measured as its calibration. All lines are of one device and one type of keys and values. The
// error names the line.
Result<Hardware> ParseCalibration(std::string_view lines, std::string_view source);
// The same of a file. With a `hardware` other than "", that one, with the file's measurements.
Result<Hardware> ReadCalibrated(const std::string& hardware, const std::string& calibration);

}  // namespace braid

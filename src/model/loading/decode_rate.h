// What decoding one sequence takes, by the cost formula: the bytes and operations of a token where
// a device, the host, or both compute it, and the time that measured rates make of them. Pure:
// rates come as numbers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/loading/load_report.h"
#include "model/spec.h"

namespace braid {

// Of one token of one sequence, with nothing in the cache; drafts are not counted.
struct DecodeWork {
  std::vector<Cost> parts;
  double routed_bytes = 0;  // of experts that the router chooses, which `parts` do not have
  double routed_flops = 0;
  int32_t mixtures = 0;  // layers that have such experts
  int64_t kernels =
      0;  // and copies, as the device was asked for them; each waits for the one before

  double bytes() const;  // of all
};
DecodeWork DecodeWorkOf(const ModelSpec& spec, const LoadReport& report, DType kv_dtype);

// What decoding one sequence reaches of the limit of a CPU's memory (docs/performance.md).
inline constexpr double kReachedOnCpu = 0.88;

// As measured.
struct DeviceRates {
  double bytes_per_second = 0;  // that the device reads
  double operations_per_second = 0;
  double start_seconds = 0;          // of a kernel that does nothing, behind another
  double submission_seconds = 0;     // of a submission that does nothing, with the wait for its end
  double host_bytes_per_second = 0;  // that the CPU reads; 0: the device computes the experts too
};

// Of a token, in seconds.
struct DecodeTime {
  double device = 0;       // of its bytes and operations
  double starts = 0;       // of its kernels
  double host = 0;         // of the experts there
  double submissions = 0;  // one for the step and one for each time that experts are handed over

  double seconds() const { return device + starts + host + submissions; }
};
DecodeTime DecodeTimeOf(const DecodeWork& work, const DeviceRates& rates);

// "one sequence decodes about 11 tokens/s: …", for the start-up plan.
std::string RateText(const DecodeWork& work, const DecodeTime& time, const DeviceRates& rates);

}  // namespace braid

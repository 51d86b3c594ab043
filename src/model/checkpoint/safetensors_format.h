// The two JSON texts of a safetensors checkpoint, read as streams: nothing is kept that the caller
// does not keep, so a hostile header of the largest size costs no memory. The callbacks see entries
// in the order of the text; an error they return ends the reading. Any thread.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tensor/dtype.h"

namespace braid {

inline constexpr int64_t kTensorNameBytesMax = 1024;
inline constexpr int64_t kTensorRankMax = 8;

// "BF16", "F32" …: how safetensors calls a type.
std::string_view SafetensorsName(DType type);

struct HeaderTensor {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  int64_t begin = 0;  // offsets into the file's data; end - begin is what dtype and shape need
  int64_t end = 0;
};
using HeaderTensorSink = std::function<Status(const HeaderTensor&)>;

// {"name": {"dtype": …, "shape": […], "data_offsets": [begin, end]}, …, "__metadata__": {…}}
// `source` names the file in messages.
Status ReadSafetensorsHeader(std::string_view text, const std::string& source,
                             const HeaderTensorSink& sink);

// {"metadata": {…}, "weight_map": {"name": "file", …}}
using WeightMapSink = std::function<Status(std::string_view name, std::string_view file)>;
Status ReadWeightMap(std::string_view text, const std::string& source, const WeightMapSink& sink);

}  // namespace braid

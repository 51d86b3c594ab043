// A safetensors file, or the index of shards. What is accepted must tile the file: every tensor
// inside it, none over another.
#include <algorithm>

#include "base/check.h"
#include "fuzz_file.h"
#include "model/checkpoint/checkpoint.h"
#include "model/checkpoint/safetensors_format.h"

namespace braid {
namespace {

void CheckTensors(const Checkpoint& checkpoint, size_t file_bytes) {
  std::vector<const TensorEntry*> order;
  int64_t sum = 0;
  for (const auto& [name, entry] : checkpoint.tensors()) {
    CHECK(name == entry.name && !name.empty());
    order.push_back(&entry);
    sum += entry.bytes;
  }
  CHECK(sum >= 0 && static_cast<size_t>(sum) < file_bytes);
  std::ranges::sort(order, {}, [](const TensorEntry* e) { return e->data; });
  for (size_t i = 0; i + 1 < order.size(); ++i) {
    CHECK(order[i]->data + order[i]->bytes <= order[i + 1]->data);
  }
  for (const TensorEntry* entry : order) {  // touch both ends
    if (entry->bytes > 0) CHECK(entry->data[0] == entry->data[0]);
    if (entry->bytes > 0) CHECK(entry->data[entry->bytes - 1] == entry->data[entry->bytes - 1]);
  }
}

}  // namespace
}  // namespace braid

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace braid;
  static const FuzzDirectory directory;
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] == 'i') {
    const Status status =
        ReadWeightMap(text, "index", [](std::string_view, std::string_view) { return Status(); });
    CHECK(status || !status.error().message.empty());
    return 0;
  }
  directory.Write("model.safetensors", text);
  const Result<Checkpoint> checkpoint = Checkpoint::Open(directory.path());
  if (checkpoint) {
    CheckTensors(*checkpoint, text.size());
  } else {
    CHECK(!checkpoint.error().message.empty());
  }
  return 0;
}

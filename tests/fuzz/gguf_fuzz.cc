// A GGUF file: what is accepted can be read to its last block, and opening it as a model ends with
// a model or an error.
#include "base/check.h"
#include "fuzz_file.h"
#include "model/checkpoint/gguf_file.h"
#include "model/families/families.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace braid;
  static const FuzzDirectory directory;
  const std::string path = directory.Write("m.gguf", {reinterpret_cast<const char*>(data), size});
  const Result<GgufFile> gguf = ReadGguf(path);
  if (!gguf) {
    CHECK(!gguf.error().message.empty());
    return 0;
  }
  std::vector<float> block(256);
  for (const GgufTensor& tensor : gguf->tensors) {
    CHECK(tensor.bytes % tensor.row_bytes() == 0);
    tensor.type->decode(tensor.data, block.data());
    tensor.type->decode(tensor.data + tensor.bytes - tensor.type->block_bytes, block.data());
  }
  const Result<OpenedModel> model = OpenModel(path);
  CHECK(model || !model.error().message.empty());
  return 0;
}

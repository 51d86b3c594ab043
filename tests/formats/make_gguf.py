"""Makes layouts/*.gguf and layouts/gguf_blocks.safetensors with llama.cpp's converter and the
package gguf 0.19.

    python3 tests/formats/make_gguf.py LLAMA_CPP

LLAMA_CPP is a copy of llama.cpp's sources (llama-cpp-python 0.3.36 has one). Two golden
checkpoints go through its converter; random blocks of every type through the package's decoders.
"""

import pathlib
import sys

import numpy as np

LLAMA_CPP = pathlib.Path(sys.argv[1])
sys.path[:0] = [str(LLAMA_CPP / "gguf-py"), str(LLAMA_CPP)]

import gguf  # noqa: E402
import torch  # noqa: E402
from conversion import get_model_class  # noqa: E402
from conversion.base import ModelBase, ModelType, get_model_architecture  # noqa: E402

import stored  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
GOLDEN = HERE.parent / "golden"


def convert(name):
    source = GOLDEN / name
    architecture = get_model_architecture(ModelBase.load_hparams(source, False), ModelType.TEXT)
    converter = get_model_class(architecture)
    converter.set_vocab, converter.no_mtp = lambda self: None, True
    with torch.inference_mode():
        converter(source, gguf.LlamaFileType.MOSTLY_BF16, HERE / f"layouts/{name}.gguf",
                  model_name="golden").write()


def blocks():
    """[8, 512] of every type: random bytes with scales of a sensible size."""
    random = np.random.default_rng(5)
    tensors = {}
    for name, halves in (("Q4_0", [0]), ("Q8_0", [0]), ("Q4_K", [0, 2]), ("Q6_K", [208])):
        kind = gguf.GGMLQuantizationType[name]
        elements, size = gguf.GGML_QUANT_SIZES[kind]
        raw = random.integers(0, 256, (8, 512 // elements, size), dtype=np.uint8)
        for at in halves:
            scale = (random.random(raw.shape[:2]) * 0.01 + 1e-4).astype(np.float16)
            raw[..., at:at + 2] = scale[..., None].view(np.uint8)
        raw = raw.reshape(8, -1)
        tensors[name] = ("U8", raw)
        tensors[name + ".expected"] = ("F32", gguf.dequantize(raw, kind))
    stored.write(HERE / "layouts/gguf_blocks.safetensors", tensors)


if __name__ == "__main__":
    for golden in ("qwen3_5_moe_a", "qwen3_5_a"):
        convert(golden)
    blocks()

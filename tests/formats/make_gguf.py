"""Makes layouts/*.gguf and layouts/gguf_blocks.safetensors with llama.cpp's converter and the
package gguf 0.19.

    BRAID_BIN=build/release/braid python3 tests/formats/make_gguf.py LLAMA_CPP [NAME...]

LLAMA_CPP is a copy of llama.cpp's sources (llama-cpp-python 0.3.36 has one). Golden checkpoints of
the families that it knows go through its converter, and one of make-model, for it does not know
Qwen3-Next's dense layers; random blocks of every type go through the package's decoders.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

LLAMA_CPP = pathlib.Path(sys.argv[1])
sys.path[:0] = [str(LLAMA_CPP / "gguf-py"), str(LLAMA_CPP)]

import gguf  # noqa: E402
import torch  # noqa: E402
from conversion import get_model_class  # noqa: E402
from conversion.base import ModelBase, ModelType, get_model_architecture  # noqa: E402

import stored  # noqa: E402

CONVERTED = ("qwen3_5_moe_a", "qwen3_5_a", "deepseek_v3_a", "kimi_linear_c", "qwen3_next_made")
HERE = pathlib.Path(__file__).resolve().parent
GOLDEN = HERE.parent / "golden"


def convert(name, folder):
    source = GOLDEN / name
    if name in stored.MADE:
        source = folder / name
        subprocess.run([os.environ["BRAID_BIN"], "make-model", source, *stored.MADE[name]],
                       check=True)
    architecture = get_model_architecture(ModelBase.load_hparams(source, False), ModelType.TEXT)
    converter = get_model_class(architecture)
    converter.set_vocab, converter.no_mtp = lambda self: None, True
    with torch.inference_mode():
        converter(source, gguf.LlamaFileType.MOSTLY_BF16, HERE / f"layouts/{name}.gguf",
                  model_name="golden").write()


def text():
    """A model of zeros that has a tokenizer and a chat template in its metadata."""
    words = json.loads((GOLDEN / "words/qwen3_5.json").read_text())
    tokens = sorted(words["model"]["vocab"], key=words["model"]["vocab"].get)
    named = {"<|endoftext|>": gguf.TokenType.CONTROL, "<|im_start|>": gguf.TokenType.CONTROL,
             "<|im_end|>": gguf.TokenType.CONTROL, "<think>": gguf.TokenType.USER_DEFINED,
             "[PAD]": gguf.TokenType.UNUSED}
    tokens += [token for token in named if token not in tokens]
    types = [named.get(token, gguf.TokenType.NORMAL) for token in tokens]
    writer = gguf.GGUFWriter(HERE / "layouts/text.gguf", "qwen35")
    writer.add_block_count(1)
    writer.add_context_length(256)
    writer.add_embedding_length(32)
    writer.add_feed_forward_length(8)
    writer.add_head_count(2)
    writer.add_head_count_kv(1)
    writer.add_key_length(16)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(1e4)
    writer.add_rope_dimension_count(4)
    writer.add_full_attention_interval(1)
    writer.add_ssm_conv_kernel(4)
    writer.add_ssm_state_size(16)
    writer.add_ssm_group_count(1)
    writer.add_ssm_time_step_rank(1)
    writer.add_ssm_inner_size(16)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen35")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges([" ".join(pair) for pair in words["model"]["merges"]])
    writer.add_eos_token_id(tokens.index("<|endoftext|>"))
    writer.add_eot_token_id(tokens.index("<|im_end|>"))
    writer.add_bos_token_id(tokens.index("<|endoftext|>"))
    writer.add_add_bos_token(False)
    writer.add_chat_template((GOLDEN / "templates/json.jinja").read_text())
    shapes = {"attn_norm": (32,), "post_attention_norm": (32,), "attn_q": (64, 32),
              "attn_k": (16, 32), "attn_v": (16, 32), "attn_output": (32, 32),
              "attn_q_norm": (16,), "attn_k_norm": (16,), "ffn_gate": (8, 32), "ffn_up": (8, 32),
              "ffn_down": (32, 8)}
    for name, shape in shapes.items():
        writer.add_tensor(f"blk.0.{name}.weight", np.zeros(shape, np.float32))
    writer.add_tensor("token_embd.weight", np.zeros((len(tokens), 32), np.float16))
    writer.add_tensor("output_norm.weight", np.zeros(32, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


# Types in blocks: where a block has fp16 numbers. IQ1_M has its one in the highest four bits of
# four words.
BLOCKS = {"Q4_0": [0], "Q8_0": [0], "Q4_K": [0, 2], "Q6_K": [208], "Q5_K": [0, 2], "Q4_1": [0, 2],
          "Q5_0": [0], "Q5_1": [0, 2], "Q3_K": [108], "Q2_K": [80, 82], "IQ4_NL": [0],
          "IQ4_XS": [0], "MXFP4": [], "IQ2_XXS": [0], "IQ2_XS": [0], "IQ2_S": [0], "IQ3_XXS": [0],
          "IQ3_S": [0], "IQ1_S": [0], "IQ1_M": []}
# The tables of values that types of few bits name by number: of eight values in 2 bits each, or of
# four in 4 bits.
GRIDS = ("IQ1_S", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S")


def grid(name):
    """Its 16-bit numbers, as the package (ggml's common headers) packs them."""
    kind = getattr(gguf.quants, name)
    return np.frombuffer(bytes.fromhex(kind.grid_hex.decode()), np.uint16)


def grids():
    """The C++ source of the tables."""
    lines = ["// The tables of GGUF's types of few bits, as ggml defines them (ggml-common.h; "
             "licence MIT).",
             "// Generated from the package gguf by tests/formats/make_gguf.py: do not edit.",
             '#include "model/checkpoint/formats/gguf_grids.h"', "", "namespace braid {", ""]
    for name in GRIDS:
        title = name.title().replace("_", "")
        words = [f"0x{int(word):04x}" for word in grid(name)]
        lines.append(f"const uint16_t k{title}Grid[{len(words)}] = {{")
        for at in range(0, len(words), 12):
            row, last = words[at:at + 12], at + 12 >= len(words)
            lines.append("    " + ", ".join(row) + ("};" if last else ","))
        lines.append("")
    lines += ["}  // namespace braid", ""]
    source = HERE.parents[1] / "src/model/checkpoint/formats/gguf_grids.cc"
    source.write_text("\n".join(lines))


def blocks():
    """[8, 512] of every type, random bytes with scales of a sensible size, what the package reads
    there, and in the metadata the type's number. New types come last: the others stay as they are.
    """
    random = np.random.default_rng(5)
    tensors, numbers = {}, {}
    for name, halves in BLOCKS.items():
        kind = gguf.GGMLQuantizationType[name]
        numbers[name] = str(int(kind))
        elements, size = gguf.GGML_QUANT_SIZES[kind]
        raw = random.integers(0, 256, (8, 512 // elements, size), dtype=np.uint8)
        for at in halves:
            scale = (random.random(raw.shape[:2]) * 0.01 + 1e-4).astype(np.float16)
            raw[..., at:at + 2] = scale[..., None].view(np.uint8)
        if name == "MXFP4":  # a power of two
            raw[..., 0] = random.integers(110, 130, raw.shape[:2], dtype=np.uint8)
        if name == "IQ1_M":
            for at, nibble in ((49, 0x90), (51, 0x10), (53, 0x80), (55, 0x20)):  # 2^-7 and a bit
                raw[..., at] = raw[..., at] & 15 | nibble
        raw = raw.reshape(8, -1)
        tensors[name] = ("U8", raw)
        tensors[name + ".expected"] = ("F32", gguf.dequantize(raw, kind))
    for name in GRIDS:
        tensors[name + ".grid"] = ("U8", grid(name).view(np.uint8))
    stored.write(HERE / "layouts/gguf_blocks.safetensors", tensors, numbers)


if __name__ == "__main__":
    if sys.argv[2:] == ["text"]:
        sys.exit(text())
    if sys.argv[2:] == ["blocks"]:
        sys.exit(blocks() or grids())
    for golden in sys.argv[2:] or CONVERTED:
        with tempfile.TemporaryDirectory() as scratch:
            convert(golden, pathlib.Path(scratch))
    if not sys.argv[2:]:
        text()
        blocks()
        grids()

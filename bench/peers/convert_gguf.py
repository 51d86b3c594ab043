#!/usr/bin/env python3
"""Writes a checkpoint of ours as a GGUF file, with llama.cpp's own converter.

    python bench/peers/convert_gguf.py LLAMA_CPP MODEL OUT.gguf [--outtype bf16] [--tokenizer DIR]

LLAMA_CPP is its source folder; the Python needs torch, transformers and safetensors.  Two things
of the converter stand in the way of checkpoints made for tests and are worked around: it knows
tokenizers by a list of hashes (an unknown one is taken for Qwen2's way to split words, which only
matters for text), and it wants a tokenizer (--tokenizer lends one; ids past it become padding).
"""

import argparse
import json
import pathlib
import runpy
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json")


def with_tokenizer(model, tokenizer, folder):
    """`model` itself, or `folder` filled with links to it and to a tokenizer."""
    if (model / TOKENIZER_FILES[0]).exists():
        return model
    for file in model.iterdir():
        (folder / file.name).symlink_to(file.resolve())
    for name in TOKENIZER_FILES:
        (folder / name).symlink_to((tokenizer / name).resolve())
    return folder


def main():
    """Convert one checkpoint."""
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("llama_cpp", type=pathlib.Path)
    p.add_argument("model", type=pathlib.Path)
    p.add_argument("out", type=pathlib.Path)
    p.add_argument("--outtype", default="bf16", help="f32, f16, bf16 or q8_0")
    p.add_argument("--tokenizer", type=pathlib.Path, default=ROOT / "models/braid-tiny")
    args = p.parse_args()
    script = args.llama_cpp / "convert_hf_to_gguf.py"
    if not script.exists():
        p.error(f"{script} does not exist: LLAMA_CPP is the folder of its sources")
    sys.path[:0] = [str(args.llama_cpp), str(args.llama_cpp / "gguf-py")]
    from conversion.base import TextModel  # of llama.cpp

    known = TextModel.get_vocab_base_pre

    def pre_tokenizer(self, tokenizer):
        try:
            return known(self, tokenizer)
        except NotImplementedError:
            return "qwen2"

    TextModel.get_vocab_base_pre = pre_tokenizer
    with tempfile.TemporaryDirectory() as folder:
        model = with_tokenizer(args.model, args.tokenizer, pathlib.Path(folder))
        sys.argv = [str(script), str(model), "--outfile", str(args.out), "--outtype", args.outtype]
        config = json.loads((model / "config.json").read_text(encoding="utf-8"))
        if not config.get("text_config", config).get("mtp_num_hidden_layers"):
            sys.argv.append("--no-mtp")  # else it looks for a draft head
        runpy.run_path(str(script), run_name="__main__")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""What a format changes: perplexity of given texts and their log-probabilities under every choice
of --weights, --kv-dtype and --state-dtype, compared with those of the stored numbers in fp32
arithmetic, as a table.

    scripts/weight_formats.py MODEL [--braid build/release/braid] [--isa ISA] [--texts FILE...]

A text is the conversation of one line of an evaluation set (models/eval by default) with its
answer, in ChatML, the form that the models were trained on."""
import argparse
import glob
import json
import math
import os
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CHOICES = [
    ("every stored bit, fp32", ["--weights", "fp32", "--compute", "fp32"]),
    ("as stored, fp32", ["--compute", "fp32"]),
    ("as stored, fp32, cache bf16", ["--compute", "fp32", "--kv-dtype", "bf16"]),
    ("as stored, fp32, cache int8", ["--compute", "fp32", "--kv-dtype", "int8"]),
    ("as stored, fp32, state bf16", ["--compute", "fp32", "--state-dtype", "bf16"]),
    ("as stored, fp32, state int8", ["--compute", "fp32", "--state-dtype", "int8"]),
    ("as stored, bf16", ["--compute", "bf16"]),
    ("as stored, bf16, state int8", ["--compute", "bf16", "--state-dtype", "int8"]),
    ("fp8", ["--weights", "fp8"]),
    ("fp8, head too", ["--weights", "fp8", "--quantize-head"]),
    ("int8", ["--weights", "int8"]),
    ("int8, head too", ["--weights", "int8", "--quantize-head"]),
    ("int4", ["--weights", "int4"]),
    ("int4, head too", ["--weights", "int4", "--quantize-head"]),
    *((name, ["--weights", name])
      for name in ("q8_0", "q8_km", "q6_km", "q6_k", "q5_k", "q5_1", "q5_0", "q4_k", "q4_1",
                   "int4_zp32", "int4_zp", "iq4_xs", "iq4_nl", "nvfp4", "mxfp4", "iq3_xxs", "iq3_s",
                   "q3_k", "q2_k", "iq2", "iq1")),
]


def texts_of(paths, limit):
    lines = []
    for path in paths:
        with open(path, encoding="utf-8") as file:
            items = [json.loads(line) for line in file][:limit]
        for item in items:
            turns = [(m["role"], m["content"])
                     for m in item.get("messages", []) if m.get("content")]
            if isinstance(item.get("answer"), (str, int)):
                turns.append(("assistant", str(item["answer"])))
            said = "".join(f"<|im_start|>{role}\n{text}<|im_end|>\n" for role, text in turns)
            if said:
                lines.append(json.dumps({"text": said}))
    return lines


def score(args, flags, path):
    command = [args.braid, "score", args.model, path, "--top", "1", "--max-model-len", "4096",
               "--isa", args.isa, *flags]
    if "--kv-dtype" not in flags:
        command += ["--kv-dtype", "fp32"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{done.stderr}")
    logprobs, best = [], []
    for line in done.stdout.splitlines():
        answer = json.loads(line)
        logprobs += answer["logprobs"][1:]
        best += [top[0]["id"] for top in answer["top"]]
    return logprobs, best


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--braid", default=os.path.join(ROOT, "build/release/braid"))
    parser.add_argument("--isa", default="auto")
    parser.add_argument("--limit", type=int, default=10, help="texts of each file at most")
    parser.add_argument("--texts", nargs="*",
                        default=sorted(glob.glob(os.path.join(ROOT, "models/eval/*.jsonl"))))
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "texts.jsonl")
        with open(path, "w", encoding="utf-8") as file:
            file.write("\n".join(texts_of(args.texts, args.limit)) + "\n")
        base = None
        print("| weights | perplexity | mean change of a log-probability | largest | "
              "same best token |\n|---|---|---|---|---|")
        for name, flags in CHOICES:
            logprobs, best = score(args, flags, path)
            base = base or (logprobs, best)
            changes = [abs(a - b) for a, b in zip(logprobs, base[0])]
            same = sum(a == b for a, b in zip(best, base[1])) / len(best)
            perplexity = math.exp(-sum(logprobs) / len(logprobs))
            print(f"| {name} | {perplexity:.3f} | {sum(changes) / len(changes):.4f} | "
                  f"{max(changes):.2f} | {100 * same:.1f} % |", flush=True)
        print(f"\n{len(base[0])} tokens of {len(args.texts)} files", file=sys.stderr)


if __name__ == "__main__":
    main()

"""Writes tiktoken/: a small tiktoken.model, its config, and what the package makes of texts.

Run by hand: python tests/golden/export_tiktoken.py (needs tiktoken 0.14.0). The vocabulary is
trained on the texts here; joined tokens that no training would make stand beside it, so that one
token can be cut in several ways.
"""

import base64
import json
import pathlib
import random

import tiktoken
from tiktoken._educational import bpe_train

from export_texts import TEXTS

HERE = pathlib.Path(__file__).resolve().parent
OUT = HERE / "tiktoken"
PATTERN = "|".join([
    r"[\p{Han}]+",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*"
    r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+"
    r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}",
    r" ?[^\s\p{L}\p{N}]+[\r\n]*",
    r"\s*[\r\n]+",
    r"\s+(?!\S)",
    r"\s+",
])  # fmt: skip
TRAINED, JOINED, SLOTS = 520, 180, 256
# Slots behind the vocabulary, as the released file names them.
NAMED = {
    0: ("[BOS]", True), 1: ("[EOS]", True), 2: ("<|im_end|>", True), 3: ("<|im_user|>", True),
    4: ("<|im_assistant|>", True), 10: ("<|im_system|>", True),
    11: ("<|tool_calls_section_begin|>", False), 12: ("<|tool_calls_section_end|>", False),
    17: ("<|im_middle|>", True), 254: ("[UNK]", True), 255: ("[PAD]", True),
}  # fmt: skip


def train():
    """Ranks of a trained vocabulary and of random joins of its tokens."""
    # The training needs a pattern that Python's regex package reads the same way.
    words = r"[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s+"
    ranks = bpe_train("\n".join(TEXTS), TRAINED, words, visualise=None)
    rng = random.Random(7)
    tokens = list(ranks)
    while len(ranks) < TRAINED + JOINED:
        joined = b"".join(rng.choice(tokens[-300:]) for _ in range(rng.randint(2, 3)))
        if rng.random() < 0.5:  # of few letters: much can be cut in several ways
            joined = bytes(rng.choice(b"ab =\n") for _ in range(rng.randint(2, 6)))
        if joined not in ranks and len(joined) <= 16:
            ranks[joined] = len(ranks)
    return ranks


def texts(rng):
    """What is encoded: the texts of the other goldens, and random ones of few and many letters."""
    yield from TEXTS
    yield from ("Hi<|im_end|>", "<|im_user|>user<|im_middle|>Hi<|im_end|>[PAD]",
                "<|reserved_token_705|>x", "混合Englishテキスト123456 we'LL",
                "ǅ ʰa ʰA AʰB", "a" * 25_010 + " " * 25_003 + "b")  # fmt: skip
    for letters in ("ab", "ab =\n", "aAbB'sS1 ", "中文あア한Яä\u0301\u0338 x9\n"):
        for size in (3, 8, 21, 55, 144):
            for _ in range(4):
                yield "".join(rng.choice(letters) for _ in range(size))


def pieces(text):
    """Where the class cuts a text before it splits it into words."""
    for start in range(0, len(text), 400_000):
        part = text[start : start + 400_000]
        length, blank, begin = 0, part[0].isspace(), 0
        for i, letter in enumerate(part):
            if letter.isspace() != blank:
                length, blank = 1, letter.isspace()
                continue
            length += 1
            if length > 25_000:
                yield part[begin:i]
                begin, length = i, 1
        yield part[begin:]


def main():
    ranks = train()
    base = len(ranks)
    special = {f"<|reserved_token_{base + i}|>": base + i for i in range(SLOTS) if i not in NAMED}
    special |= {name: base + i for i, (name, _) in NAMED.items()}
    encoding = tiktoken.Encoding(
        "golden", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens=special
    )
    OUT.mkdir(exist_ok=True)
    lines = [f"{base64.b64encode(t).decode()} {r}\n" for t, r in ranks.items()]
    (OUT / "tiktoken.model").write_text("".join(lines))
    decoder = {
        str(base + i): {"content": name, "lstrip": False, "normalized": False, "rstrip": False,
                        "single_word": False, "special": special}
        for i, (name, special) in NAMED.items()
    }  # fmt: skip
    config = {
        "added_tokens_decoder": decoder, "bos_token": "[BOS]", "eos_token": "[EOS]",
        "pad_token": "[PAD]", "unk_token": "[UNK]", "tokenizer_class": "TikTokenTokenizer",
        "auto_map": {"AutoTokenizer": ["tokenization_kimi.TikTokenTokenizer", None]},
    }  # fmt: skip
    (OUT / "tokenizer_config.json").write_text(json.dumps(config, indent=1) + "\n")
    with open(OUT / "encode.jsonl", "w", encoding="utf-8") as out:
        for text in texts(random.Random(8)):
            parts = [encoding.encode(piece, allowed_special="all") for piece in pieces(text)]
            ids = [i for part in parts for i in part]
            row = {"text": text, "ids": ids}
            if len(text) > 10_000:  # runs: the text as [letters, count] and ids as [id, count]
                row = {"runs": runs(text), "id_runs": runs(ids)}
            out.write(json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n")


def runs(items):
    """Equal neighbours as [item, count]."""
    out = []
    for item in items:
        if out and out[-1][0] == item:
            out[-1][1] += 1
        else:
            out.append([item, 1])
    return out


if __name__ == "__main__":
    main()

"""Writes words/: small tokenizers that split words as each family's do, and their ids of texts.

Run by hand: python tests/golden/export_words.py (needs tokenizers and regex). The merges are
trained without any splitting, so that they cross words wherever a split is missing. Every split is
checked against the package regex, which shares nothing with the library.
"""

import json
import pathlib
import random

import regex
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from export_texts import TEXTS

HERE = pathlib.Path(__file__).resolve().parent
OUT = HERE / "words"
QWEN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?%s+|\p{N}| ?[^\s%s\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
SPLITS = {
    "qwen3_5": [QWEN % (r"[\p{L}\p{M}]", r"\p{L}\p{M}")],
    "qwen3_next": [QWEN % (r"\p{L}", r"\p{L}")],
    "ling": [
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*"
        r"|\s*[\r\n]|\s+(?!\S)|\s+"
    ],
    "deepseek_v3": [
        r"\p{N}{1,3}",
        r"[一-龥぀-ゟ゠-ヿ]+",
        r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
        r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    ],
}
MORE = ["x_1234567890.5", "'S 'll don'T", "\r\n\r\n  \n x", "!abc #def", "हिन्दी नमस्ते"]


def split(parts, pattern):
    """Every part cut at the matches of the pattern; what lies between is a part as well."""
    out = []
    for part in parts:
        at = 0
        for match in regex.finditer(pattern, part):
            out += [part[at : match.start()], match.group()]
            at = match.end()
        out.append(part[at:])
    return [part for part in out if part]


def tokenizer_for(patterns, normalise):
    """One that splits by all patterns in turn, its merges trained on whole texts."""
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = byte_level
    trainer = trainers.BpeTrainer(
        vocab_size=520, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator([t[:400] for t in TEXTS], trainer)
    splits = [pre_tokenizers.Split(Regex(p), "isolated") for p in patterns]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*splits, byte_level])
    tokenizer.decoder = decoders.ByteLevel()
    if normalise:
        tokenizer.normalizer = normalizers.NFC()
    return tokenizer


def main():
    OUT.mkdir(exist_ok=True)
    rng = random.Random(9)
    letters = "aB é1234's\n\t .,!中カ한ñ\u0301\u0323_#ǅʰ٣½"
    texts = [*TEXTS, *MORE]
    for size in 8 * (5, 9, 17, 40):
        texts.append("".join(rng.choice(letters) for _ in range(size)))
    lines = []
    for name, patterns in SPLITS.items():
        tokenizer = tokenizer_for(patterns, name.startswith("qwen"))
        (OUT / f"{name}.json").write_text(tokenizer.to_str() + "\n", encoding="utf-8")
        for text in texts:
            plain = tokenizer.normalizer.normalize_str(text) if tokenizer.normalizer else text
            words = [plain]
            for pattern in patterns:
                words = split(words, pattern)
            ends = [len(w.encode()) for w in words]
            found = tokenizer.pre_tokenizer.pre_tokenize_str(plain)
            assert [len(w) for w, _ in found] == ends, (name, text)
            lines.append({"family": name, "text": text, "ids": tokenizer.encode(text).ids})
    rows = (json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n" for line in lines)
    (OUT / "encode.jsonl").write_text("".join(rows), encoding="utf-8")


if __name__ == "__main__":
    main()

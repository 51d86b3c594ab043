#!/usr/bin/env python3
"""Compares the engine with the stored goldens, and with itself.

    python3 tests/golden/compare.py BRAID [--only NAME] [--tolerance 1e-4] [--few-cuts]
        [--device vulkan] [--experts cpu]

Python's standard library only.  For every set (README.md says what they are):

* score: log-probabilities at every position against transformers, fp32 arithmetic, prompts cut
  into chunks of 64, of 128 and whole;
* same bits: `braid score` prints the same bytes whatever the chunks, batch and threads, in fp32
  and in bf16;
* bf16: its mean distance from transformers' fp32 is at most BF16_FACTOR times that of
  transformers' own bf16;
* greedy: `braid run` chooses transformers' tokens up to the first near-tie, and the
  log-probabilities that it reports are bit for bit those of `braid score`, in fp32 and in bf16.

A Vulkan device computes in fp32 only, so nothing of bf16 is checked there.

One line a check, a closing line with the counts; exit code 1 if a check failed.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
from dataclasses import dataclass

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
TIMEOUT_S = 900
NEAR_TIE = 1e-3
BF16_FACTOR = 2.0
TINY_GREEDY_TOKENS = 128
RANDOM_GREEDY_TOKENS = 24


@dataclass(frozen=True)
class Cut:
    """How the same work is divided; nothing of it may change a bit of the output."""

    chunk: int  # prompt tokens a step, 0 = whole
    batch: int
    threads: int

    def flags(self):
        """Command line of `braid score`."""
        chunk = ["--chunk-tokens", str(self.chunk)] if self.chunk else []
        return [*chunk, "--batch", str(self.batch), "--threads", str(self.threads)]

    def __str__(self):
        return f"chunk {self.chunk or 'whole'}, batch {self.batch}, threads {self.threads}"


CUTS = [
    Cut(chunk=0, batch=1, threads=1),
    Cut(chunk=64, batch=1, threads=1),
    Cut(chunk=128, batch=1, threads=1),
    Cut(chunk=0, batch=16, threads=1),
    Cut(chunk=0, batch=1, threads=2),
    Cut(chunk=64, batch=16, threads=2),
    Cut(chunk=128, batch=16, threads=2),
]


# Enough of them where one takes twenty times as long, as under a sanitizer.
FEW_CUTS = [CUTS[0], CUTS[1], CUTS[-1]]


class CheckFailed(Exception):
    """A check's claim does not hold; the text says where."""


class Engine:
    """Runs the binary on one model folder."""

    def __init__(self, binary, model, device, experts):
        self.binary, self.model, self.device, self.experts = binary, model, device, experts

    def command(self, *words):
        """Standard output of one call."""
        words = [str(self.binary), *map(str, words)]
        try:
            done = subprocess.run(words, capture_output=True, timeout=TIMEOUT_S, check=False)
        except subprocess.TimeoutExpired:
            raise CheckFailed(f"no end after {TIMEOUT_S} s: {shortened(words)}") from None
        if done.returncode != 0:
            tail = done.stderr.decode(errors="replace").strip()[-600:]
            raise CheckFailed(f"exit code {done.returncode}: {shortened(words)}\n    {tail}")
        return done.stdout.decode()

    def score(self, sequences, compute, cut):
        """Output lines of `braid score`, one a sequence of ids."""
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as f:
            f.writelines(json.dumps({"token_ids": ids}) + "\n" for ids in sequences)
            f.flush()
            flags = ["--device", self.device, "--experts", self.experts, "--top", 5,
                     "--compute", compute, *cut.flags()]  # fmt: skip
            lines = self.command("score", self.model, f.name, *flags).splitlines()
        if len(lines) != len(sequences):
            raise CheckFailed(f"score: {len(sequences)} lines in, {len(lines)} out")
        return lines

    def greedy(self, ids, max_tokens, compute):
        """Output of `braid run --json` for a prompt of ids."""
        text = self.command(
            "run", self.model, "--token-ids", json.dumps(ids), "--json", "--temperature", 0,
            "--max-tokens", max_tokens, "--logprobs", 5, "--compute", compute,
            "--device", self.device, "--experts", self.experts,
        )  # fmt: skip
        return json.loads(text)


def shortened(words):
    """A command as a person would write it, long arguments cut."""
    return " ".join(w if len(w) < 80 else w[:76] + " ..." for w in words)


def read_lines(path):
    """Objects of a file of JSON lines."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def top_difference(got, want, tolerance, where):
    """Largest difference of ids listed on both sides.

    An id that one side lists and the other does not must be no better than the last entry of the
    other side, give or take the tolerance.
    """
    got = {e["id"]: e["logprob"] for e in got}
    want = dict(map(tuple, want))
    if len(got) != len(want):
        raise CheckFailed(f"{where}: {len(got)} top entries, expected {len(want)}")
    for one, other in ((got, want), (want, got)):
        for token in one.keys() - other.keys():
            if one[token] > min(other.values()) + tolerance:
                raise CheckFailed(f"{where}: id {token} is in one list of top entries only")
    return max((abs(got[t] - want[t]) for t in got.keys() & want.keys()), default=0.0)


def score_difference(line, want, tolerance):
    """Largest difference of one scored sequence from its golden, and where it is."""
    got = json.loads(line)
    ids = want["token_ids"]
    if got["token_ids"] != ids:
        raise CheckFailed("token_ids of the output differ from those of the input")
    if len(got["logprobs"]) != len(ids) or len(got["top"]) != len(ids):
        raise CheckFailed(f"{len(got['logprobs'])} logprobs, {len(got['top'])} top, {len(ids)} ids")
    if got["logprobs"][0] is not None:
        raise CheckFailed("the first log-probability is not null")
    worst, at = 0.0, 0
    for i in range(len(ids)):
        here = top_difference(got["top"][i], want["top"][i], tolerance, f"position {i}")
        if i > 0:
            here = max(here, abs(got["logprobs"][i] - want["logprobs"][i]))
        if not here <= worst:  # also true of a NaN
            worst, at = here, i
    return worst, at


def mean_difference(lines, goldens):
    """Mean difference of the given tokens' log-probabilities over all sequences."""
    values = [
        abs(a - b)
        for line, want in zip(lines, goldens)
        for a, b in zip(json.loads(line)["logprobs"][1:], want["logprobs"][1:])
    ]
    return sum(values) / len(values)


class Report:
    """Prints a line for every check and counts them."""

    def __init__(self):
        self.passed = self.failed = 0

    def check(self, name, body):
        """Run one check; its return value is what the line says."""
        try:
            said, good = body(), True
        except CheckFailed as failure:
            said, good = str(failure), False
        except (KeyError, IndexError, TypeError, ValueError) as error:
            said, good = f"output of another form: {type(error).__name__} {error}", False
        self.passed += good
        self.failed += not good
        print(f"{'ok  ' if good else 'FAIL'}  {name:<44}  {said}", flush=True)


class GoldenSet:
    """All checks of one checkpoint."""

    def __init__(self, name, engine, tolerance, cuts, report):
        self.name, self.tolerance, self.cuts, self.report = name, tolerance, cuts, report
        self.engine = engine
        self.arithmetics = ("fp32", "bf16") if engine.device == "cpu" else ("fp32",)
        self.tiny = name == "braid_tiny"
        self.scores = read_lines(HERE / name / "score.jsonl")
        self.greedy = read_lines(HERE / name / "greedy.jsonl")
        self.measured = json.loads((HERE / "measured.json").read_text())[name]
        self.sequences = [s["token_ids"] for s in self.scores]
        self.outputs = {}  # lines of `braid score` by arithmetic and cut
        self.answers = {}  # of `braid run` by arithmetic and prompt
        self.stop = []
        if self.tiny:
            config = json.loads((engine.model / "generation_config.json").read_text())
            self.stop = config["eos_token_id"]

    def run(self):
        """Every check of this set."""
        self.report.check(f"{self.name} score fp32", lambda: self.score_all("fp32"))
        if "fp32" not in self.outputs:
            return  # the binary cannot score this model: one failure says it all
        for i, golden in enumerate(self.scores):
            label = golden.get("id", f"{len(golden['token_ids'])} tokens")
            self.report.check(f"{self.name} score {label}", lambda i=i: self.score_one(i))
        self.report.check(f"{self.name} same bits fp32", lambda: self.same_bits("fp32"))
        if "bf16" in self.arithmetics:
            self.report.check(f"{self.name} score bf16", lambda: self.score_all("bf16"))
        if "bf16" in self.outputs:
            self.report.check(f"{self.name} same bits bf16", lambda: self.same_bits("bf16"))
            self.report.check(f"{self.name} bf16 distance", self.bf16_distance)
        for golden in self.greedy:
            label = golden.get("id", f"{len(golden['prompt_ids'])} tokens")
            self.report.check(f"{self.name} greedy {label}", lambda g=golden: self.greedy_one(g))
        for compute in self.arithmetics:
            self.report.check(
                f"{self.name} run = score {compute}",
                lambda compute=compute: self.run_equals_score(compute),
            )

    def score_all(self, compute):
        """Score every sequence with every cut, for the checks that follow."""
        self.outputs[compute] = {
            cut: self.engine.score(self.sequences, compute, cut) for cut in self.cuts
        }
        return f"{len(self.sequences)} sequences, {len(self.cuts)} ways"

    def score_one(self, index):
        """One golden against three ways to cut the prompt."""
        results = []
        for cut in self.cuts[:3]:
            want = self.scores[index]
            worst, at = score_difference(self.outputs["fp32"][cut][index], want, self.tolerance)
            if not worst <= self.tolerance:
                raise CheckFailed(f"max |difference| {worst:.1e} at position {at} ({cut})")
            results.append(worst)
        return f"max |difference| {max(results):.1e}"

    def same_bits(self, compute):
        """The same bytes for every cut."""
        base = self.outputs[compute][self.cuts[0]]
        for cut in self.cuts[1:]:
            for i, (one, other) in enumerate(zip(base, self.outputs[compute][cut])):
                if one != other:
                    where = first_difference(json.loads(one), json.loads(other))
                    raise CheckFailed(f"({self.cuts[0]}) and ({cut}) differ: sequence {i}, {where}")
        return f"{len(base)} sequences, {len(self.cuts)} ways"

    def bf16_distance(self):
        """The bf16 path against transformers' bf16, both seen from transformers' fp32."""
        limit = BF16_FACTOR * self.measured["bf16_mean"]
        mean = mean_difference(self.outputs["bf16"][self.cuts[0]], self.scores)
        said = f"mean |difference| {mean:.1e}, limit {limit:.1e}"
        if not mean <= limit:
            raise CheckFailed(said)
        return said

    def answer(self, golden, compute):
        """Greedy output of the engine, checked for its form."""
        asked = (compute, tuple(golden["prompt_ids"]))
        if asked not in self.answers:
            self.answers[asked] = self.run_greedy(golden, compute)
        return self.answers[asked]

    def run_greedy(self, golden, compute):
        most = TINY_GREEDY_TOKENS if self.tiny else RANDOM_GREEDY_TOKENS
        out = self.engine.greedy(golden["prompt_ids"], most, compute)
        if len(out["logprobs"]) != len(out["token_ids"]):
            raise CheckFailed(f"{len(out['token_ids'])} ids, {len(out['logprobs'])} logprobs")
        for token, entry in zip(out["token_ids"], out["logprobs"]):
            if entry["id"] != token:
                raise CheckFailed(f"logprobs name id {entry['id']}, token_ids {token}")
        return out

    def greedy_one(self, golden):
        """One greedy continuation: equal ids up to the first near-tie, near values."""
        out = self.answer(golden, "fp32")
        got, want = out["token_ids"], golden["output_ids"]
        if want[-1] in self.stop:
            if out["finish_reason"] != "stop":
                raise CheckFailed(f"finish_reason {out['finish_reason']}, expected stop")
            want = want if len(got) == len(want) else want[:-1]  # the stop token may be kept back
        elif out["finish_reason"] != "length":
            raise CheckFailed(f"finish_reason {out['finish_reason']}, expected length")
        worst = 0.0
        for i, token in enumerate(want):
            if i >= len(got) or got[i] != token:
                if golden["gaps"][i] < NEAR_TIE:
                    return f"equal to the near-tie at {i}, max |difference| {worst:.1e}"
                raise CheckFailed(f"step {i}: {got[i : i + 1]}, expected {token}")
            worst = max(worst, abs(out["logprobs"][i]["logprob"] - golden["top"][i][0][1]))
            if not worst <= self.tolerance:
                raise CheckFailed(f"step {i}: |difference| {worst:.1e}")
        if len(got) != len(want):
            raise CheckFailed(f"{len(got)} tokens, expected {len(want)}")
        return f"{len(want)} tokens, max |difference| {worst:.1e}"

    def run_equals_score(self, compute):
        """What was reported while generating is what scoring the whole text gives."""
        answers = [self.answer(g, compute) for g in self.greedy]
        prompts = [g["prompt_ids"] for g in self.greedy]
        whole = [p + a["token_ids"] for p, a in zip(prompts, answers)]
        lines = self.engine.score(whole, compute, self.cuts[-1])
        tokens = 0
        for prompt, answer, line in zip(prompts, answers, lines):
            score = json.loads(line)
            for i, entry in enumerate(answer["logprobs"]):
                at = len(prompt) + i
                given = (entry["logprob"], score["logprobs"][at])
                if given[0] != given[1]:
                    where = f"prompt of {len(prompt)}, step {i}"
                    raise CheckFailed(f"{where}: run {given[0]!r}, score {given[1]!r}")
                pairs = [[(e["id"], e["logprob"]) for e in top]
                         for top in (entry["top"], score["top"][at - 1])]  # fmt: skip
                if pairs[0] != pairs[1]:
                    raise CheckFailed(f"prompt of {len(prompt)}, step {i}: top entries differ")
                tokens += 1
        return f"{tokens} tokens"


def first_difference(one, other):
    """Where two outputs of `braid score` differ first."""
    for key in ("logprobs", "top"):
        for i, (a, b) in enumerate(zip(one[key], other[key])):
            if a != b:
                return f"{key} at position {i}: {json.dumps(a)[:100]} and {json.dumps(b)[:100]}"
    return "outside logprobs and top"


def main():
    """Run the checks of all sets, or of the one named."""
    sets = sorted(path.parent.name for path in HERE.glob("*/score.jsonl"))
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("braid", type=pathlib.Path, help="the binary")
    p.add_argument("--only", choices=sets, help="one set")
    p.add_argument("--tolerance", type=float, default=1e-4, help="fp32 log-probabilities")
    p.add_argument("--few-cuts", action="store_true", help=f"{len(FEW_CUTS)} of {len(CUTS)} cuts")
    p.add_argument("--device", default="cpu", help="as the engine's flag of this name")
    p.add_argument("--experts", default="auto", help="likewise")
    args = p.parse_args()
    if not args.braid.is_file():
        p.error(f"{args.braid}: no such binary")
    report = Report()
    for name in [args.only] if args.only else sets:
        cuts = FEW_CUTS if args.few_cuts else CUTS
        model = ROOT / "models" / "braid-tiny" if name == "braid_tiny" else HERE / name
        engine = Engine(args.braid.resolve(), model, args.device, args.experts)
        GoldenSet(name, engine, args.tolerance, cuts, report).run()
    print(f"{report.passed} passed, {report.failed} failed")
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main())

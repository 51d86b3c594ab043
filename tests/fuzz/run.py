#!/usr/bin/env python3
"""Runs the fuzz targets, each for some seconds, on the corpus in git and what earlier runs found.

    python3 tests/fuzz/run.py [--seconds 60] [--build build/fuzz] [TARGET...]

New inputs go to build/fuzz-corpus; an input that crashes, leaks or takes more than a minute goes
to build/fuzz-findings, is printed, and makes the exit code 1.
"""

import argparse
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
SEEDS = {
    "config": [ROOT / "build/fuzz-seeds/config"],
    "chat_template": [ROOT / "tests/golden/templates"],
}  # beside the corpus
TARGETS = sorted(path.name.removesuffix("_fuzz.cc") for path in HERE.glob("*_fuzz.cc"))


def make_seeds():
    """The configs of the golden sets: small models of every family, so an input takes little."""
    folder = ROOT / "build/fuzz-seeds/config"
    folder.mkdir(parents=True, exist_ok=True)
    for config in (ROOT / "tests/golden").glob("*/config.json"):
        (folder / config.parent.name).write_bytes(config.read_bytes())


def run(name, seeds, build, seconds):
    """(inputs tried, edges of the code that they covered, exit code) of one target."""
    kept = ROOT / "build/fuzz-corpus" / name
    findings = ROOT / "build/fuzz-findings"
    for folder in (kept, findings):
        folder.mkdir(parents=True, exist_ok=True)
    command = [build / f"tests/fuzz/fuzz_{name}", kept, HERE / "corpus" / name, *seeds,
               f"-max_total_time={seconds}", "-timeout=60", "-rss_limit_mb=2048", "-max_len=65536",
               "-print_final_stats=1", f"-artifact_prefix={findings}/{name}-"]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          errors="replace", check=False)
    tried = re.search(r"number_of_executed_units:\s*(\d+)", done.stderr)
    covered = re.findall(r"cov: (\d+)", done.stderr)
    if done.returncode != 0:
        print(done.stderr[-4000:])
    return int(tried.group(1)) if tried else 0, int((covered or [0])[-1]), done.returncode


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/fuzz")
    parser.add_argument("targets", nargs="*", choices=[*TARGETS, []], metavar="TARGET")
    arguments = parser.parse_args()
    failed = 0
    make_seeds()
    names = arguments.targets or TARGETS
    for name in names:
        tried, covered, code = run(name, SEEDS.get(name, []), arguments.build, arguments.seconds)
        failed += code != 0
        print(f"{name:<14} {tried:>10} inputs in {arguments.seconds} s, "
              f"{tried / max(arguments.seconds, 1):.0f} a second, {covered} edges covered"
              f"{'' if code == 0 else ', exit code ' + str(code)}", flush=True)
    print(f"{len(names) - failed} passed, {failed} failed")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())

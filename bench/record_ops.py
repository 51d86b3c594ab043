#!/usr/bin/env python3
"""Runs `braid bench ops` and keeps its figures with what they were measured on.

    python3 bench/record_ops.py build/release/braid bench/results/NAME.json [FLAGS of bench ops]

Adds to the program's JSON: the commit (and whether files differed from it), the build's flags, the
CPU's features and the load of the machine before the run.  NAME says the kind of machine; files of
one kind replace each other.  Use an otherwise idle machine: a load above 0.5 per core is refused
without --busy.
"""

import json
import os
import pathlib
import platform
import subprocess
import sys


def output_of(*command, cwd=None):
    """What a command prints, without the last newline; empty when it fails."""
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def build_flags(binary):
    """Build type, compiler and flags from CMake's cache beside the binary."""
    cache = pathlib.Path(binary).resolve().parent / "CMakeCache.txt"
    wanted = ("CMAKE_BUILD_TYPE", "CMAKE_CXX_FLAGS", "CMAKE_CXX_FLAGS_RELEASE", "BRAID_SANITIZE")
    flags = {}
    if cache.exists():
        for line in cache.read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition("=")
            if name.split(":")[0] in wanted and value:
                flags[name.split(":")[0]] = value
    return flags


def main():
    """Measure and write."""
    words = [w for w in sys.argv[1:] if w != "--busy"]
    if len(words) < 2:
        sys.exit(__doc__)
    binary, out, flags = words[0], pathlib.Path(words[1]), words[2:]
    load, cores = os.getloadavg()[0], len(os.sched_getaffinity(0))
    if load > 0.5 * cores and "--busy" not in sys.argv:
        sys.exit(f"load {load:.1f} on {cores} CPUs: others are at work; --busy measures anyway")
    done = subprocess.run([binary, "bench", "ops", "--json", *flags], stdout=subprocess.PIPE,
                          text=True, check=False)  # fmt: skip
    if done.returncode != 0:
        sys.exit(done.returncode)
    here = pathlib.Path(__file__).resolve().parent
    record = json.loads(done.stdout)
    record["commit"] = output_of("git", "rev-parse", "HEAD", cwd=here)
    record["changed_files"] = bool(output_of("git", "status", "--porcelain", "-uno", cwd=here))
    record["build"] = build_flags(binary)
    record["kernel"] = platform.release()
    record["load_before"] = round(load, 2)
    record["flags"] = flags
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(f"{out}: {len(record['results'])} cases")


if __name__ == "__main__":
    main()

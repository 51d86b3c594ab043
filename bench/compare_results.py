#!/usr/bin/env python3
"""Says what moved between two records of bench/record_ops.py (or of `braid bench ops --json`).

    python3 bench/compare_results.py OLD.json NEW.json [--threshold 0.05] [--by fraction|time]

A case moved when its figure changed by more than the threshold, slower or faster.  The figure is
its share of the limit that was measured in the same run (`fraction`), so that a machine that was
slower as a whole does not show as a slower op; cases without a limit go by time.  `--by time`
compares nanoseconds, for two runs on one quiet machine.  Exit code 1 when anything got slower, or
no case is in both.
"""

import argparse
import json
import sys


def cases_of(path):
    """Results by (family, name), and the record's head."""
    try:
        with open(path, encoding="utf-8") as f:
            record = json.load(f)
        return {(r["family"], r["name"]): r for r in record["results"]}, record
    except (OSError, ValueError, KeyError) as e:
        sys.exit(f"{path}: not a record of braid bench ops: {e!r}")


def speedup(old, new, by):
    """How many times faster `new` is: above 1 is better."""
    if by == "fraction" and old["fraction_of_limit"] > 0 and new["fraction_of_limit"] > 0:
        return new["fraction_of_limit"] / old["fraction_of_limit"]
    return old["ns_median"] / new["ns_median"]


def head_differences(old, new):
    """Lines on what the two runs do not share."""
    keys = ("device", "cpu", "threads", "isa", "compute", "kv_dtype", "state_dtype", "weights",
            "compiler", "build")  # fmt: skip
    return [f"{k}: {old.get(k)} | {new.get(k)}" for k in keys if old.get(k) != new.get(k)]


def compare(old, new, by, threshold):
    """(slower, faster, equal): lists of (speedup, key, old case, new case), worst first."""
    rows = [(speedup(old[k], new[k], by), k, old[k], new[k]) for k in old if k in new]
    rows.sort(key=lambda row: row[0])
    slower = [r for r in rows if r[0] < 1 / (1 + threshold)]
    faster = [r for r in reversed(rows) if r[0] > 1 + threshold]
    return slower, faster, len(rows) - len(slower) - len(faster)


def main():
    """Print the comparison."""
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("old")
    p.add_argument("new")
    p.add_argument("--threshold", type=float, default=0.05)
    p.add_argument("--by", choices=("fraction", "time"), default="fraction")
    args = p.parse_args()
    (old, old_head), (new, new_head) = cases_of(args.old), cases_of(args.new)
    for line in head_differences(old_head, new_head):
        print(f"differs: {line}")
    if not old.keys() & new.keys():
        sys.exit(f"{args.old} and {args.new} have no case in common")
    slower, faster, equal = compare(old, new, args.by, args.threshold)
    for title, rows in (("slower", slower), ("faster", faster)):
        for ratio, (family, name), a, b in rows:
            candidates = a["candidate"] + (
                "" if a["candidate"] == b["candidate"] else f" -> {b['candidate']}"
            )
            print(f"{title} {ratio:6.2f}x  {family}: {name}  "
                  f"{a['ns_median'] / 1e3:.1f} -> {b['ns_median'] / 1e3:.1f} us, "
                  f"{a['fraction_of_limit']:.0%} -> {b['fraction_of_limit']:.0%}"
                  f"  {candidates}")  # fmt: skip
    for title, keys in (("gone", old.keys() - new.keys()), ("new", new.keys() - old.keys())):
        for family, name in sorted(keys):
            print(f"{title}: {family}: {name}")
    print(f"{len(slower)} slower, {len(faster)} faster, {equal} within {args.threshold:.0%}")
    sys.exit(1 if slower else 0)


if __name__ == "__main__":
    main()

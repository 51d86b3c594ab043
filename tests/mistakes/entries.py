#!/usr/bin/env python3
"""Checks that every entry of entries.txt is shown by something that exists."""

import pathlib
import re
import sys
import tomllib

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
EXPECTED = [f"Q{i}" for i in range(1, 37)] + [f"L{i}" for i in range(1, 41)]


def problems():
    mistakes = tomllib.loads((HERE / "kernels.toml").read_text())["mistake"]
    planted = {m["what"] for m in mistakes}
    drafts = tomllib.loads((HERE.parent / "equality/drafts.toml").read_text())["mistake"]
    planted |= {m["what"] for m in drafts}
    planted |= set(re.findall(r'\{"([^"]+)", "', (HERE / "mistakes_test.cc").read_text()))
    entries, shown, used = [], {}, set()
    for line in (HERE / "entries.txt").read_text().splitlines():
        if line.startswith("#") or not line.strip():
            continue
        if not line.startswith(" "):
            entries.append(line.split()[0])
            shown[entries[-1]] = 0
            continue
        kind, _, what = line.strip().partition(": ")
        shown[entries[-1]] += 1
        what = what.strip()
        if kind == "planted" and what not in planted:
            yield f"{entries[-1]}: nobody plants: {what}"
        elif kind == "test":
            path, name = what.split()
            if not re.search(rf"\b{name}\b", (ROOT / path).read_text()):
                yield f"{entries[-1]}: {path} has no test {name}"
        elif kind not in ("planted", "cannot"):
            yield f"{entries[-1]}: what is {kind!r}?"
        used.add(what)
    if entries != EXPECTED:
        yield f"the entries are not {EXPECTED[0]} to {EXPECTED[-1]}, each once and in order"
    yield from (f"{entry}: nothing shows it" for entry, count in shown.items() if count == 0)
    for mistake in mistakes:
        yield from (f"{mistake['what']}: no entry {e}" for e in mistake["spec"] if e not in shown)
        if mistake["what"] not in used:
            yield f"no entry names: {mistake['what']}"


def main():
    found = list(problems())
    print("\n".join(found) or f"{len(EXPECTED)} entries, each shown")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Makes copies of sources with the mistakes of kernels.toml in them, each behind a switch.

    plant.py SRC KERNELS_TOML OUT

OUT/<file> is SRC/<file> with every marked expression as `(Planted(i) ? (wrong) : (right))`;
OUT/kernel_mistakes.inc lists the mistakes in order. A place that is not found exactly once is an
error, so the table cannot outlive the code.
"""

import pathlib
import sys
import tomllib


def span_of(text, edit, what):
    """Begin and end of the marked expression in a source."""
    before, rest = edit["at"].split("«")
    right, after = rest.split("»")
    count = text.count(before + right + after)
    if count != 1:
        sys.exit(f"{what}: {edit['file']} has this {count} times, not once: {edit['at']}")
    begin = text.index(before + right + after) + len(before)
    return begin, begin + len(right)


def render(text, begin, end, spans):
    """text[begin:end] with mistakes planted; `spans`: (begin, end) -> [(mistake, wrong)]."""
    out, at = [], begin
    inner = sorted(s for s in spans if begin <= s[0] and s[1] <= end)
    for span in inner:
        if span[0] < at:  # within one that was rendered
            continue
        outermost = max((s for s in inner if s[0] == span[0]), key=lambda s: s[1])
        rest = {s: e for s, e in spans.items() if s != outermost}
        right = "(" + render(text, *outermost, rest) + ")"
        for number, wrong in spans[outermost]:
            right = f"(Planted({number}) ? ({wrong}) : {right})"
        out += [text[at : outermost[0]], right]
        at = outermost[1]
    return "".join(out) + text[at:end]


def quoted(text):
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def write(path, text):
    """Only what changed, so that nothing is compiled for nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def main():
    source, table, out = map(pathlib.Path, sys.argv[1:])
    mistakes = tomllib.loads(table.read_text())["mistake"]
    files = {}
    for number, mistake in enumerate(mistakes):
        for edit in mistake["edits"]:
            files.setdefault(edit["file"], []).append((number, edit))
    for name, edits in files.items():
        text = (source / name).read_text()
        spans = {}
        for number, edit in edits:
            place = span_of(text, edit, mistakes[number]["what"])
            spans.setdefault(place, []).append((number, edit["wrong"]))
        planted = render(text, 0, len(text), spans)
        write(out / name, '#include <vector>\n\n#include "tests/mistakes/planted.h"\n' + planted)
    lines = [
        f"{{{quoted(m['what'])}, {quoted(' '.join(m['spec']))}, {quoted(m['set'])}, "
        f"{m.get('tokens', 70)}}},\n"
        for m in mistakes
    ]
    write(out / "kernel_mistakes.inc", "".join(lines))


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Makes copies of sources with the mistakes of a table in them, each behind a switch.

    plant.py SRC TABLE.toml OUT      writes the copies below OUT, and OUT/<TABLE>.inc
    plant.py --files TABLE.toml      lists the sources that the table names

OUT/<file> is SRC/<file> with every marked expression as `(Planted(i) ? (wrong) : (right))`;
OUT/<TABLE>.inc lists the mistakes in order, a row of the table's `columns` each. A place that is
not found exactly once is an error, so the table cannot outlive the code.
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


def cell(value):
    if isinstance(value, int):
        return str(value)
    text = " ".join(value) if isinstance(value, list) else value
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def write(path, text):
    """Only what changed, so that nothing is compiled for nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def edits_by_file(mistakes):
    files = {}
    for number, mistake in enumerate(mistakes):
        for edit in mistake["edits"]:
            files.setdefault(edit["file"], []).append((number, edit))
    return files


def main():
    table = tomllib.loads(pathlib.Path(sys.argv[2]).read_text())
    mistakes = table["mistake"]
    files = edits_by_file(mistakes)
    if sys.argv[1] == "--files":
        print(";".join(sorted(files)), end="")
        return
    source, out = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[3])
    for name, edits in files.items():
        text = (source / name).read_text()
        spans = {}
        for number, edit in edits:
            place = span_of(text, edit, mistakes[number]["what"])
            spans.setdefault(place, []).append((number, edit["wrong"]))
        planted = render(text, 0, len(text), spans)
        write(out / name, '#include <vector>\n\n#include "tests/mistakes/planted.h"\n' + planted)
    rows = []
    for mistake in mistakes:
        cells = (cell(mistake.get(key, default)) for key, default in table["columns"].items())
        rows.append("{" + ", ".join(cells) + "},\n")
    write(out / (pathlib.Path(sys.argv[2]).stem + ".inc"), "".join(rows))


if __name__ == "__main__":
    main()

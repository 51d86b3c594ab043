#!/usr/bin/env python3
"""Sees that docs/api.md names tests, and that each test it names exists.

A name is written as CODE `name`, `name`: the codes of files stand in the document's opening, as
`file_test.py` (Co) below a link to their folder; U is for unit tests, `Suite.Name` or `Suite.*`.
A cell of ours that says ✔, and the last cell of a table of rules, names one at least.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = re.compile(r"\(\.\./(tests/\w+)\)|`(\w+_test\.py)` \((\w+)\)")
CODE = r"(?:[CHL][a-z]|U)"
NAMED = re.compile(rf"(?<![\w`])({CODE})\b((?:,? `[\w.*/]+`)*)")
UNIT = re.compile(r"^TEST(?:_F|_P)?\(\s*(\w+),\s*(\w+)", re.M)
OURS = {"Braid", "Test"}  # the headings of columns that name tests


def files_of(text):
    """Code → path of the file of tests."""
    folder, files = None, {}
    for found, name, code in FOLDER.findall(text):
        if found:
            folder = found
        else:
            files[code] = f"{folder}/{name}"
    return files


def unit_tests(root):
    """Suite → the names of its tests."""
    suites = {}
    for path in root.glob("src/**/*_test.cc"):
        for suite, name in UNIT.findall(path.read_text()):
            suites.setdefault(suite, set()).add(name)
    return suites


def wrong_names(code, names, files, root):
    """Those that do not exist."""
    if code == "U":
        suites = unit_tests(root)
        for name in names:
            suite, _, test = name.partition(".")
            if suite not in suites or (test != "*" and test not in suites[suite]):
                yield name
    else:
        text = (root / files[code]).read_text()
        yield from (name for name in names if f"\ndef test_{name}(" not in text)


def cells(text):
    """(number of the line, the cell) of each column that names tests."""
    column = None
    for number, line in enumerate(text.splitlines(), 1):
        row = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if not row:
            column = None
        elif column is None:
            column = next((i for i, cell in enumerate(row) if cell in OURS), -1)
        elif column >= 0 and not re.fullmatch(r"-+", row[column]):
            yield number, row[column]


def check(text, root):
    """All findings, as lines."""
    findings, files = [], files_of(text)
    body = text[text.index("\n## "):]
    line_of = text[:text.index("\n## ")].count("\n") + 1
    for number, line in enumerate(body.splitlines(), line_of):
        for code, names in NAMED.findall(line):
            names = re.findall(r"`([^`]+)`", names)
            if code != "U" and not (code in files and (root / files[code]).exists()):
                findings.append(f"docs/api.md:{number}: {code} is no file of tests")
            elif not names:
                findings.append(f"docs/api.md:{number}: {code} names no test")
            else:
                findings += [f"docs/api.md:{number}: {code} has no test {name}"
                             for name in wrong_names(code, names, files, root)]
    for number, cell in cells(text):
        if not cell.startswith(("✘", "–")) and not NAMED.search(cell):
            findings.append(f"docs/api.md:{number}: a cell without a test: {cell[:60]}")
    return findings


def main():
    text = (ROOT / "docs/api.md").read_text()
    findings = check(text, ROOT)
    print("\n".join(findings))
    named = sum(len(re.findall("`", names)) // 2 for _, names in NAMED.findall(text))
    print(f"{named} names of tests; {0 if findings else 1} passed, {len(findings)} failed")
    return int(bool(findings))


if __name__ == "__main__":
    sys.exit(main())

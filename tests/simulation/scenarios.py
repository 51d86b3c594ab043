#!/usr/bin/env python3
"""Lists the scenarios of scenarios.txt that no test carries in its name, and exits 1 if there is
one. A test carries C2.28 when its name has C2_28: TEST(Prefix, C2_28_C3_33_TheThirdHits)."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCENARIOS = pathlib.Path(__file__).with_name("scenarios.txt")
NAME = re.compile(r"^TEST(?:_F|_P)?\(\s*\w+,\s*(\w+)\)|^def (test_\w+)", re.M)
NUMBER = re.compile(r"(?<![A-Za-z0-9])C(\d+)_(\d+)(?=_)")


def scenarios(text):
    found = {}
    for line in text.splitlines():
        match = re.match(r"C(\d+)\.(\d+) \S", line)
        if match:
            key = int(match[1]), int(match[2])
            if key in found:
                raise ValueError(f"C{match[1]}.{match[2]} stands twice")
            found[key] = line
        elif line and not line.startswith("#"):
            raise ValueError(f"not a scenario: {line}")
    return found


def carried(texts):
    """The numbers in the names of all tests."""
    numbers = set()
    for text in texts:
        for names in NAME.findall(text):
            numbers |= {(int(a), int(b)) for a, b in NUMBER.findall("".join(names))}
    return numbers


def main():
    wanted = scenarios(SCENARIOS.read_text())
    files = [*ROOT.glob("src/**/*_test.cc"), *ROOT.glob("tests/**/*_test.cc"),
             *ROOT.glob("tests/**/*_test.py")]
    numbers = carried(path.read_text() for path in files)
    missing = [line for key, line in wanted.items() if key not in numbers]
    strays = sorted(numbers - set(wanted))
    for line in missing:
        print(f"no test carries {line}")
    for a, b in strays:
        print(f"a test carries C{a}.{b}, which is not in {SCENARIOS.name}")
    failed = len(missing) + len(strays)
    print(f"{len(wanted)} scenarios; {len(wanted) - len(missing)} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Lists the scenarios of the files below that no test carries in its name, and exits 1 if there is
one. A test carries C2.28 when its name has C2_28: TEST(Prefix, C2_28_C3_33_TheThirdHits), and F8
when it has F8 or f8: test_f8_stopped_under_load."""
import pathlib
import re
import sys

TESTS = pathlib.Path(__file__).resolve().parent
LISTS = [TESTS / "simulation/scenarios.txt", TESTS / "acceptance.txt"]
NAME = re.compile(r"^TEST(?:_F|_P)?\(\s*\w+,\s*(\w+)\)|^def (test_\w+)", re.M)
NUMBER = re.compile(r"(?<![A-Za-z0-9])(?:(C\d+)_(\d+)|[Ff](\d+))(?=_)")


def scenarios(text):
    found = {}
    for line in text.splitlines():
        match = re.match(r"(C\d+\.\d+|F\d+) \S", line)
        if match:
            if match[1] in found:
                raise ValueError(f"{match[1]} stands twice")
            found[match[1]] = line
        elif line and not line.startswith("#"):
            raise ValueError(f"not a scenario: {line}")
    return found


def carried(texts):
    """The numbers in the names of all tests."""
    numbers = set()
    for text in texts:
        for names in NAME.findall(text):
            for group, scenario, acceptance in NUMBER.findall("".join(names)):
                numbers.add(f"F{acceptance}" if acceptance else f"{group}.{scenario}")
    return numbers


def main():
    wanted = scenarios("\n".join(path.read_text() for path in LISTS))
    files = [*TESTS.parent.glob("src/**/*_test.cc"), *TESTS.glob("**/*_test.cc"),
             *TESTS.glob("**/*_test.py")]
    numbers = carried(path.read_text() for path in files)
    missing = [line for key, line in wanted.items() if key not in numbers]
    strays = sorted(numbers - set(wanted))
    for line in missing:
        print(f"no test carries {line}")
    for stray in strays:
        print(f"a test carries {stray}, which is in none of the lists")
    failed = len(missing) + len(strays)
    print(f"{len(wanted)} scenarios; {len(wanted) - len(missing)} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Runs those tests of a GoogleTest program that a filter names; each pattern must name one.

    tests/run_filtered.py [--or-skip] PROGRAM PATTERN[:PATTERN...]

GoogleTest passes over a pattern that names no test, so a mistyped one would test nothing. With
--or-skip the exit code is 77 if no pattern names a test: the tests need a device or instructions
that this machine lacks.
"""
import fnmatch
import os
import subprocess
import sys

SKIPPED = 77


def names_of(listing):
    """The tests' full names from what --gtest_list_tests prints."""
    suite, names = "", []
    for line in filter(str.strip, listing.splitlines()):
        if line.startswith(" "):
            names.append(suite + line.split()[0])
        else:
            suite = line.split()[0]
    return names


def main():
    *options, program, patterns = sys.argv[1:]
    listed = subprocess.run([program, "--gtest_list_tests"], stdout=subprocess.PIPE, text=True,
                            check=False)
    if listed.returncode:
        return listed.returncode
    names, wanted = names_of(listed.stdout), patterns.split(":")
    empty = [pattern for pattern in wanted if not fnmatch.filter(names, pattern)]
    if empty == wanted and options == ["--or-skip"]:
        print("this machine has none of these tests")
        return SKIPPED
    if empty:
        print(f"ERROR: patterns that name no test of {program}: {' '.join(empty)}")
        return 1
    sys.stdout.flush()
    os.execv(program, [program, "--gtest_brief=1", f"--gtest_filter={patterns}"])


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Runs a compiler's command line, with the planted copy of a source in the place of the source.

    launcher.py PLANTED COMMAND...

PLANTED/<path> is the copy of <path>; PLANTED/users.txt lists the sources that include a header
which has a copy. All others are compiled as they are, so that ccache knows them.
"""
import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def planted_command(planted, command):
    if "-c" not in command:
        return command
    at = command.index("-c") + 1
    source = pathlib.Path(command[at]).resolve()
    if not source.is_relative_to(ROOT):
        return command
    name = source.relative_to(ROOT).as_posix()
    copy = planted / name
    users = planted / "users.txt"
    is_user = users.exists() and name in users.read_text().split()
    if not copy.exists() and not is_user:
        return command
    command = list(command)
    if copy.exists():
        command[at] = str(copy)
    # -w: the right code behind a switch is not always what warnings expect.
    extra = ["-w", f"-I{ROOT / 'tests/mutation'}", f"-I{planted / 'src'}"]
    # Compiled in less time; kernels would be too slow to test.
    if not name.startswith("src/ops/"):
        command = ["-O1" if word in ("-O2", "-O3") else word for word in command]
    first = next(i for i, word in enumerate(command) if word.startswith("-I"))
    return command[:first] + extra + command[first:]


def main():
    command = planted_command(pathlib.Path(sys.argv[1]), sys.argv[2:])
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()

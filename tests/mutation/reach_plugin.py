"""For pytest (-p reach_plugin): tells which mutants each test reaches, in any process it starts.

A line per test in $BRAID_MUTANTS_TESTS, as listener.cc writes them: nodeid, milliseconds, whether
it passed, mutants. What a fixture reaches before a test counts for every test of its file.
"""
import os
import pathlib

import pytest

REACHED = pathlib.Path(os.environ["BRAID_MUTANTS_REACHED"])
TESTS = pathlib.Path(os.environ["BRAID_MUTANTS_TESTS"])


def take():
    """The mutants that were reached since the last call."""
    if not REACHED.exists():
        return set()
    with open(REACHED, "r+b") as file:
        content = file.read()
        file.seek(0)
        file.write(bytes(len(content)))
    return {number for number, byte in enumerate(content) if byte}


class Reach:
    def __init__(self):
        self.of_files, self.rows = {}, []

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item):
        yield
        self.of_files.setdefault(item.nodeid.split("::")[0], set()).update(take())

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self, item, call):
        outcome = yield
        if call.when == "call":
            self.rows.append([item.nodeid, call.duration, not outcome.get_result().failed, take()])

    def pytest_sessionfinish(self):
        with open(TESTS, "a") as out:
            for name, seconds, passed, reached in self.rows:
                numbers = sorted(reached | self.of_files[name.split("::")[0]])
                words = [name.replace(" ", "\0"), int(seconds * 1000), int(passed), *numbers]
                out.write(" ".join(map(str, words)) + "\n")


def pytest_configure(config):
    config.pluginmanager.register(Reach())

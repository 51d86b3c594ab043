#!/usr/bin/env python3
"""Tests of run_all.py (what it counts, and that nothing of a part outlives it), run_filtered.py and
pytest.ini."""
import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import run_all  # noqa: E402
import run_filtered  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
PYTEST = HERE.parent / ".venv/bin/python"
# A part whose child outlives it unless the whole group is killed; the file has the child's id.
HANGS = ["sh", "-c", "sleep 1000 & echo $! > child; wait"]
# run_all with one part: a folder in place of the repository, and nothing to build.
MAIN = """
import pathlib, signal, sys
import run_all
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
run_all.ROOT = pathlib.Path.cwd()
run_all.build = lambda preset: run_all.Outcome(passed=1)
run_all.parts_of = lambda *_: [run_all.Part("hangs", %r, alone=%r)]
sys.argv[1:] = []
sys.exit(run_all.main())
"""
LISTING = """Running main() from gtest_main.cc
Vulkan/EqualityTest.
  Cold/row_a  # GetParam() = 3
  Warm/row_b
Plain.
  Holds
"""


def wait_for(condition):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def child_of(folder):
    """The id of the child that HANGS started, when it is known."""
    file = pathlib.Path(folder) / "child"
    wait_for(lambda: file.exists() and file.read_text().endswith("\n"))
    return int(file.read_text())


def end(process):
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)


def lives(process):
    try:
        stat = pathlib.Path(f"/proc/{process}/stat").read_text()
    except FileNotFoundError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


class RunAllTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def test_a_part_past_its_time_ends_with_all_that_it_started(self):
        self.addCleanup(setattr, run_all, "ROOT", run_all.ROOT)
        run_all.ROOT = self.folder
        part = run_all.Part("hangs", HANGS, timeout_s=1)
        code = run_all.run_command(part, self.folder / "log", dict(os.environ), run_all.Outcome())
        child = child_of(self.folder)
        self.addCleanup(end, child)
        self.assertIsNone(code)
        wait_for(lambda: not lives(child))

    def test_a_signal_ends_the_run_with_all_that_its_parts_started(self):
        for number, alone in ((signal.SIGTERM, False), (signal.SIGINT, False),
                              (signal.SIGTERM, True)):
            with self.subTest(number=number, alone=alone):
                (self.folder / "child").unlink(missing_ok=True)
                run = subprocess.Popen([sys.executable, "-c", MAIN % (HANGS, alone)],
                                       cwd=self.folder, stdout=subprocess.DEVNULL,
                                       env={**os.environ, "PYTHONPATH": str(HERE)})
                self.addCleanup(run.kill)
                child = child_of(self.folder)
                self.addCleanup(end, child)
                self.assertTrue(lives(child))
                run.send_signal(number)
                self.assertEqual(run.wait(60), 128 + number)
                wait_for(lambda: not lives(child))

    def test_a_program_that_ctest_skips_is_counted_as_skipped(self):
        outcome = run_all.Outcome()
        run_all.count("1: [  PASSED  ] 5 tests.\n1: [  SKIPPED ] 2 tests, listed below:\n"
                      "2/2 Test #2: ops_emulated_amx ....***Skipped   0.18 sec\n"
                      "100% tests passed, 0 tests failed out of 2\n", outcome)
        self.assertEqual((outcome.passed, outcome.failed, outcome.skipped), (5, 0, 3))

    def test_a_program_that_ctest_skips_is_no_failure(self):
        said = run_all.failures_of("\t  2 - one (Skipped)\n\t  3 - other (Timeout)\n")
        self.assertEqual(list(said), ["other"])


class PytestTest(unittest.TestCase):
    @unittest.skipUnless(PYTEST.exists(), "scripts/setup.sh has not made .venv")
    def test_an_assertion_that_fails_in_a_thread_fails_the_test(self):
        with tempfile.TemporaryDirectory() as folder:
            for holds in (True, False):
                test = pathlib.Path(folder) / f"{holds}_test.py"
                test.write_text("import threading\n\n\ndef check():\n"
                                f"    assert {holds}\n\n\ndef test_in_a_thread():\n"
                                "    thread = threading.Thread(target=check)\n"
                                "    thread.start()\n    thread.join()\n")
                done = subprocess.run([PYTEST, "-m", "pytest", "-c", HERE.parent / "pytest.ini",
                                       "-p", "no:cacheprovider", test], capture_output=True,
                                      text=True, check=False)
                self.assertEqual(done.returncode, 0 if holds else 1, done.stdout)


class RunFilteredTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.program = pathlib.Path(folder.name) / "program"
        self.program.write_text("#!/bin/sh\n[ $1 = --gtest_list_tests ] || { echo $*; exit 5; }\n"
                                f"cat <<'END'\n{LISTING}END\n")
        self.program.chmod(0o755)

    def run_it(self, *words):
        *options, patterns = words
        done = subprocess.run([sys.executable, HERE / "run_filtered.py", *options, self.program,
                               patterns], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout

    def test_names_are_those_of_the_listing(self):
        self.assertEqual(run_filtered.names_of(LISTING),
                         ["Vulkan/EqualityTest.Cold/row_a", "Vulkan/EqualityTest.Warm/row_b",
                          "Plain.Holds"])

    def test_the_program_gets_the_filter_and_its_exit_code_counts(self):
        for options in ([], ["--or-skip"]):
            code, said = self.run_it(*options, "Vulkan/*.Cold*/row_a:Plain.*")
            self.assertEqual(code, 5)
            self.assertIn("--gtest_filter=Vulkan/*.Cold*/row_a:Plain.*", said)

    def test_a_pattern_that_names_no_test_is_an_error(self):
        for options in ([], ["--or-skip"]):
            code, said = self.run_it(*options, "Vulkan/*.Among*/row_a:Vulkan/*.Cold*")
            self.assertEqual(code, 1)
            self.assertIn("name no test", said)
            self.assertIn("Vulkan/*.Among*/row_a", said)
            self.assertNotIn("Cold", said)

    def test_only_tests_that_may_be_absent_are_skipped(self):
        self.assertEqual(self.run_it("Device/*:Device.*")[0], 1)
        self.assertEqual(self.run_it("--or-skip", "Device/*:Device.*")[0], run_filtered.SKIPPED)


if __name__ == "__main__":
    result = unittest.TextTestRunner(verbosity=0).run(
        unittest.defaultTestLoader.loadTestsFromModule(sys.modules["__main__"]))
    bad, skipped = len(result.failures) + len(result.errors), len(result.skipped)
    print(f"{result.testsRun - bad - skipped} passed, {bad} failed, {skipped} skipped")
    sys.exit(int(bad > 0))

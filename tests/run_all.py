#!/usr/bin/env python3
"""Builds one preset and runs every part of the test suite on it; one summary at the end.

    python3 tests/run_all.py [--preset release|dev|tsan] [--long] [PART...]

Without --long, cases that take long on a software driver of Vulkan or repeat what another case
computes are left out: CTest's with the label `long`, and pytest's that read BRAID_LONG.

Three parts run at a time: one that mostly waits (for a server, a page, a limit of time) beside two
that compute and give way to it, so that no core is idle and what the first one times is its own.
A part that fails does not hide the others. Each part's output goes to a file of its own in
build/test-logs/PRESET, and the end of it is shown when the part fails. A part's counts are in the
last line that begins with "N passed" or "N failed" (pytest's words; GoogleTest's are added up); a
part that exits non-zero has at least one failure, and so has one whose sanitizer wrote a report, in
whichever process that was. Each part is a group of processes, which is killed when its time is up
or when SIGTERM, SIGINT or SIGHUP ends the run.
"""
import argparse
import concurrent.futures
import contextlib
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field

ROOT = pathlib.Path(__file__).resolve().parent.parent
SHOWN_LINES = 40
# The lowest priority, which a server gives to large requests: it must not wait for all parts.
GIVING_WAY = ["nice", "-n", "19"]
LANES = [True, False, False]  # does what runs in it wait?
FAILURE = re.compile(r"Failure$|: Failure\b|\[  FAILED  \]|CHECK failed|\*\*\*Not Run|ERROR: ")
FAILED = re.compile(r"\[  FAILED  \] ([\w/]+\.[\w/]+)|^(?:FAILED|ERROR) (.+?)(?: - |$)"
                    r"|^\s+\d+ - (\S+) \((?!Failed|Skipped)")  # CTest's: crashed or late
CLOSING = re.compile(r"(?:.*; )?=*\s*\d+ (?:passed|failed|skipped|errors?)\b")
# Two parts beside `cli` of its folder, so that none takes longest by far.
GROUPS = re.compile(r"rank|handoff|disk_tier|slow_disk|expert")
DEVICE = re.compile(r"vulkan")
# An allocation that a limit of memory forbids fails as it does without a sanitizer, so a grammar's
# trial ends as it should; a report about it would need memory, too.
LIMITED = "allocator_may_return_null=1"
SANITIZED = {
    "dev": {
        "ASAN_OPTIONS": f"detect_stack_use_after_return=1:strict_string_checks=1:{LIMITED}",
        "LSAN_OPTIONS": "print_suppressions=0",
        "UBSAN_OPTIONS": "print_stacktrace=1",
    },
    # UCX patches mmap and its like in memory, which ThreadSanitizer has patched before.
    "tsan": {"TSAN_OPTIONS": f"second_deadlock_stack=1:history_size=4:{LIMITED}",
             "UCX_MEM_EVENTS": "n"},
}
SLOWER = {"release": 1, "dev": 2, "tsan": 4}  # how much longer a part may take
STOPPED = threading.Event()  # by a signal


@dataclass
class Part:
    name: str
    command: list
    needs: list = field(default_factory=list)  # files without which the part is a failure
    timeout_s: int = 1800
    asked_for: bool = False  # runs only when it is named
    waits: bool = False  # mostly; those that compute give way to it
    alone: bool = False  # runs when all others are over


@dataclass
class Outcome:
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0  # of the processes that were waited for
    note: str = ""
    failures: dict = field(default_factory=dict)  # what the log says, by test


def parts_of(preset, with_long=True):
    build = f"build/{preset}"
    binary = f"{build}/braid"
    python = sys.executable
    venv, clients = ".venv/bin/python", ".venv-clients/bin/python"
    ctest = ["ctest", "--test-dir", build, "-V", "--no-tests=error",
             *([] if with_long else ["-LE", "long"]), "-L"]

    sanitized = preset in SANITIZED
    # Planted mistakes show nothing more with a sanitizer than without.
    apart = "^equality" + ("|_mistakes$|^mutants$" if sanitized else "")
    # A prompt of 8,000 tokens must be answered within a minute.
    abuse = "tests/http/abuse_test.py"

    def pytest(*paths, python_of_tests=venv):
        return [python_of_tests, "-m", "pytest", "-q", "-rfE", "-p", "no:cacheprovider", *paths]

    def cli_files(kind=None):
        """Tests of the command line of one kind; None: those of no kind."""
        every = sorted(path.relative_to(ROOT) for path in (ROOT / "tests/cli").glob("*_test.py"))
        kinds = {path: next((k for k in (GROUPS, DEVICE) if k.match(path.name)), None)
                 for path in every}
        return [str(path) for path in every if kinds[path] is kind]

    return [
        # The longest first.
        Part("equality", [*ctest, "simulation", "-R", "^equality"], timeout_s=3600),
        Part("unit", [*ctest, "unit"], timeout_s=3600),
        Part("simulation", [*ctest, "simulation", "-E", apart], timeout_s=3600),
        Part("tidy", [python, "tests/tidy/tidy.py"]),
        Part("tidy-self", [python, "tests/tidy/tidy_test.py"]),
        Part("run-self", [python, "tests/run_all_test.py"], waits=True),
        Part("mutation-self", [python, "tests/mutation/operators_test.py"]),
        Part("api-tests", [python, "tests/tidy/api_tests.py"]),
        Part("scenarios", [python, "tests/scenarios.py"]),
        Part("device", pytest(*cli_files(DEVICE)), ["tests/cli", venv, binary]),
        Part("http", pytest("tests/http", *([f"--ignore={abuse}"] if sanitized else [])),
             ["tests/http", venv, binary], waits=True),
        *([Part("abuse", pytest(abuse), [abuse, venv, binary], waits=True, alone=True)]
          if sanitized else []),
        Part("page", pytest("tests/page"), ["tests/page", venv, binary], waits=True),
        Part("groups", pytest(*cli_files(GROUPS)), ["tests/cli", venv, binary], waits=True),
        Part("cli", pytest(*cli_files()), ["tests/cli", venv, binary]),
        Part("golden", [python, "tests/golden/compare.py", binary,
                        *(["--few-cuts"] if sanitized else [])],
             ["tests/golden/compare.py", binary]),
        *([] if sanitized else
          [Part("dist", pytest("tests/dist"), ["tests/dist", venv, binary])]),
        Part("formats", pytest("tests/formats"), ["tests/formats", venv, binary]),
        Part("client", pytest("tests/client"), ["tests/client", venv, binary], waits=True),
        Part("router", pytest("tests/router"), ["tests/router", venv, binary], waits=True),
        Part("page-dist", [python, "web/check_dist.py"], ["web/check_dist.py"]),
        Part("clients", pytest("tests/clients", python_of_tests=clients),
             [clients, ".venv-openai2/bin/python", "tests/clients/node/node_modules", binary],
             timeout_s=3600, asked_for=True, waits=True),
    ]


def environment(preset, logs, part):
    env = dict(os.environ)  # BRAID_ISA, too, which every command of braid reads
    env["BRAID_BIN"] = str(ROOT / f"build/{preset}/braid")
    env["BRAID_PRESET"] = preset
    env["PYTHONDONTWRITEBYTECODE"] = "1"
    env["PYTHONUNBUFFERED"] = "1"
    for name, value in SANITIZED.get(preset, {}).items():
        env[name] = f"{value}:log_path={logs}/sanitizer-{part.name}"
        suppressions = ROOT / f"tests/{name.partition('_')[0].lower()}.supp"
        if suppressions.exists():
            env[name] += f":suppressions={suppressions}"
    return env


def count(text, outcome):
    """Reads the counts from a part's output."""
    gtest = {
        "passed": re.findall(r"\[  PASSED  \] (\d+) tests?", text),
        "failed": re.findall(r"\[  FAILED  \] (\d+) tests?", text),
        "skipped": re.findall(r"\[  SKIPPED \] (\d+) tests?", text),
    }
    gtest["skipped"] += ["1"] * text.count("***Skipped")  # CTest's: a whole program
    if any(gtest.values()):
        for word, numbers in gtest.items():
            setattr(outcome, word, sum(map(int, numbers)))
        crashed = re.findall(r"(\d+) tests? failed out of", text)
        outcome.failed = max([outcome.failed, *map(int, crashed)])
        return
    closing = [line for line in text.splitlines() if CLOSING.match(line)]
    for number, word in re.findall(r"(\d+) (passed|failed|skipped|error)", (closing or [""])[-1]):
        target = "failed" if word == "error" else word
        setattr(outcome, target, getattr(outcome, target) + int(number))


def excerpt(text):
    """What to show of a failed part's output: the lines around failures, and the end."""
    lines = text.splitlines()
    chosen = set(range(max(0, len(lines) - SHOWN_LINES), len(lines)))
    failures = [i for i, line in enumerate(lines[:-SHOWN_LINES]) if FAILURE.search(line)]
    for i in failures[:SHOWN_LINES // 4]:
        chosen.update(range(i, min(i + 6, len(lines))))
    return "\n".join(lines[i] for i in sorted(chosen))


def failures_of(text):
    """The failed tests by name, with the first lines of what GoogleTest wrote of each one."""
    found = {}
    said = {}  # by the number that CTest writes before each line, as tests run beside each other
    for line in text.splitlines():
        lines = said.setdefault(line.partition(": ")[0] if line[:1].isdigit() else "", [])
        if "[ RUN      ]" in line or "[       OK ]" in line:
            lines.clear()
        elif name := FAILED.search(line):
            found.setdefault(name[1] or name[2] or name[3], lines[:6])
            lines.clear()
        elif lines or FAILURE.search(line):
            lines.append(line)
    return found


def show(line):
    if sys.stdout.isatty():
        print(f"\r\033[K{line}", end="", flush=True)


def kill_group(process):
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


@contextlib.contextmanager
def started(command, **more):
    """A process that leads a group; nothing of the group outlives an exception in the block."""
    process = subprocess.Popen(command, cwd=ROOT, start_new_session=True, **more)
    try:
        yield process
    except BaseException:
        kill_group(process)
        process.wait()
        raise


def stop(number, _):
    """The handler of signals that end the run."""
    STOPPED.set()
    sys.exit(128 + number)


def run_command(part, log, env, outcome):
    """Runs the command with its output in the log, and measures what it takes; returns the exit
    code, or None past the time."""
    start = time.monotonic()
    command = part.command if part.waits else [*GIVING_WAY, *part.command]
    late = False
    with open(log, "wb") as out, started(command, env=env, stdout=out, stderr=subprocess.STDOUT,
                                         stdin=subprocess.DEVNULL) as process:
        while True:
            ended, status, usage = os.wait4(process.pid, os.WNOHANG)
            outcome.seconds = time.monotonic() - start
            if ended:
                process.returncode = os.waitstatus_to_exitcode(status)
                break
            if STOPPED.is_set():
                sys.exit()  # of this thread
            if outcome.seconds > part.timeout_s and not late:
                late = True
                kill_group(process)
            show(f"{part.name:<12} {outcome.seconds:5.0f} s")
            time.sleep(0.2)
    outcome.cpu_seconds = usage.ru_utime + usage.ru_stime
    return None if late else process.returncode


def take_sanitizer_reports(logs, log, part):
    """Moves the sanitizers' reports into the part's log; returns how many there were."""
    reports = sorted(logs.glob(f"sanitizer-{part.name}.*"))
    with open(log, "ab") as out:
        for report in reports:
            out.write(f"\n--- {report.name}\n".encode() + report.read_bytes())
            report.unlink()
    return len(reports)


def run_part(part, preset, logs):
    outcome = Outcome()
    log = logs / f"{part.name}.log"
    missing = [need for need in part.needs if not (ROOT / need).exists()]
    if missing:
        outcome.failed = 1
        outcome.note = "missing: " + ", ".join(missing)
        return outcome
    code = run_command(part, log, environment(preset, logs, part), outcome)
    reports = take_sanitizer_reports(logs, log, part)
    text = log.read_text(errors="replace")
    count(text, outcome)
    if code is None:
        outcome.note = f"stopped after {part.timeout_s} s"
    elif code != 0:
        outcome.note = f"exit code {code}"
    if reports:
        outcome.note = f"{outcome.note} {reports} sanitizer reports".strip()
    if outcome.note:
        outcome.failed = max(outcome.failed, 1)
    elif outcome.passed + outcome.failed == 0:
        outcome.passed = 1  # a part that does not count its checks counts as one
    if outcome.failed:
        outcome.failures = failures_of(text)
        show("")
        print(f"---- {part.name} failed ({outcome.note}); from {log.relative_to(ROOT)}:")
        print(excerpt(text))
    return outcome


def build(preset):
    """Configures once and builds all that can be built, with Ninja's output on the terminal."""
    start = time.monotonic()
    if not (ROOT / f"build/{preset}/build.ninja").exists():
        with started(["cmake", "--preset", preset], stdout=subprocess.DEVNULL) as configuration:
            configuration.wait()
    with started(["cmake", "--build", "--preset", preset, "--", "-k", "0"]) as building:
        code = building.wait()
    outcome = Outcome(passed=int(code == 0), failed=int(code != 0))
    outcome.seconds = time.monotonic() - start
    outcome.note = "" if code == 0 else f"exit code {code}"
    return outcome


def report(name, outcome):
    show("")
    print(f"{name:<12} {outcome.passed:>8} {outcome.failed:>8} {outcome.skipped:>8} "
          f"{outcome.seconds:>8.1f} {outcome.cpu_seconds:>8.1f}  {outcome.note}".rstrip(),
          flush=True)


def run_parts(parts, preset, logs):
    """Both kinds in the order of `parts`; who has no more of its own kind helps with the other.
    Returns outcomes by name, in the order of `parts`."""
    outcomes = {}
    left = [part for part in parts if not part.alone]
    lock = threading.Lock()

    def taken(waits):
        with lock:
            part = next((part for part in left if part.waits == waits), left[0] if left else None)
            if part:
                left.remove(part)
            return part

    def run(part):
        outcomes[part.name] = run_part(part, preset, logs)
        report(part.name, outcomes[part.name])

    def work(waits):
        while not STOPPED.is_set() and (part := taken(waits)):
            run(part)

    with concurrent.futures.ThreadPoolExecutor(len(LANES)) as pool:
        list(pool.map(work, LANES))
    for part in parts:
        if part.alone:
            run(part)
    return {part.name: outcomes[part.name] for part in parts}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--preset", default="release", choices=["release", "dev", "tsan"])
    parser.add_argument("--long", action="store_true", help="every case, however long it takes")
    parser.add_argument("parts", nargs="*", metavar="PART", help="default: all but clients")
    arguments = parser.parse_args()
    parts = parts_of(arguments.preset, arguments.long)
    os.environ["BRAID_LONG"] = "1" if arguments.long else "0"
    unknown = set(arguments.parts) - {part.name for part in parts}
    if unknown:
        parser.error(f"no part {', '.join(sorted(unknown))}; "
                     f"there are {', '.join(part.name for part in parts)}")
    if arguments.parts:
        parts = [part for part in parts if part.name in arguments.parts]
    else:
        parts = [part for part in parts if not part.asked_for]
    for part in parts:
        part.timeout_s *= SLOWER[arguments.preset]

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup sets it
            signal.signal(number, stop)
    logs = ROOT / "build/test-logs" / arguments.preset
    logs.mkdir(parents=True, exist_ok=True)
    for stale in logs.glob("sanitizer-*"):
        stale.unlink()
    outcomes = {"build": build(arguments.preset)}
    outcomes.update(run_parts(parts, arguments.preset, logs))

    print(f"\n{'part':<12} {'passed':>8} {'failed':>8} {'skipped':>8} {'seconds':>8} {'cpu':>8}")
    for name, outcome in outcomes.items():
        report(name, outcome)
    for name, outcome in outcomes.items():
        for test, said in outcome.failures.items():
            print("\n".join([f"\n{name}: {test}", *said]))
    passed = sum(outcome.passed for outcome in outcomes.values())
    failed = sum(outcome.failed for outcome in outcomes.values())
    print(f"\n{passed} passed, {failed} failed")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Measures whether the tests see: plants random one-line mutants and counts those that fail a test.

    python3 tests/mutation/mutation.py [--seed 1] [--per-module 30] [--module M…] [--files 8]
                                       [--jobs 1] [--workers 1] [--unit-only] [--suites S…]
                                       [--again] [--report]

1. Samples mutants in src/ (operators.py; tests/mutation/excluded.txt says what is left out).
2. Builds the preset `mutation` once, with all of them behind switches ($BRAID_MUTANT); mutants that
   do not compile are replaced.
3. Runs every suite once with none switched on, and notes which test reaches which mutant.
4. Per mutant runs the tests of its module that reach it, the fastest first, up to the first
   failure; then, for those that survive, the other modules' tests and the wider suites.

Everything is kept below build/mutation; a second call goes on where the first one ended, until the
sample changes (another seed or size, or --new). results.jsonl has a line per mutant. The exit code
is 0: this is a measurement. SURVIVORS.md says of each known survivor why it survives.
"""
import argparse
import collections
import concurrent.futures
import fcntl
import fnmatch
import hashlib
import json
import os
import pathlib
import random
import re
import resource
import signal
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import operators  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = ROOT / "tests/mutation"
BUILD = ROOT / "build/mutation"
PLANTED = BUILD / "planted"
LAYERS = (ROOT / "src/LAYERS").read_text()
MODULES = re.findall(r"^(\w+):", LAYERS, re.M)
LENT = dict(re.findall(r"^([\w/]+) = (\w+)$", LAYERS, re.M))  # folders of another module
UNIT_OF = {}  # whose unit tests a module has that has none itself
GTEST_SUITES = {"simulation": "tests/simulation/simulation_test",
                "moves": "tests/experts/expert_moves_test",
                "explore": "tests/handoff/handoff_explore_test",
                "placement": "tests/router/router_placement_test",
                "equality": "tests/equality/equality_test"}
PYTEST_SUITES = {"http": "tests/http", "client": "tests/client", "fleet": "tests/router",
                 "cli": "tests/cli", "formats": "tests/formats"}
# Cheap ones first; each runs only for mutants that it reaches.
WIDE = ["simulation", "moves", "explore", "placement", "equality", "golden", *PYTEST_SUITES]
SIMULATION_SEEDS = 2500
SPARE = 1.5              # as many more are planted as a module needs, for those that do not compile
INCLUDERS_MAX = 12       # a header that more sources include costs too much to compile
UNIT_SECONDS_MAX = 60    # of slow tests that are run for one mutant, by the recorded times
WIDE_SECONDS_MAX = 90
SLOWER = 6               # a test that takes so many times as long as recorded is a failure
MEMORY_MAX = 12 << 30


def say(text):
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


def read_lines(path):
    return path.read_text().splitlines() if path.exists() else []


def excluded(name):
    """Why a file is not mutated, or None."""
    if name.endswith("_test.cc"):
        return "a test"
    for line in read_lines(HERE / "excluded.txt"):
        if line and not line.startswith("#"):
            pattern, reason = line.split(": ", 1)
            if fnmatch.fnmatch(name, pattern):
                return reason
    return None


def includers():
    """Per header, the sources that include it, directly or not, by the text of the includes."""
    direct = {}
    for path in (ROOT / "src").rglob("*.[hc]*"):
        name = path.relative_to(ROOT / "src").as_posix()
        direct[name] = re.findall(r'^#include "([^"]+)"', path.read_text(errors="replace"), re.M)
    users = collections.defaultdict(set)
    for source in direct:
        if not source.endswith(".cc"):
            continue
        seen, ahead = set(), list(direct[source])
        while ahead:
            header = ahead.pop()
            if header in seen or header not in direct:
                continue
            seen.add(header)
            ahead += direct[header]
            users[header].add(f"src/{source}")
    return users


def files_of(module):
    """The sources and headers of a module, wherever they lie."""
    for path in sorted((ROOT / "src").rglob("*.[hc]*")):
        name = path.relative_to(ROOT / "src").as_posix()
        lent = [owner for folder, owner in LENT.items() if name.startswith(folder + "/")]
        if path.suffix in (".cc", ".h") and module == (lent[0] if lent else name.split("/")[0]):
            yield path


def key_of(mutant, text):
    line = text.split("\n")[mutant.line - 1].strip()
    words = "\0".join([mutant.path, line, mutant.before, mutant.after])
    return hashlib.sha1(words.encode()).hexdigest()[:8]


class Sample:
    """Which mutants are planted; kept in build/mutation/sample.json."""

    PATH = BUILD / "sample.json"

    def __init__(self, options):
        self.options = options
        self.identity = {"seed": options.seed, "per_module": options.per_module,
                         "files": options.files}
        self.mutants = []  # (number, module, key, Mutant)
        self.rejected = set()
        self.active = set()  # modules that were asked for, now or before: only they are planted

    def load_or_draw(self):
        if self.PATH.exists() and not self.options.new:
            stored = json.loads(self.PATH.read_text())
            if stored["identity"] == self.identity:
                self.rejected = set(stored["rejected"])
                self.active = set(stored["active"])
                self.mutants = [(m["number"], m["module"], m["key"],
                                 operators.Mutant(**m["mutant"])) for m in stored["mutants"]]
                return
        self.draw()

    def store(self):
        BUILD.mkdir(parents=True, exist_ok=True)
        commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True,
                                text=True).stdout.strip()
        self.PATH.write_text(json.dumps({
            "identity": self.identity, "commit": commit, "rejected": sorted(self.rejected),
            "active": sorted(self.active),
            "mutants": [{"number": n, "module": module, "key": key, "mutant": m.as_dict()}
                        for n, module, key, m in self.mutants]}, indent=1))

    def draw(self):
        users = includers()
        for module in MODULES:
            rng = random.Random(f"{self.options.seed} {module}")
            per_file = {}
            for path in files_of(module):
                name = path.relative_to(ROOT).as_posix()
                wide = len(users.get(name.removeprefix("src/"), ())) > INCLUDERS_MAX
                if excluded(name) or (name.endswith(".h") and wide):
                    continue
                text = path.read_text()
                by_line = collections.defaultdict(list)
                for mutant in operators.mutants_of(name, text):
                    by_line[mutant.line].append((key_of(mutant, text), mutant))
                if by_line:
                    per_file[name] = by_line
            wanted = int(self.options.per_module * SPARE)
            for key, mutant in self.pick(per_file, wanted, rng):
                self.mutants.append((len(self.mutants) + 1, module, key, mutant))

    def pick(self, per_file, wanted, rng):
        """Lines at random in files at random (by their lines), one mutant a line, no overlaps."""
        names, chosen = list(per_file), []
        while names and len(chosen) < self.options.files:
            name = rng.choices(names, [len(per_file[n]) for n in names])[0]
            names.remove(name)
            chosen.append(name)
        lines = [(name, line) for name in sorted(chosen) for line in sorted(per_file[name])]
        rng.shuffle(lines)
        picked, spans = [], collections.defaultdict(list)
        for name, line in lines:
            if len(picked) == wanted:
                break
            key, mutant = rng.choice(per_file[name][line])
            if any(mutant.begin < end and begin < mutant.end for begin, end in spans[name]):
                continue
            spans[name].append((mutant.begin, mutant.end))
            picked.append((key, mutant))
        return picked

    def follow_changes(self):
        """Finds the mutants again in files that have changed; rejects those whose lines have."""
        scanned = {}
        for i, (number, module, key, mutant) in enumerate(self.mutants):
            path = ROOT / mutant.path
            if mutant.path not in scanned:
                text = path.read_text() if path.exists() else ""
                scanned[mutant.path] = text, {key_of(m, text): m for m in
                                              operators.mutants_of(mutant.path, text)}
            text, found = scanned[mutant.path]
            if text[mutant.begin:mutant.end] == mutant.before and \
                    key_of(mutant, text) == key:
                continue
            if key in found:
                self.mutants[i] = number, module, key, found[key]
            else:
                self.rejected.add(number)

    def planted(self):
        return [row for row in self.mutants if row[1] in self.active
                and row[0] not in self.rejected and not excluded(row[3].path)]

    def measured(self):
        """The mutants that count: per module the first that compile."""
        counts, result = collections.Counter(), []
        for row in self.planted():
            if counts[row[1]] < self.options.per_module:
                counts[row[1]] += 1
                result.append(row)
        return result


# Building.

def write_copies(sample):
    """The copies of all sources with mutants; objects of what is no copy any more are removed."""
    sample.follow_changes()
    sample.store()
    per_file = collections.defaultdict(list)
    for number, _, _, mutant in sample.planted():
        per_file[mutant.path].append((number, mutant))
    users = includers()
    sources = set(per_file)
    for name in per_file:
        if name.endswith(".h"):
            sources |= users[name.removeprefix("src/")]
    for old in sorted(PLANTED.rglob("*.[hc]*")) if PLANTED.exists() else []:
        name = old.relative_to(PLANTED).as_posix()
        if name not in per_file:
            old.unlink()
            sources |= {name} | users[name.removeprefix("src/")]
    changed = set()
    for name, chosen in per_file.items():
        text = (ROOT / name).read_text()
        copy = f'#include "switch.h"\n#line 1 "{ROOT / name}"\n{operators.render(text, chosen)}'
        path = PLANTED / name
        if not path.exists() or path.read_text() != copy:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(copy)
            changed |= {name} | (users[name.removeprefix("src/")] if name.endswith(".h") else set())
    PLANTED.mkdir(parents=True, exist_ok=True)
    header_users = sorted(set().union(*[users[n.removeprefix("src/")] for n in per_file
                                        if n.endswith(".h")] or [set()]))
    (PLANTED / "users.txt").write_text("\n".join(header_users))
    for name in changed | (sources - set(per_file)):
        for found in BUILD.glob(f"src/CMakeFiles/*.dir/{name.removeprefix('src/')}.o"):
            found.unlink()


def build(sample, targets):
    if not (BUILD / "build.ninja").exists():
        subprocess.run(["cmake", "--preset", "mutation"], cwd=ROOT, check=True,
                       stdout=subprocess.DEVNULL)
    while True:
        write_copies(sample)
        say(f"building {len(sample.planted())} mutants")
        done = subprocess.run(
            ["cmake", "--build", "--preset", "mutation", "--target", *targets, "-j",
             str(sample.options.jobs), "--", "-k", "0"],
            cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        (BUILD / "build.log").write_text(done.stdout)
        if done.returncode == 0:
            return
        rejected = blamed(sample, done.stdout)
        if not rejected:
            sys.exit(f"the build failed and no mutant is to blame: see {BUILD / 'build.log'}")
        say(f"{len(rejected)} mutants do not compile")
        sample.rejected |= rejected
        sample.store()


def targets_of(options):
    """What the suites that will judge run."""
    targets = {f"{UNIT_OF.get(module, module)}_test" for module in options.module}
    for suite in [] if options.unit_only else options.suites:
        if suite in MODULES:
            targets.add(f"{suite}_test")
        elif suite in GTEST_SUITES:
            targets.add(pathlib.Path(GTEST_SUITES[suite]).name)
        else:
            targets |= {"braid", "fake_server"}
    return sorted(targets)


def blamed(sample, output):
    """The mutants that stand on lines the compiler's errors name."""
    lines = set()
    for block in re.split(r"^FAILED: ", output, flags=re.M)[1:]:
        block = re.split(r"^\[\d+/\d+\]", block, flags=re.M)[0]
        for path, line in re.findall(r"^(?:In file included from )?(\S+?):(\d+)", block, re.M):
            path = pathlib.Path(os.path.normpath(BUILD / path))
            if path.is_relative_to(ROOT):
                name = path.relative_to(ROOT).as_posix()
                lines.add((name.removeprefix("build/mutation/planted/"), int(line)))
    found = set()
    for number, _, _, mutant in sample.planted():
        text_lines = range(mutant.line - mutant.before.count("\n"),
                           mutant.line + mutant.before.count("\n") + 1)
        if any((mutant.path, line) in lines for line in text_lines):
            found.add(number)
    return found


# Running.

def environment(suite, **more):
    env = dict(os.environ)
    env |= {"BRAID_BIN": str(BUILD / "braid"), "BRAID_PRESET": "release",
            "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(HERE),
            "BRAID_MUTANTS_REACHED": str(BUILD / f"reached.{suite}")}
    return env | more


def python():
    return str(ROOT / ".venv/bin/python")


def command_of(suite, tests=None):
    """The suite's command line; `tests`: of those that it tells apart, which."""
    if suite in MODULES:
        suite_binary = BUILD / f"{suite}_test"
    elif suite in GTEST_SUITES:
        suite_binary = BUILD / GTEST_SUITES[suite]
        if suite == "simulation":
            return [suite_binary, "--seeds", str(SIMULATION_SEEDS)]
    elif suite == "golden":
        return [sys.executable, "tests/golden/compare.py", BUILD / "braid", "--few-cuts"]
    else:
        return [python(), "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-p",
                "reach_plugin", *(tests or [PYTEST_SUITES[suite]])]
    chosen = [f"--gtest_filter={':'.join(tests)}"] if tests else []
    return [suite_binary, "--gtest_brief=1", "--gtest_fail_fast", *chosen]


def run(command, env, seconds):
    """(exit code or None past the time, seconds it took); ends all that it started."""
    start = time.monotonic()

    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_MAX, MEMORY_MAX))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    process = subprocess.Popen(list(map(str, command)), cwd=ROOT, env=env, preexec_fn=limit,
                               stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        code = process.wait(seconds)
    except subprocess.TimeoutExpired:
        code = None
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()
    return code, time.monotonic() - start


class Reach:
    """Which test of a suite reaches which mutant, and how long it takes; build/mutation/reach.*."""

    def __init__(self, suite, identity):
        self.suite = suite
        self.path = BUILD / f"reach.{suite}"
        self.tests = {}  # name -> (seconds, passed, mutants)
        stamp = BUILD / f"reach.{suite}.of"
        if not self.path.exists() or not stamp.exists() or stamp.read_text() != identity:
            self.record()
            stamp.write_text(identity)
        for line in read_lines(self.path):
            name, milliseconds, passed, *numbers = line.split(" ")
            self.tests[name.replace("\0", " ")] = (int(milliseconds) / 1000, passed == "1",
                                                   set(map(int, numbers)))

    def record(self):
        say(f"recording {self.suite}")
        self.path.unlink(missing_ok=True)
        reached = BUILD / f"reached.{self.suite}"
        reached.unlink(missing_ok=True)
        command = [word for word in command_of(self.suite)
                   if word not in ("-x", "--gtest_fail_fast")]
        code, seconds = run(command, environment(self.suite, BRAID_MUTANTS_TESTS=str(self.path)),
                            3600)
        if not self.path.exists():  # a suite that does not tell its tests apart
            numbers = [str(n) for n, byte in enumerate(reached.read_bytes()) if byte]
            words = ["*", str(int(seconds * 1000)), str(int(code == 0)), *numbers]
            self.path.write_text(" ".join(words) + "\n")
        failed = [line.split()[0] for line in read_lines(self.path) if line.split()[2] == "0"]
        if failed:
            say(f"{self.suite}: fail with no mutant on, and do not count: {', '.join(failed)}")

    def of(self, number):
        """The tests that pass and reach the mutant, the fastest first, with their seconds."""
        found = [(seconds, name) for name, (seconds, passed, numbers) in self.tests.items()
                 if passed and number in numbers]
        return sorted(found)


def portions(tests, seconds_max):
    """The tests in two runs, the fast ones first; what goes past the bound is left out."""
    fast, slow, used = [], [], 0.0
    for seconds, name in tests:
        used += seconds
        if fast and used > seconds_max:
            break
        (fast if used < 2 else slow).append((seconds, name))
    return [part for part in (fast, slow) if part]


def killer(suite, reach, number, seconds_max):
    """What of the suite fails with the mutant on, or None."""
    for part in portions(reach.of(number), seconds_max):
        names = [name for _, name in part]
        expected = sum(seconds for seconds, _ in part)
        command = command_of(suite, None if names == ["*"] else names)
        env = environment(suite, BRAID_MUTANT=str(number),
                          BRAID_MUTANTS_TESTS=str(BUILD / "ignored"))
        env["BRAID_MUTANTS_REACHED"] = str(BUILD / "reached.ignored")
        code, seconds = run(command, env, SLOWER * expected + 30)
        if code == 0:
            continue
        if suite in PYTEST_SUITES:  # servers and clocks: does it fail because of the mutant?
            env["BRAID_MUTANT"] = "0"
            if run(command, env, SLOWER * expected + 30)[0] != 0:
                say(f"{suite} fails with no mutant on: {' '.join(names)}")
                continue
        if code is None:
            return f"{suite}: does not end within {seconds:.0f} s"
        return f"{suite}: {names[0] if len(names) == 1 else f'one of {len(names)} tests'}"
    return None


class Results:
    PATH = BUILD / "results.jsonl"

    def __init__(self):
        self.lock = threading.Lock()
        self.by_key = {}
        for line in read_lines(self.PATH):
            result = json.loads(line)
            self.by_key[result["key"]] = result

    def put(self, row, **verdict):
        number, module, key, m = row
        result = {"key": key, "module": module, "path": m.path, "line": m.line, "kind": m.kind,
                  "before": " ".join(m.before.split()), "after": " ".join(m.after.split())}
        result |= verdict
        with self.lock, open(self.PATH, "a") as out:
            self.by_key[key] = result
            out.write(json.dumps(result) + "\n")
        return result

    def done(self, key, stage):
        result = self.by_key.get(key)
        return result and (result["verdict"] == "caught" or stage in result["stages"])


def measure(sample, results):
    rows = [row for row in sample.measured() if row[1] in sample.options.module]
    numbers = [row[0] for row in sample.planted()]
    stamp = json.dumps([sample.identity, numbers])
    with concurrent.futures.ThreadPoolExecutor(sample.options.workers) as workers:

        def of_each(mutants, judge):
            for result in workers.map(judge, mutants):
                tell(result)

        for module in sample.options.module:
            mine = [row for row in rows if row[1] == module and not results.done(row[2], "unit")]
            if mine:
                suite = UNIT_OF.get(module, module)
                reach = Reach(suite, stamp)
                of_each(mine, lambda row: by_unit_tests(suite, reach, row, results))
        if sample.options.unit_only:
            return
        for suite in sample.options.suites:
            mine = [row for row in rows if not results.done(row[2], suite)
                    and UNIT_OF.get(row[1], row[1]) != suite]
            if mine:
                reach = Reach(suite, stamp)
                of_each(mine, lambda row: by_wider_suite(suite, reach, row, results))


def by_unit_tests(suite, reach, row, results):
    by = killer(suite, reach, row[0], UNIT_SECONDS_MAX)
    return results.put(row, verdict="caught" if by else "survived", by=by or "", stages=["unit"],
                       unit_tests=len(reach.of(row[0])))


def by_wider_suite(suite, reach, row, results):
    before = results.by_key[row[2]]
    by = killer(suite, reach, row[0], WIDE_SECONDS_MAX)
    return results.put(row, verdict="caught" if by else "survived", by=by or "",
                       stages=[*before["stages"], suite], unit_tests=before["unit_tests"])


def tell(result):
    say(f"{result['verdict']:<8} {result['path']}:{result['line']}  {result['before'][:60]} → "
        f"{result['after'][:60]}  {result['by']}")


def judged():
    """Keys of SURVIVORS.md with what is said of them: equivalent or tested."""
    text = (HERE / "SURVIVORS.md").read_text() if (HERE / "SURVIVORS.md").exists() else ""
    return dict(re.findall(r"^\* `([0-9a-f]{8})` (equivalent|tested|open)", text, re.M))


def report(sample, results):
    known = judged()
    rows = [(row[1], results.by_key[row[2]]) for row in sample.measured()
            if row[2] in results.by_key]
    print(f"\n{'module':<10} {'mutants':>7} {'caught':>7} {'by unit':>7} {'left':>5} "
          f"{'equivalent':>10} {'rate':>6}   rate without equivalent ones")
    total = collections.Counter()
    for module in [*MODULES, "all"]:
        mine = [r for m, r in rows if module in (m, "all")]
        if not mine:
            continue
        caught = sum(r["verdict"] == "caught" for r in mine)
        unit = sum(r["verdict"] == "caught" and r["stages"] == ["unit"] for r in mine)
        equal = sum(r["verdict"] != "caught" and known.get(r["key"]) == "equivalent" for r in mine)
        total["left"] = len(mine) - caught
        print(f"{module:<10} {len(mine):>7} {caught:>7} {unit:>7} {len(mine) - caught:>5} "
              f"{equal:>10} {100 * caught / len(mine):>5.1f}%   "
              f"{100 * caught / max(1, len(mine) - equal):.1f}%")
    missing = len(sample.measured()) - len(rows)
    if missing:
        print(f"{missing} mutants of the sample have not been run")
    print("\nsurvivors:")
    for _, r in rows:
        if r["verdict"] != "caught":
            reached = "" if r["unit_tests"] else ", reached by no unit test"
            print(f"  {r['key']} {r['path']}:{r['line']}: {r['before'][:90]} → {r['after'][:90]} "
                  f"({r['kind']}{reached}) {known.get(r['key'], 'not judged')}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--per-module", type=int, default=30)
    parser.add_argument("--files", type=int, default=8, help="files per module, at most")
    parser.add_argument("--module", nargs="+", choices=MODULES, default=MODULES)
    parser.add_argument("--jobs", type=int, default=1, help="of the compiler")
    parser.add_argument("--workers", type=int, default=1, help="mutants that are run at a time")
    parser.add_argument("--new", action="store_true", help="forget the sample and its results")
    parser.add_argument("--again", action="store_true", help="run survivors again: new tests")
    parser.add_argument("--unit-only", action="store_true", help="without the wider suites")
    units = [module for module in MODULES if module not in UNIT_OF]
    parser.add_argument("--suites", nargs="+", choices=[*units, *WIDE], default=[*units, *WIDE],
                        help="of the wider suites, these only")
    parser.add_argument("--report", action="store_true", help="print what is known and end")
    options = parser.parse_args()
    if options.new and BUILD.exists():
        for name in ("sample.json", "results.jsonl"):
            (BUILD / name).unlink(missing_ok=True)
    sample = Sample(options)
    sample.load_or_draw()
    if not options.report:
        BUILD.mkdir(parents=True, exist_ok=True)
        alone = open(BUILD / "lock", "w")  # noqa: SIM115: held to the end
        try:
            fcntl.flock(alone, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.exit("another run works in build/mutation")
        sample.active |= set(options.module)
        sample.store()
    results = Results()
    if options.again:
        results.by_key = {k: r for k, r in results.by_key.items() if r["verdict"] == "caught"}
        for path in BUILD.glob("reach.*.of"):
            path.unlink()
    if not options.report:
        build(sample, targets_of(options))
        (BUILD / "ignored").unlink(missing_ok=True)
        measure(sample, results)
    report(sample, results)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Runs a device's op tests and goldens under Vulkan's validation layers, which must say nothing.

    tests/device/validate.py [--build build/release] [--gpu-assisted] [--jobs 2] [--seconds 3600]
        [--only WORD]

Checks of the core and of synchronisation; with --gpu-assisted those of synchronisation and of each
access to memory, by kernels that the layers instrument. These are new enough in Debian 13; those of
Debian 12 report accesses that are right. A software driver takes minutes to compile such a kernel.
First a kernel that writes far behind its memory must be reported: build shader_mistakes_test for
it. Each test and each set of goldens is a process of its own; --only takes those whose names
contain a word.

One line a process: seconds, result, and what the layers said. Exits with 1 if they said anything,
if a test failed, or if it has no result after --seconds.
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/mistakes"))
import shaders  # noqa: E402

LAYER = "VK_LAYER_KHRONOS_validation"
SYNCHRONISATION = "VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT"
GPU_ASSISTED = "VK_VALIDATION_FEATURE_ENABLE_GPU_ASSISTED_EXT"
NO_CORE = "VK_VALIDATION_FEATURE_DISABLE_CORE_CHECKS_EXT"
FINDING = re.compile(r"^.*(?:Validation Error|VUID-|SYNC-HAZARD).*$", re.M)
TOLERANCE = "2e-3"  # of a device's log-probabilities
BEYOND = {"what": "a kernel writes far behind its memory", "kernel": "AddRows",
          "file": "add_rows.comp", "at": "  result.at[col] = y;«»\n",
          "wrong": "\n  Floats(a.out_ + 0x1000000000ul).at[0] = y;"}  # fmt: skip


class Layers:
    """The layers' settings, and what they write."""

    def __init__(self, folder, gpu_assisted):
        self.folder, self.gpu_assisted = folder, gpu_assisted

    def environment(self, name):
        own = self.folder / name
        own.mkdir()
        # Both at once are slow, and the layers advise against it.
        features = ([f"enables = {SYNCHRONISATION},{GPU_ASSISTED}", f"disables = {NO_CORE}"]
                    if self.gpu_assisted else [f"enables = {SYNCHRONISATION}"])  # fmt: skip
        lines = [*features, "report_flags = error,warn", f"log_filename = {own}/log",
                 "debug_action = VK_DBG_LAYER_ACTION_LOG_MSG"]  # fmt: skip
        file = own / "vk_layer_settings.txt"
        file.write_text("".join(f"khronos_validation.{line}\n" for line in lines))
        return {"VK_INSTANCE_LAYERS": LAYER, "VK_LAYER_SETTINGS_PATH": str(file)}

    def findings(self, name, output):
        log = self.folder / name / "log"
        return FINDING.findall((log.read_text() if log.exists() else "") + output)


def run(layers, name, command, options, env=()):
    """(seconds, passed, result, findings, output) of a process."""
    begin, where = time.monotonic(), os.environ | layers.environment(name) | dict(env)
    try:
        done = subprocess.run(command, env=where, text=True, stdout=subprocess.PIPE, cwd=ROOT,
                              stderr=subprocess.STDOUT, timeout=options.seconds, check=False)
        output, passed, result = done.stdout, done.returncode == 0, f"exit {done.returncode}"
    except subprocess.TimeoutExpired as late:
        output = (late.stdout or b"").decode(errors="replace")
        passed, result = False, "no result"
    if "layer" in output and "starting Vulkan" in output:
        sys.exit(f"the layers are not installed: {output.strip()[-300:]}")
    return time.monotonic() - begin, passed, result, layers.findings(name, output), output


def check_control(layers, options, folder):
    """Ends the program unless the layers report a kernel that is wrong."""
    test, glslc = options.build / "tests/mistakes/shader_mistakes_test", shutil.which("glslc")
    if not test.is_file() or glslc is None:
        sys.exit(f"no {test if glslc else 'glslc'}: build shader_mistakes_test first")
    shaders.plant(ROOT / "src/ops/vulkan/shaders", BEYOND, folder / "planted")
    shaders.compiled(glslc, folder / "planted", BEYOND, folder / "wrong.spv")
    *_, found, _ = run(layers, "control", [test, "--gtest_filter=Vulkan.SmallOps*"], options,
                       {"BRAID_WRONG_SHADER": f"kShaderAddRows={folder}/wrong.spv"})
    if not found:
        sys.exit(f"{BEYOND['what']}, and the layers do not report it")
    print(f"reported: {BEYOND['what']}", flush=True)


def processes(options):
    """(name, command) of each op test and of each set of goldens."""
    ops, braid = options.build / "ops_test", options.build / "braid"
    listed = subprocess.run([ops, "--gtest_list_tests", "--gtest_filter=Vulkan*"], check=True,
                            capture_output=True, text=True).stdout  # fmt: skip
    suite, found = "", []
    for line in listed.splitlines()[1:]:
        if not line.startswith(" "):
            suite = line.split()[0]
            continue
        name = suite + line.split()[0]
        found.append((name, [ops, "--gtest_brief=1", f"--gtest_filter={name}"]))
    for path in sorted((ROOT / "tests/golden").glob("*/score.jsonl")):
        name = path.parent.name
        found.append((name, [sys.executable, "tests/golden/compare.py", braid, "--only", name,
                             "--few-cuts", "--device", "vulkan", "--tolerance", TOLERANCE]))
    return [(name, command) for name, command in found if options.only in name]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release")
    parser.add_argument("--gpu-assisted", action="store_true", help="each access to memory, too")
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time")
    parser.add_argument("--seconds", type=float, default=3600, help="of a process, at most")
    parser.add_argument("--only", default="", help="processes whose names contain this")
    options = parser.parse_args()
    options.build = options.build.resolve()
    failed = []
    with tempfile.TemporaryDirectory() as made:
        folder = pathlib.Path(made)
        layers = Layers(folder, options.gpu_assisted)
        if options.gpu_assisted:
            check_control(layers, options, folder)

        def one(process):
            name, command = process
            seconds, passed, result, found, output = run(layers, name, command, options)
            print(f"{name:<70} {seconds:>6.0f} s  {result}, {len(found)} findings", flush=True)
            if found or not passed or "SKIPPED" in output:
                failed.append(name)
                print("\n".join(found[:5] or output.splitlines()[-5:]), flush=True)

        with ThreadPoolExecutor(options.jobs) as pool:
            every = processes(options)
            list(pool.map(one, every))
    print(f"{len(every) - len(failed)} passed, {len(failed)} failed")
    return int(bool(failed) or not every)


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Shaders with mistakes in them, which the op tests must find (shaders.toml).

    shaders.py ROOT GLSLC             checks the table: every place is there once, and what is wrong
                                      compiles to another kernel
    shaders.py ROOT GLSLC TEST        runs TEST (shader_mistakes_test) without a mistake, then with
                                      each of them; a mistake that it passes with is an error
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import tomllib
from concurrent.futures import ThreadPoolExecutor

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from plant import span_of  # noqa: E402


def compiled(glslc, folder, mistake, out):
    """The kernel's SPIR-V, of the sources in a folder."""
    name = "".join("_" * (c.isupper() and i > 0) + c.lower()
                   for i, c in enumerate(mistake["kernel"].rstrip("0123456789")))  # fmt: skip
    source, = folder.rglob(mistake.get("source", f"{name}.comp"))
    subprocess.run(
        [glslc, "--target-env=vulkan1.3", "-O", "-I", folder, *mistake.get("flags", []), "-o", out,
         source], check=True,
    )  # fmt: skip
    return out.read_bytes()


def plant(shaders, mistake, folder):
    """A copy of the shaders with the mistake in it."""
    for source in [path for path in shaders.rglob("*") if path.is_file()]:
        text = source.read_text()
        if source.name == mistake["file"]:
            begin, end = span_of(text, mistake, mistake["what"])
            text = text[:begin] + mistake["wrong"] + text[end:]
        copy = folder / source.relative_to(shaders)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(text)


def kernel_of(mistake):
    """What decides about the kernel beside the folder; many mistakes are of one kernel."""
    return mistake["kernel"], mistake.get("source"), *mistake.get("flags", [])


def passes(test, tests, env):
    command = [test, "--gtest_brief=1", f"--gtest_filter={tests}"]
    env = os.environ | env
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if "SKIPPED" in done.stdout:
        print("no Vulkan device can be used")
        sys.exit(0)
    return done.returncode == 0


def main(root, glslc, test=None):
    shaders = pathlib.Path(root) / "src/ops/vulkan/shaders"
    table = tomllib.loads((pathlib.Path(root) / "tests/mistakes/shaders.toml").read_text())
    mistakes = table["mistake"]
    missed = []
    with tempfile.TemporaryDirectory() as made:
        folder = pathlib.Path(made)
        right = {}

        def compile_right(numbered):
            number, mistake = numbered
            out = folder / f"{number}.right.spv"
            right[kernel_of(mistake)] = compiled(glslc, shaders, mistake, out)

        def find(numbered):
            number, mistake = numbered
            plant(shaders, mistake, folder / str(number))
            wrong = folder / f"{number}.spv"
            here = compiled(glslc, folder / str(number), mistake, wrong)
            if here == right[kernel_of(mistake)]:
                missed.append(f"{mistake['what']}: the kernel is the same")
            elif test is not None:
                env = {"BRAID_WRONG_SHADER": f"kShader{mistake['kernel']}={wrong}"}
                if passes(test, mistake["test"], env):
                    missed.append(f"{mistake['what']}: {mistake['test']} does not find it")

        if test is not None and not passes(test, ":".join({m["test"] for m in mistakes}), {}):
            sys.exit("the tests fail without a mistake")
        with ThreadPoolExecutor(2) as pool:
            kernels = {kernel_of(mistake): mistake for mistake in mistakes}
            list(pool.map(compile_right, enumerate(kernels.values())))
            list(pool.map(find, enumerate(mistakes)))
    for line in missed:
        print(line)
    print(f"{len(mistakes)} mistakes, {len(missed)} missed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

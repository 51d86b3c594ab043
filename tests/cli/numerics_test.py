"""The program's part of a fingerprint (cmake/numerics.cmake): builds that differ elsewhere share
pages, a changed kernel or compiler does not."""

import pathlib
import re
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "cmake/numerics.cmake"


def digest(sources, out, flags="GNU 12 Release"):
    subprocess.run(["cmake", f"-DBRAID_SOURCES={sources}", f"-DBRAID_FLAGS={flags}",
                    f"-DBRAID_OUTPUT={out}", "-P", SCRIPT], check=True)
    return re.search(r'kNumerics\{"([0-9a-f]{32})"\}', out.read_text())[1]


@pytest.fixture
def copy(tmp_path):
    """The sources, elsewhere."""
    for folder in ("src", "cmake"):
        shutil.copytree(ROOT / folder, tmp_path / "copy" / folder)
    return tmp_path / "copy"


def test_builds_that_differ_in_other_files_share(copy, tmp_path):
    here = digest(ROOT, tmp_path / "here.cc")
    assert digest(copy, tmp_path / "there.cc") == here
    for other in ("src/server/metrics.cc", "src/cli/run.cc", "src/router/module.cmake",
                  "src/tiers/segments/segment.cc", "src/text/tokens/tokenizer.cc",
                  "src/scheduler/scheduler_test.cc", "cmake/dist.cmake"):
        (copy / other).parent.mkdir(exist_ok=True)
        (copy / other).write_text("// changed\n")
    assert digest(copy, tmp_path / "there.cc") == here


@pytest.mark.parametrize("source", [
    "src/ops/cpu/avx2/gemm.cc", "src/ops/norm.h", "src/ops/module.cmake", "src/model/spec.h",
    "src/ops/vulkan/shaders/attention/attention.comp", "src/scheduler/scheduler.cc",
    "src/base/math.h", "cmake/toolchain_flags.cmake", "cmake/shaders.cmake"])
def test_what_decides_about_bits_does_not(copy, tmp_path, source):
    before = digest(copy, tmp_path / "a.cc")
    path = copy / source
    path.write_text((path.read_text() if path.exists() else "") + "\n// changed\n")
    assert digest(copy, tmp_path / "b.cc") != before


def test_another_compiler_or_flag_does_not(tmp_path):
    assert digest(ROOT, tmp_path / "a.cc") != digest(ROOT, tmp_path / "b.cc", "GNU 13 Release")

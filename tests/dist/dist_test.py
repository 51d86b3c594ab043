"""What `make dist` builds: what it needs, its size and version, and that its notices are complete.
"""

import os
import pathlib
import re
import subprocess
import tarfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
DIST = ROOT / "build/dist"
NEEDED = {"libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2", "libpthread.so.0", "libdl.so.2"}
GLIBC_MAX = (2, 36)  # Debian 12's
BYTES_MAX = 60 << 20


def output_of(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.fixture(scope="module")
def archive():
    preset = os.environ.get("BRAID_PRESET", "release")
    subprocess.run(["cmake", "--build", "--preset", preset, "--target", "dist"], cwd=ROOT,
                   check=True)
    version = output_of(DIST / "braid", "version").split()[1]
    return DIST / f"braid-{version}-{os.uname().machine}-linux.tar.gz"


@pytest.fixture(scope="module")
def unpacked(archive, tmp_path_factory):
    folder = tmp_path_factory.mktemp("dist")
    with tarfile.open(archive) as tar:
        tar.extractall(folder)
    return folder / archive.name.removesuffix(".tar.gz")


def test_the_archive_has_the_binary_its_licences_and_the_unit(unpacked):
    names = {path.name for path in unpacked.iterdir()}
    assert names == {"braid", "LICENSE", "NOTICES", "README.md", "braid.service"}
    unit = ROOT / "deploy/systemd/braid.service"
    assert (unpacked / "braid.service").read_text() == unit.read_text()


def test_the_binary_needs_the_c_library_of_debian_12_and_nothing_else(unpacked):
    dynamic = output_of("readelf", "-d", unpacked / "braid")
    needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic))
    assert "libc.so.6" in needed and needed <= NEEDED
    assert "RPATH" not in dynamic and "RUNPATH" not in dynamic
    symbols = output_of("objdump", "-T", unpacked / "braid")
    versions = {tuple(map(int, found.split(".")))
                for found in re.findall(r"GLIBC_([\d.]+)", symbols)}
    assert len(versions) > 5 and max(versions) <= GLIBC_MAX
    assert not re.search(r"GLIBCXX_|CXXABI_|GCC_\d|OPENSSL_", symbols)


def test_the_binary_is_at_most_60_mb(unpacked):
    assert 5 << 20 < (unpacked / "braid").stat().st_size <= BYTES_MAX


def test_the_binary_names_its_version_and_commit(unpacked):
    said = output_of(unpacked / "braid", "version")
    project = (ROOT / "CMakeLists.txt").read_text()
    version = re.search(r"^project\(braid VERSION (\S+)", project, re.M)[1]
    commit = output_of("git", "-C", ROOT, "rev-parse", "--short=12", "HEAD").strip()
    assert re.fullmatch(rf"braid {re.escape(version)} \(commit {commit}(-dirty)?\)\n", said), said


def test_the_binary_prints_the_notices_that_lie_beside_it(unpacked):
    assert output_of(unpacked / "braid", "licences") == (unpacked / "NOTICES").read_text()


def linked_archives():
    """Each static library that the linker took something from, and the members it took."""
    taken = {}
    linked = (DIST / "braid.map").read_text()
    for path, member in re.findall(r"^(/\S+\.a)\(([^)]+)\)$", linked, re.M):
        taken.setdefault(pathlib.Path(path), set()).add(member)
    return taken


def test_every_linked_library_of_the_system_is_in_the_notices(unpacked):
    notices = (unpacked / "NOTICES").read_text()
    sources = set(re.findall(r"Debian package (\S+)", notices))
    ours = {"libfmt.a": "libfmt-dev", "libspdlog.a": "libspdlog-dev",
            "libprometheus-cpp-core.a": "prometheus-cpp-dev"}
    # The compiler's libraries have their copyright file in the package that all of it depends on.
    compiler = {"libstdc++-12-dev": "gcc-12-base", "libgcc-12-dev": "gcc-12-base"}
    archives = [path for path in linked_archives() if ROOT / "build" not in path.parents]
    owners = set()
    for path in archives:
        found = output_of("dpkg-query", "-S", f"*/{path.name}").splitlines()
        packages = {line.split(":")[0] for line in found if line.endswith(str(path.resolve()))}
        assert packages, f"no package has {path}"
        owners |= {compiler.get(package, package) for package in packages}
    owners |= {ours[path.name] for path in linked_archives() if path.name in ours}
    assert {"libssl-dev", "libboost-json1.81-dev", "gcc-12-base", *ours.values()} <= owners
    assert owners <= sources, owners - sources


def test_every_linked_rust_crate_is_in_the_notices(unpacked):
    notices = (unpacked / "NOTICES").read_text()
    known = {name.replace("-", "_")
             for name in re.findall(r"^  (\S+) \S+ \(Rust crate", notices, re.M)}
    library = notices[notices.index("Copyright notices for The Rust Standard Library"):]
    members = linked_archives()[ROOT / "build/rust/release/libbraid_text.a"]
    crates = {found[1] for member in members
              if (found := re.match(r"(\w+)-[0-9a-f]{16}\.", member))}
    of_library = {"std", "core", "alloc", "panic_unwind", "unwind", "compiler_builtins",
                  "std_detect"}
    of_library |= {name.replace("-", "_") for name in
                   re.findall(r"^📦 (\S+)-\d\S*$", library, re.M)}
    assert len(crates) > 20
    missing = crates - known - of_library - {"braid_text"}
    assert not missing, missing


def test_every_package_of_the_page_is_in_the_notices(unpacked):
    notices = (unpacked / "NOTICES").read_text()
    bundled = re.findall(r"^(\S+) \S+ \(npm", (ROOT / "web/dist/NOTICES").read_text(), re.M)
    assert "preact" in bundled
    for name in bundled:
        assert re.search(rf"^  {re.escape(name)} \S+ \(npm", notices, re.M), name


def test_packing_again_gives_the_same_bytes(archive):
    before = archive.read_bytes()
    subprocess.run([ROOT / "scripts/pack_dist.sh", ROOT / "build/release/braid_dist", DIST],
                   check=True, stdout=subprocess.DEVNULL)
    assert archive.read_bytes() == before

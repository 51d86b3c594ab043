#!/usr/bin/env python3
"""Collects the licences of all that is linked into `make dist`: notices.py --output FILE.

Four kinds of parts: Debian packages (their copyright files), Rust crates (what `cargo tree` says is
linked), Rust's standard library (the toolchain's notices) and the packages bundled into the page
(web/dist/NOTICES). Equal texts are printed once. A part without a licence is an error.
"""

import argparse
import html.parser
import json
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TARGET = "x86_64-unknown-linux-gnu"
COMMON = pathlib.Path("/usr/share/common-licenses")
# The Debian packages that braid_dist links or whose headers it includes. tests/dist compares this
# with the linker's map.
PACKAGES = {
    "gcc-12-base": "libstdc++ and libgcc",
    "libboost-json1.81-dev": "Boost: Asio, Beast, JSON",
    "libc6-dev": "the parts of the GNU C library that every program links",
    "libcli11-dev": "CLI11",
    "libfmt-dev": "fmt",
    "libspdlog-dev": "spdlog",
    "libssl-dev": "OpenSSL",
    "libvulkan-dev": "the headers of Vulkan",
    "libvulkan-volk-dev": "volk",
    "prometheus-cpp-dev": "prometheus-cpp",
}
# Boost's file lists 2 MB of names for parts that are not used; those used have one licence.
ONLY_LICENCE = {"libboost-json1.81-dev": "BSL-1.0"}
# The licence chosen where a crate offers several and ships no text; the first that is offered.
PREFERRED = ("Apache-2.0", "MIT", "BSD-2-Clause", "Zlib")
LICENCE_FILES = re.compile(r"(?i)^(un)?licen[cs]e|^copying|^notice|^copyright")


class Text(html.parser.HTMLParser):
    """The text of a page, a line per block."""

    BLOCKS = {"p", "div", "h1", "h2", "h3", "h4", "li", "ul", "pre", "summary", "details"}

    def __init__(self, page):
        super().__init__()
        self.parts, self.skipped, self.verbatim = [], 0, 0
        self.feed(page)
        text = "".join(self.parts)
        self.text = re.sub(r"\s*\n\s*\n\s*\n+", "\n\n", text).strip() + "\n"

    def handle_starttag(self, tag, attrs):
        self.skipped += tag in ("style", "title")
        self.verbatim += tag == "pre"
        if tag in self.BLOCKS:
            self.parts.append("\n")

    def handle_endtag(self, tag):
        self.skipped -= tag in ("style", "title")
        self.verbatim -= tag == "pre"
        if tag in self.BLOCKS:
            self.parts.append("\n")

    def handle_data(self, data):
        if not self.skipped:
            self.parts.append(data if self.verbatim else re.sub(r"\s+", " ", data))


def fail(message):
    sys.exit(f"notices.py: {message}")


def output_of(*command):
    return subprocess.run(command, cwd=ROOT / "rust", check=True, stdout=subprocess.PIPE,
                          text=True).stdout


def rust_folder():
    return pathlib.Path(output_of("rustc", "--print", "sysroot").strip())


def rust_documents():
    return rust_folder() / "share/doc/rust"


def package_text(package):
    path = pathlib.Path("/usr/share/doc") / package / "copyright"
    if not path.exists():
        fail(f"{path} is missing; scripts/setup.sh build installs the package")
    text = path.read_text(errors="replace")
    name = ONLY_LICENCE.get(package)
    if name is None:
        return text
    found = re.search(rf"^License: {re.escape(name)}\n((?: .*\n)+)", text, re.M)
    if not found:
        fail(f"{path} has no paragraph 'License: {name}'")
    return f"License: {name}\n{found[1]}"


def packages():
    for package, what in sorted(PACKAGES.items()):
        version = output_of("dpkg-query", "-W", "-f=${Version}", package)
        yield f"{what} (Debian package {package} {version})", [package_text(package)]


def crates(cargo):
    """Name and version of each crate that is linked, with its folder and SPDX expression."""
    tree = output_of(cargo, "tree", "--locked", "--edges", "normal,no-proc-macro", "--target",
                     TARGET, "--prefix", "none", "--format", "{p}")
    linked = {tuple(line.split()[:2]) for line in tree.splitlines() if line}
    metadata = json.loads(output_of(cargo, "metadata", "--locked", "--format-version", "1",
                                    "--filter-platform", TARGET))
    for package in sorted(metadata["packages"], key=lambda each: (each["name"], each["version"])):
        is_linked = (package["name"], "v" + package["version"]) in linked
        if is_linked and package["name"] != "braid_text":  # that is Braid itself
            yield package


def crate_texts(package):
    folder = pathlib.Path(package["manifest_path"]).parent
    files = sorted(path for path in folder.iterdir()
                   if path.is_file() and LICENCE_FILES.search(path.name))
    if files:
        return [path.read_text(errors="replace") for path in files]
    # Some crates name their licence and leave the text out.
    standard = rust_documents() / "licenses"
    offered = re.split(r"\s+OR\s+|/", package["license"] or "")
    for name in PREFERRED:
        if name in offered and (standard / f"{name}.txt").exists():
            authors = ", ".join(package["authors"]) or f"the authors of {package['name']}"
            return [f"Copyright: {authors}\n", (standard / f"{name}.txt").read_text()]
    fail(f"{package['name']} has no licence file, and its licence is {package['license']!r}")


def standard_library():
    """(title, texts) of Rust's standard library. Its own notices leave out some of the crates that
    it is linked with; those stand in the notices of the whole toolchain."""
    folder = rust_documents()
    if not (folder / "COPYRIGHT-library.html").exists():
        fail(f"{folder}/COPYRIGHT-library.html is missing; rustup installs it with the toolchain")
    page = (folder / "COPYRIGHT-library.html").read_text()
    libraries = (rust_folder() / "lib/rustlib" / TARGET / "lib").glob("lib*-*.rlib")
    names = {re.match(r"lib(.+)-", path.name)[1].replace("_", "-") for path in libraries}
    listed = re.compile(r"<h3>📦 ((.+)-\d.*)</h3>")
    names -= {name.replace("_", "-") for _, name in listed.findall(page)}
    found = {}  # by name: the section of the newest version, which is the last
    for section in re.split(r"(?=<h3>📦 )", (folder / "COPYRIGHT.html").read_text())[1:]:
        name = listed.match(section)[2].replace("_", "-")
        if name in names:
            found[name] = Text(section.split("</div>")[0]).text
    texts = [Text(page).text, *found.values()]
    yield f"Rust's standard library ({output_of('rustc', '--version').strip()})", texts


def parts(cargo):
    """(title, texts) of everything that is linked."""
    yield "Braid", [(ROOT / "LICENSE").read_text()]
    yield from packages()
    yield from standard_library()
    for package in crates(cargo):
        title = f"{package['name']} {package['version']} (Rust crate, {package['license']})"
        yield title, crate_texts(package)
    page = ROOT / "web/dist/NOTICES"
    for section in page.read_text().split("\n\f\n"):
        title, text = section.strip().split("\n", 1)
        yield f"{title} (in the page)", [text]


def common_licences(texts):
    """The texts that Debian's copyright files only point to."""
    named = set(re.findall(rf"{COMMON}/([\w.-]*\w)", "\n".join(texts)))
    for name in sorted(named):
        if (COMMON / name).exists():
            yield f"{COMMON}/{name}", [(COMMON / name).read_text()]


def render(entries):
    """One section per distinct text, with the titles of all that it belongs to."""
    owners = {}
    for title, texts in entries:
        for text in texts:
            text = "\n".join(line.rstrip() for line in text.strip("\n\f").splitlines())
            owners.setdefault(text, []).append(title)
    lines = ["This program contains the following works. Their licences follow.", ""]
    lines += [f"  {title}" for title, _ in entries]
    for text, titles in owners.items():
        lines += ["", "=" * 80, *dict.fromkeys(titles), "=" * 80, "", text]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    entries = list(parts(os.environ.get("CARGO", "cargo")))
    entries += common_licences([text for _, texts in entries for text in texts])
    text = render(entries)
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(text)
    print(f"{arguments.output}: {len(entries)} works, {len(text)} characters")


if __name__ == "__main__":
    main()

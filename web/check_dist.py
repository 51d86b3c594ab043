#!/usr/bin/env python3
"""Checks that web/dist/index.html was built from the sources beside it; exits 1 and says why not.

Needs no node: the page names the hash of its sources and, in its policy, the hashes of its script
and style. It also holds the page to loading nothing from another host.
"""

import base64
import hashlib
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent
# Names, not addresses: XML namespaces, and pages that the libraries' own messages mention.
NAMES = re.compile(r"https?://(www\.w3\.org/[\w/.]+|github\.com/(highlightjs|cfworker)\b[\w/.-]*)")
# An address names a host; a scheme alone is a word of the code that finds links in text.
ADDRESS = re.compile(r"https?://\w[^\s\"'`<>)]*")


def sources_hash():
    """The same list and framing as in build.mjs: name, NUL, bytes, NUL; sorted by name."""
    names = [path.relative_to(ROOT).as_posix() for path in (ROOT / "src").rglob("*")
             if path.is_file()]
    names += ["build.mjs", "notices.mjs", "package.json", "package-lock.json"]
    digest = hashlib.sha256()
    for name in sorted(names):
        digest.update(name.encode() + b"\0" + (ROOT / name).read_bytes() + b"\0")
    return digest.hexdigest()


def problems(page):
    built = re.search(r"<!-- sources sha256:([0-9a-f]{64}) -->", page)
    if not built:
        yield "it does not name the hash of its sources"
    elif built[1] != sources_hash():
        yield "it was built from other sources than those in web/"
    for tag in ("script", "style"):
        bodies = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        named = re.search(rf"{tag}-src 'sha256-([^']+)'", page)
        if len(bodies) != 1 or not named:
            yield f"it must hold one inline <{tag}> and its hash in the policy"
            continue
        digest = hashlib.sha256(bodies[0].encode()).digest()
        if base64.b64encode(digest).decode() != named[1]:
            yield f"its <{tag}> is not the one that the policy names: edited by hand?"
    for address in set(ADDRESS.findall(NAMES.sub("", page))):
        yield f"it names another host: {address}"


def main():
    path = ROOT / "dist" / "index.html"
    found = list(problems(path.read_text(encoding="utf-8"))) if path.exists() else ["it is missing"]
    for problem in found:
        print(f"web/dist/index.html: {problem}")
    if found:
        print("build it again: cd web && npm ci && npm run build")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

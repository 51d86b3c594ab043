#!/usr/bin/env python3
"""Runs the archive of `make dist` in bare roots of Debian 12 and 13.

    roots.py [--folder FOLDER] [--mirror URL] [--suite NAME]...

Needs root, debootstrap and a network for the first run: the roots are kept in FOLDER (by default
build/dist/roots). Each is `debootstrap --variant=minbase`: the base system and apt. In a copy the
archive is unpacked; the binary must say its version, print its notices, answer a prompt of
braid-tiny and serve it to this machine, plain and over TLS, also beside an openssl.cnf that it
could not use, and end at SIGTERM with 0.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
import threading
import urllib.request
from contextlib import contextmanager

ROOT = pathlib.Path(__file__).resolve().parents[2]
DIST = ROOT / "build/dist"
SUITES = ("bookworm", "trixie")  # Debian 12 and 13
START_SECONDS, STOP_SECONDS, STEP_SECONDS = 120, 60, 300
# Of another OpenSSL: with it, everything that reads the configuration fails.
HOSTILE_CONFIG = """config_diagnostics = 1
openssl_conf = all
[all]
providers = list
[list]
other = other_section
[other_section]
module = /nonexistent/of-another-version.so
activate = 1
"""


def need(condition, message):
    if not condition:
        sys.exit(f"FAILED: {message}")
    print(f"  ok: {message}", flush=True)


def base_of(suite, folder, mirror):
    base = folder / suite
    if not (base / "etc/os-release").exists():
        partial = folder / f"{suite}.partial"
        shutil.rmtree(partial, ignore_errors=True)
        print(f"debootstrap {suite} from {mirror}", flush=True)
        subprocess.run(["debootstrap", "--variant=minbase", suite, partial, mirror], check=True,
                       stdout=subprocess.DEVNULL)
        shutil.rmtree(partial / "var/cache/apt/archives")
        partial.rename(base)
    return base


class Root:
    """A copy of a base with the archive in /opt/braid and the model in /opt/braid-tiny."""

    def __init__(self, base, path, archive):
        self.path = path
        subprocess.run(["cp", "-a", base, path], check=True)
        (path / "opt/braid").mkdir()
        subprocess.run(["tar", "-xf", archive, "-C", path / "opt/braid", "--strip-components=1"],
                       check=True)
        shutil.copytree(ROOT / "models/braid-tiny", path / "opt/braid-tiny")

    def command(self, *words):
        # env -i: nothing of this machine's environment, no library path.
        return ["chroot", str(self.path), "/usr/bin/env", "-i", "PATH=/usr/bin:/bin", *words]

    def output_of(self, *words):
        done = subprocess.run(self.command("/opt/braid/braid", *words), capture_output=True,
                              text=True, timeout=STEP_SECONDS)
        if done.returncode != 0:
            sys.exit(f"FAILED: braid {' '.join(words)}: {done.returncode}: {done.stderr}")
        return done.stdout

    @contextmanager
    def serving(self, *flags):
        """The address of `braid serve`, which must end at SIGTERM with 0."""
        process = subprocess.Popen(
            self.command("/opt/braid/braid", "serve", "/opt/braid-tiny", "--port", "0", *flags),
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        timer = threading.Timer(START_SECONDS, process.kill)
        timer.start()
        try:
            log, found = "", None
            while not found and (line := process.stdout.readline()):
                log += line
                found = re.search(r"listening on (https?://\S+?)/?\s", line)
            timer.cancel()
            if not found:
                sys.exit(f"FAILED: braid serve did not start:\n{log}")
            threading.Thread(target=process.stdout.read, daemon=True).start()
            yield found[1]
            process.send_signal(signal.SIGTERM)
            need(process.wait(STOP_SECONDS) == 0, "the server ends at SIGTERM with 0")
        finally:
            timer.cancel()
            if process.poll() is None:
                process.kill()
                process.wait()


def complete(address, context=None):
    """What the server answers to the question; asked from outside of the root."""
    body = {"messages": [{"role": "user", "content": "How much is 62 + 12?"}], "temperature": 0,
            "max_tokens": 40}
    request = urllib.request.Request(f"{address}/v1/chat/completions", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=STEP_SECONDS, context=context) as answer:
        return json.load(answer)["choices"][0]["message"]["content"]


def make_certificate(folder):
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                    "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=braid",
                    "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate],
                   check=True, capture_output=True)
    return certificate


def check_tls(root):
    certificate = make_certificate(root.path / "opt")
    context = ssl.create_default_context(cafile=certificate)
    flags = ("--tls-cert", "/opt/certificate.pem", "--tls-key", "/opt/key.pem")
    with root.serving(*flags) as address:
        need(address.startswith("https://") and "74" in complete(address, context),
             "it serves over TLS")


def check_root(root, version):
    present = [name for name in ("libssl.so.3", "libfmt.so.9", "libspdlog.so.1.10",
                                 "libboost_json.so.1.81.0")
               if list(root.path.glob(f"usr/lib/x86_64-linux-gnu/{name}"))]
    print(f"  libraries of the ordinary build that the root has: {present or 'none'}")
    need(root.output_of("version") == version, f"it says {version.strip()!r}")
    notices = (root.path / "opt/braid/NOTICES").read_text()
    need(root.output_of("licences") == notices, "it prints its notices")
    answer = root.output_of("run", "/opt/braid-tiny", "How much is 62 + 12?", "--temperature", "0")
    need("74" in answer, "braid run answers")
    with root.serving() as address:
        need("74" in complete(address), "braid serve answers a client outside of the root")
        with urllib.request.urlopen(f"{address}/", timeout=60) as page:
            need(b"<!doctype html>" in page.read(200), "the page is there")
        with urllib.request.urlopen(f"{address}/metrics", timeout=60) as metrics:
            need(b"braid:" in metrics.read(), "the metrics are there")
    check_tls(root)
    config = root.path / "usr/lib/ssl/openssl.cnf"
    config.parent.mkdir(parents=True, exist_ok=True)
    config.unlink(missing_ok=True)  # Debian's is a link to /etc/ssl
    config.write_text(HOSTILE_CONFIG)
    print("  with an openssl.cnf that fails:")
    check_tls(root)


def configured_mirror():
    return subprocess.run([ROOT / "scripts/debian_mirror.sh"], check=True, capture_output=True,
                          text=True).stdout.strip()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=pathlib.Path, default=DIST / "roots")
    parser.add_argument("--mirror", default=os.environ.get("DIST_MIRROR") or configured_mirror())
    parser.add_argument("--suite", action="append", choices=SUITES)
    arguments = parser.parse_args()
    if os.geteuid() != 0 or not shutil.which("debootstrap"):
        sys.exit("this needs root and debootstrap (scripts/setup.sh dist)")
    version = subprocess.run([DIST / "braid", "version"], check=True, capture_output=True,
                             text=True).stdout
    archive = DIST / f"braid-{version.split()[1]}-{os.uname().machine}-linux.tar.gz"
    arguments.folder.mkdir(parents=True, exist_ok=True)
    for suite in arguments.suite or SUITES:
        base = base_of(suite, arguments.folder, arguments.mirror)
        with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
            print(f"{suite}:", flush=True)
            check_root(Root(base, pathlib.Path(folder) / "root", archive), version)
    print("the archive runs in bare roots of " + ", ".join(arguments.suite or SUITES))


if __name__ == "__main__":
    main()

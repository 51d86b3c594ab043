#!/usr/bin/env python3
"""Carries out the Dockerfile in debootstrap chroots, for machines that cannot build images.

Needs root, debootstrap and a network. Each stage becomes a folder below --folder; the last one is
started as the image would be, its health check must pass, /v1/models must answer and SIGTERM must
end it with 0. Knows the instructions that our Dockerfile uses and stops at any other. A chroot
shares the machine's network: --port replaces the Dockerfile's port where that is taken.
"""

import argparse
import json
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass, field

ROOT = pathlib.Path(__file__).resolve().parent.parent
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PORT = "8000"
START_SECONDS = 120
STOP_SECONDS = 60


@dataclass
class Stage:
    root: pathlib.Path
    env: dict
    workdir: str = "/"
    user: str = "root"
    settings: dict = field(default_factory=dict)  # ENTRYPOINT, CMD, HEALTHCHECK: lists of words


def instructions(text):
    """(WORD, rest) of each instruction, with continued lines joined."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        word, rest = line.split(maxsplit=1)
        yield word, rest


def context_files():
    """What `COPY .` sees: files that git tracks and .dockerignore lets through."""
    rules = (ROOT / ".dockerignore").read_text().splitlines()
    allowed = [rule[1:] for rule in rules if rule.startswith("!")]
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True)
    for name in listed.stdout.decode().split("\0"):
        if any(name == rule or name.startswith(rule + "/") for rule in allowed):
            yield name


def make_context(folder):
    for name in context_files():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target)


class Builder:
    """Owns the folders and the mounts below them; `close` takes the mounts away."""

    def __init__(self, folder, env, host_paths):
        self.folder = folder
        self.env = {"PATH": PATH, "HOME": "/", "LANG": "C.UTF-8", **env}
        self.host_paths = host_paths
        self.stages = {}
        self.mounts = []
        self.context = folder / "context"
        for stale in [self.context, *folder.glob("stage-*")]:
            shutil.rmtree(stale, ignore_errors=True)
        make_context(self.context)

    def close(self):
        for mount in self.mounts:
            subprocess.run(["umount", mount], check=True)

    def base(self, image):
        suite = image.removeprefix("debian:").removesuffix("-slim")
        base = self.folder / f"base-{suite}"
        if not (base / "etc/os-release").exists():
            subprocess.run(["debootstrap", "--variant=minbase", suite, base], check=True)
        for path in self.host_paths:
            target = base / path.relative_to("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, target)
        return base

    def begin(self, rest):
        image, *name = rest.split(" AS ")
        root = self.folder / f"stage-{len(self.stages)}"
        subprocess.run(["cp", "-a", self.base(image), root], check=True)
        shutil.copy2("/etc/resolv.conf", root / "etc/resolv.conf")
        subprocess.run(["mount", "-t", "proc", "proc", root / "proc"], check=True)
        self.mounts.append(root / "proc")
        stage = Stage(root, dict(self.env))
        self.stages[name[0] if name else str(len(self.stages))] = stage
        return stage

    def run(self, stage, words, **options):
        """Starts words in the stage, with its user, folder and environment."""
        env = [f"{name}={value}" for name, value in stage.env.items()]
        shell = f"cd {shlex.quote(stage.workdir)} && exec {shlex.join(words)}"
        command = ["chroot", f"--userspec={stage.user}", stage.root, "/usr/bin/env", "-i", *env,
                   "/bin/sh", "-c", shell]
        return subprocess.Popen(command, **options)

    def copy(self, stage, rest):
        *options, source, target = rest.split()
        origin = self.context
        if options:
            origin = self.stages[options[0].removeprefix("--from=")].root
        source = origin / source.lstrip("/")
        target = stage.root / os.path.join(stage.workdir, target).lstrip("/")
        if source.is_dir():
            shutil.copytree(source, target, dirs_exist_ok=True)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)

    def carry_out(self, stage, word, rest):
        if word == "WORKDIR":
            stage.workdir = rest
            (stage.root / rest.lstrip("/")).mkdir(parents=True, exist_ok=True)
        elif word == "ARG":
            name, value = rest.split("=", 1)
            stage.env.setdefault(name, value)
        elif word == "ENV":
            name, value = rest.split("=", 1)
            stage.env[name] = value
        elif word == "COPY":
            self.copy(stage, rest)
        elif word == "RUN":
            if self.run(stage, ["/bin/sh", "-c", rest]).wait() != 0:
                sys.exit(f"failed: RUN {rest}")
        elif word == "USER":
            stage.user = rest
        elif word in ("ENTRYPOINT", "CMD"):
            stage.settings[word] = json.loads(rest)
        elif word == "HEALTHCHECK":
            stage.settings[word] = json.loads(rest.split("CMD", 1)[1])
        elif word not in ("EXPOSE", "STOPSIGNAL"):
            sys.exit(f"this script does not know the instruction {word}")


def try_image(builder, stage, port):
    """Starts the last stage, waits for its health check, asks it, stops it."""
    with_port = lambda words: [port if word == PORT else word for word in words]
    start = time.monotonic()
    words = stage.settings["ENTRYPOINT"] + stage.settings["CMD"]
    server = builder.run(stage, with_port(words))
    try:
        check = with_port(stage.settings["HEALTHCHECK"])
        while builder.run(stage, check, stderr=subprocess.DEVNULL).wait() != 0:
            if server.poll() is not None or time.monotonic() - start > START_SECONDS:
                sys.exit(f"the server did not become healthy (exit status {server.poll()})")
            time.sleep(0.2)
        print(f"healthy after {time.monotonic() - start:.1f} s", flush=True)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models") as answer:
            print(answer.read().decode())
        server.send_signal(signal.SIGTERM)
        status = server.wait(STOP_SECONDS)
        if status != 0:
            sys.exit(f"exit status {status} after SIGTERM")
        print("stopped by SIGTERM with exit status 0")
    finally:
        if server.poll() is None:
            server.kill()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=pathlib.Path, required=True, help="some GB of space")
    parser.add_argument("--port", default=PORT)
    parser.add_argument("--env", action="append", default=[], metavar="NAME=VALUE",
                        help="for the RUN steps, e.g. where a proxy's certificates are")
    parser.add_argument("--host-file", action="append", default=[], type=pathlib.Path,
                        help="copied from this machine to the same path in each stage")
    args = parser.parse_args()
    if os.geteuid() != 0 or not shutil.which("debootstrap"):
        sys.exit("this needs root and debootstrap")
    env = dict(pair.split("=", 1) for pair in args.env)
    builder = Builder(args.folder.resolve(), env, args.host_file)
    stage = None
    try:
        for word, rest in instructions((ROOT / "Dockerfile").read_text()):
            start = time.monotonic()
            print(f"{word} {rest}", flush=True)
            if word == "FROM":
                stage = builder.begin(rest)
            else:
                builder.carry_out(stage, word, rest)
            print(f"  {time.monotonic() - start:.1f} s", flush=True)
        try_image(builder, stage, args.port)
        subprocess.run(["du", "-shx", stage.root], check=True)
    finally:
        builder.close()


if __name__ == "__main__":
    main()

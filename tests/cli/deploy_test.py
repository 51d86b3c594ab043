"""What stands in deploy/: every metric of the dashboard exists, the unit's command line works,
image and unit use the binary of `make dist`."""

import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import threading
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
from serving import serving  # noqa: E402


def test_every_metric_of_the_dashboard_exists():
    dashboard = json.loads((ROOT / "deploy/grafana/braid.json").read_text())
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    expressions += [variable["query"] for variable in dashboard["templating"]["list"]]
    named = set(re.findall(r"braid:\w+", " ".join(expressions)))
    assert len(named) > 20 and len(dashboard["panels"]) > 12
    with serving() as served:
        body = json.dumps({"prompt": "Once", "max_tokens": 3}).encode()
        urllib.request.urlopen(urllib.request.Request(
            f"{served.address}/v1/completions", body, {"Content-Type": "application/json"})).read()
        text = urllib.request.urlopen(f"{served.address}/metrics").read().decode()
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    exist = {re.match(r"[\w:]+", line)[0]: line for line in lines}
    assert named <= set(exist), named - set(exist)
    by_name = {}
    for line in lines:
        by_name.setdefault(re.match(r"[\w:]+", line)[0], []).append(line)
    # The labels that a panel sums by.
    for expression in expressions:
        for labels, name in re.findall(r"by \(([\w, ]+)\) \((?:rate\()?(braid:\w+)", expression):
            for label in labels.split(", "):
                assert any(f'{label}="' in line for line in by_name[name]), (name, label)


def test_the_units_command_line_is_understood(braid, tiny):
    unit = (ROOT / "deploy/systemd/braid.service").read_text()
    options = re.search(r'^Environment=BRAID_OPTIONS="(.*)"$', unit, re.M)[1]
    command = re.search(r"^ExecStart=\S+ (.*)$", unit, re.M)[1]
    words = shlex.split(command.replace("${BRAID_MODEL}", str(tiny))
                        .replace("$BRAID_OPTIONS", options.replace("--port 8000", "--port 0")))
    process = subprocess.Popen([
        os.environ.get("BRAID_BIN", ROOT / "build/release/braid"), *words], text=True,
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout.readline().startswith("listening on ")
    process.terminate()
    assert process.wait(30) == 0
    assert "--drain-seconds" not in options
    stop = int(re.search(r"^TimeoutStopSec=(\d+)$", unit, re.M)[1])
    assert stop > 30, "systemd waits longer than the default of --drain-seconds"


def test_the_image_and_the_unit_have_the_binary_of_make_dist():
    *building, last = (ROOT / "Dockerfile").read_text().split("\nFROM ")
    assert "--target dist" in "".join(building)
    assert "COPY --from=build /braid/build/dist/braid /usr/local/bin/braid\n" in last
    packages = re.search(r"install --yes --no-install-recommends ([^&]*)&&", last)[1].split()
    assert packages == ["libucx0", "libzmq5"], "what it loads when it is asked for, no more"
    listed = re.findall(r"^test (\S+)$", (ROOT / "scripts/packages.txt").read_text(), re.M)
    assert set(packages) <= set(listed), "the tests run with the same"
    for name in ("compose", "disaggregated"):
        images = re.findall(r"image: (\S+)", (ROOT / f"deploy/compose/{name}.yaml").read_text())
        assert set(images) == {"braid"}, "the image has all that they need"
    unit = (ROOT / "deploy/systemd/braid.service").read_text()
    install = "install -m 755 build/dist/braid /usr/local/bin/\n"
    assert "ExecStart=/usr/local/bin/braid " in unit
    assert install in (ROOT / "deploy/README.md").read_text()


def test_the_images_build_sees_every_file_that_is_embedded():
    sys.path.insert(0, str(ROOT / "deploy"))
    import try_dockerfile
    seen = set(try_dockerfile.context_files())
    embedded = {path.relative_to(ROOT).as_posix() for path in ROOT.glob("tests/configs/*.json")}
    for rules in [*ROOT.glob("src/*/module.cmake"), *ROOT.glob("cmake/*.cmake")]:
        for path in re.findall(r"^ *braid_embed\(\w+ ([\w./-]+) ", rules.read_text(), re.M):
            embedded.add(path)
    assert len(embedded) > 10 and embedded <= seen, embedded - seen


def test_no_service_of_a_cluster_sets_a_flag(braid, tiny):
    # What Kubernetes tells pods of a service called braid, unless they do not ask for it.
    done = braid("serve", tiny, env={"BRAID_PORT": "tcp://10.0.0.1:80"}, timeout=60)
    assert done.returncode == 2 and "--port: tcp://10.0.0.1:80 is not" in done.stderr
    for path in (ROOT / "deploy/kubernetes").glob("*.yaml"):
        manifest = path.read_text()
        pods = manifest.count("      containers:\n")
        assert pods > 0 and manifest.count("      enableServiceLinks: false\n") == pods, path.name


def test_what_clients_connect_to_listens_until_the_cluster_knows_that_it_ends():
    for name in ("braid", "fleet", "disaggregated", "picker"):
        manifest = (ROOT / f"deploy/kubernetes/{name}.yaml").read_text()
        for document in manifest.split("\n---\n"):
            deployment = re.search(r"kind: Deployment\nmetadata:\n  name: (\S+)\n", document)
            if not deployment or deployment[1] not in ("braid", "braid-router", "braid-picker"):
                continue
            waits = int(re.search(r'preStop: {exec: {command: \[sleep, "(\d+)"', document)[1])
            drains = int(re.search(r'--drain-seconds, "(\d+)"', document)[1])
            grace = int(re.search(r"terminationGracePeriodSeconds: (\d+)", document)[1])
            assert 0 < waits and waits + drains < grace, (name, deployment[1])


def arguments(manifest, name):
    """The command line of a deployment's container."""
    (document,) = [text for text in manifest.split("\n---\n")
                   if f"kind: Deployment\nmetadata:\n  name: {name}\n" in text]
    listed = re.search(r"args: \[([^]]*)\]", document)[1]
    return [word.strip().strip('"') for word in listed.split(",")]


class Running:
    """A process that prints where it listens."""

    def __init__(self, words):
        self.log = []
        self.process = subprocess.Popen(
            [os.environ.get("BRAID_BIN", ROOT / "build/release/braid"), *map(str, words)],
            text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        for line in self.process.stdout:
            self.log.append(line)
            if match := re.search(r"listening on http://\S+:(\d+)", line):
                self.port = int(match[1])
                break
        threading.Thread(target=lambda: self.log.extend(self.process.stdout), daemon=True).start()

    def get(self, path, body=None, key=None):
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
        return urllib.request.urlopen(urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}", body, headers), timeout=60).read().decode()


def wait_until(condition):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.1)


def test_the_command_lines_of_the_disaggregated_fleet_work_together(tmp_path, tiny):
    manifest = (ROOT / "deploy/kubernetes/disaggregated.yaml").read_text()
    readme = (ROOT / "deploy/README.md").read_text()
    (tmp_path / "keys.json").write_text(re.search(r"^echo '(.*)' > keys.json$", readme, re.M)[1])
    (tmp_path / "engine.key").write_text("ENGINE-KEY\n")
    (tmp_path / "handoff.key").write_text("0123456789abcdef" * 2)
    (tmp_path / "router.json").write_text(re.search(r"router.json: \|\n *(.*)", manifest)[1])
    # Names inside the cluster, and mounted files, as they are on this machine.
    here = {"0.0.0.0": "127.0.0.1", "8000": "0", "8080": "0", "0.0.0.0:7000": "127.0.0.1:0",
            "/models/braid-tiny": tiny}
    small = ["--threads", 1, "--max-model-len", 700, "--memory", "600M"]

    def words(name):
        return [here.get(word, word.replace("/etc/braid-router", str(tmp_path))
                         .replace("/etc/braid", str(tmp_path)))
                for word in arguments(manifest, name)]

    running = []
    try:
        router = Running(words("braid-router"))
        running.append(router)
        here["http://braid-router:8080"] = f"http://127.0.0.1:{router.port}"
        prefill = Running([*words("braid-prefill"), *small])
        running.append(prefill)
        decode = Running([*words("braid-decode"), *small])
        running.append(decode)
        wait_until(lambda: any("paired with the prefill engine" in line for line in decode.log))
        body = json.dumps({"prompt": list(range(5, 205)), "max_tokens": 2}).encode()
        assert '"length"' in router.get("/v1/completions", body, "CLIENT-KEY")
        wait_until(lambda: re.search(r'handoffs_total{[^}]*end="done"[^}]*} 1',
                                     decode.get("/metrics")))
    finally:
        for one in running:
            one.process.terminate()
        assert [one.process.wait(60) for one in running] == [0] * len(running)
    # Engines reach the router before it is ready, which it is only once they are.
    assert re.search(r"name: braid-router\nspec:\n  clusterIP: None\n"
                     r"  publishNotReadyAddresses: true", manifest)


def test_the_health_check_of_the_image_says_when_the_server_is_ready():
    dockerfile = (ROOT / "Dockerfile").read_text()
    assert "HEALTHCHECK" in dockerfile and 'CMD ["braid-is-ready", "8000"]' in dockerfile
    script = ROOT / "deploy/is_ready.sh"
    with serving() as served:
        assert subprocess.run([script, str(served.port)], timeout=60).returncode == 0
        port = served.port
    gone = subprocess.run([script, str(port)], capture_output=True, timeout=60)
    assert gone.returncode != 0

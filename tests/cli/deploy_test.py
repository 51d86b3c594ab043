"""What stands in deploy/: every metric of the dashboard exists, the unit's command line works,
image and unit use the binary of `make dist`."""

import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
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


def test_the_health_check_of_the_image_says_when_the_server_is_ready():
    dockerfile = (ROOT / "Dockerfile").read_text()
    assert "HEALTHCHECK" in dockerfile and 'CMD ["braid-is-ready", "8000"]' in dockerfile
    script = ROOT / "deploy/is_ready.sh"
    with serving() as served:
        assert subprocess.run([script, str(served.port)], timeout=60).returncode == 0
        port = served.port
    gone = subprocess.run([script, str(port)], capture_output=True, timeout=60)
    assert gone.returncode != 0

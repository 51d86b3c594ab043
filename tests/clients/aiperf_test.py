"""The load generator aiperf: every request answered, tokens counted, our metrics read."""

import json
import os
import pathlib
import subprocess
import sys

from serving import ROOT


def test_aiperf_measures_a_server(base_url, tmp_path):
    command = [pathlib.Path(sys.executable).with_name("aiperf"), "profile", "--ui", "none",
               "--url", base_url, "--model", "braid-tiny", "--endpoint-type", "chat", "--streaming",
               "--tokenizer", ROOT / "models/braid-tiny", "--concurrency", "4",
               "--request-count", "20", "--isl", "100", "--osl", "20", "--use-server-token-count",
               "--extra-inputs", "ignore_eos:true", "--no-gpu-telemetry",
               "--output-artifact-dir", tmp_path]
    # Offline it takes no folder for a tokenizer.
    environment = {name: value for name, value in os.environ.items() if name != "HF_HUB_OFFLINE"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "profile_export_aiperf.json").read_text())
    assert found["request_count"]["avg"] == 20 and not found.get("error_summary")
    assert found["output_sequence_length"]["avg"] == 20
    assert 0 < found["time_to_first_token"]["avg"] <= found["request_latency"]["avg"]
    assert found["output_token_throughput"]["avg"] > 0

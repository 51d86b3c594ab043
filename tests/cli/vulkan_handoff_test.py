"""Prompts computed on one device and answered on another: the answers of one engine, also when a
partner is killed."""

import concurrent.futures
import contextlib
import signal

import pytest

from handoff_test import (decoding, handoff_port, metric, no_pages_are_used, post, prefilling,
                          prompt, until)  # fmt: skip
from serving import serving
from vulkan_test import vulkan  # noqa: F401

DEVICE = ["--device", "vulkan", "--kv-dtype", "fp32", "--memory", "200M", "--max-model-len",
          "2048"]  # fmt: skip
REQUESTS = [
    {"prompt": prompt(1, 150), "temperature": 0, "logprobs": 2, "max_tokens": 6},
    {"prompt": prompt(1, 150), "temperature": 0.9, "seed": 4, "max_tokens": 6},
    {"prompt": prompt(2, 64), "temperature": 0.9, "seed": 8, "n": 2, "max_tokens": 6},
]  # fmt: skip


def ask(served, body):
    return post(served.port, body, timeout=300)  # a software driver on a busy machine


@pytest.fixture(scope="module")
def wanted(vulkan):  # noqa: F811
    with serving("--draft", "off", *DEVICE) as alone:
        return [ask(alone, body) for body in REQUESTS]


@pytest.mark.parametrize("draft", ["off", "3"])
def test_two_devices_answer_as_one(wanted, draft):
    flags = [*DEVICE, "--draft", draft]
    with prefilling(*flags) as prefill, decoding([prefill], *flags) as decode:
        for engine in (prefill, decode):
            assert "copies of pages between engines" in "".join(engine.log)
        assert [ask(decode, body) for body in REQUESTS] == wanted
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            assert list(pool.map(lambda body: ask(decode, body), REQUESTS)) == wanted
        assert metric(decode, "handoffs_total", 'end="failed"') == 0
        until(lambda: metric(decode, "handoffs_total", 'end="done"') >= 3)
        assert metric(prefill, "handoff_bytes_total") > 0
        no_pages_are_used(prefill, decode)


def test_a_device_whose_partner_is_killed_computes_the_prompt_itself(wanted):
    body = {"prompt": prompt(5, 300), "temperature": 0, "max_tokens": 4}
    with contextlib.ExitStack() as stack:
        prefill = stack.enter_context(
            serving("--role", "prefill", "--handoff-listen", "127.0.0.1:0", "--draft", "off",
                    *DEVICE, may_be_killed=True))  # fmt: skip
        decode = stack.enter_context(decoding([prefill], *DEVICE))
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            answer = pool.submit(ask, decode, body)
            until(lambda: metric(prefill, "num_requests_running") == 1)
            prefill.process.send_signal(signal.SIGKILL)
            answer = answer.result()
        until(lambda: metric(decode, "handoff_partners") == 0)
        assert ask(decode, body) == answer
        assert ask(decode, REQUESTS[0]) == wanted[0]
        no_pages_are_used(decode)


def test_a_device_and_a_cpu_do_not_pair_and_say_why(vulkan):  # noqa: F811
    with prefilling("--kv-dtype", "fp32", "--compute", "fp32") as prefill:
        where = f"127.0.0.1:{handoff_port(prefill)}"
        with serving("--role", "decode", "--prefill", where, "--draft", "off", *DEVICE) as decode:
            until(lambda: "refuses this engine: --device is" in "".join(decode.log))
            assert metric(decode, "handoff_partners") == 0

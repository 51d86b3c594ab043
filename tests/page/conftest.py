"""What the page tests share: a server, Debian's Chromium, and a fresh page for each test.

The server is $BRAID_BASE_URL where that is set, else $BRAID_BIN serving models/braid-tiny. (While
the page is being changed: BRAID_BASE_URL of web/dev_fake_server.py.)
"""

import os
import pathlib
import re
import shutil
import subprocess
import threading

import pytest
from playwright.sync_api import sync_playwright

ROOT = pathlib.Path(__file__).resolve().parents[2]
START_SECONDS = 120
CHROMIUM_FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking",
                  "--disable-component-update", "--disable-sync"]


def start_braid(binary):
    """Starts the binary on a free port; returns the process and the address that it prints."""
    command = [binary, "serve", str(ROOT / "models/braid-tiny"), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    timer = threading.Timer(START_SECONDS, process.kill)
    timer.start()
    seen = []
    for line in process.stdout:
        seen.append(line)
        match = re.search(r"listening on (http://\S+)", line)
        if match:
            timer.cancel()
            # The rest is read and dropped, so that a full pipe never stops the server.
            threading.Thread(target=lambda: list(process.stdout), daemon=True).start()
            return process, match[1].rstrip("/")
    timer.cancel()
    pytest.exit(f"{' '.join(command)} did not start:\n{''.join(seen)}", returncode=1)


@pytest.fixture(scope="session")
def base_url():
    address = os.environ.get("BRAID_BASE_URL")
    if address:
        yield address.rstrip("/")
        return
    binary = os.environ.get("BRAID_BIN")
    if not binary:
        pytest.exit("set BRAID_BIN to the braid binary or BRAID_BASE_URL to a server", returncode=1)
    process, address = start_braid(binary)
    yield address
    process.terminate()
    try:
        process.wait(timeout=30)
    except subprocess.TimeoutExpired:
        process.kill()
        pytest.fail("braid serve did not stop within 30 s of SIGTERM")


@pytest.fixture(scope="session")
def browser():
    chromium = shutil.which("chromium")
    if not chromium:
        pytest.exit("chromium is missing: apt-get install chromium", returncode=1)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=CHROMIUM_FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser, base_url):
    """open_page(width, scheme) opens a page with storage of its own, ready or not.

    At the end of the test no script may have failed and no other host may have been asked.
    """
    contexts = []
    problems = []

    def look(request):
        if not request.url.startswith((base_url, "data:")):
            problems.append(f"the page asked {request.url}")

    def open_it(width=1280, scheme="light", before=None):
        context = browser.new_context(viewport={"width": width, "height": 800},
                                      color_scheme=scheme, reduced_motion="reduce")
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(30_000)
        page.on("request", look)
        page.on("pageerror", lambda error: problems.append(f"a script failed: {error}"))
        page.on("console", lambda line: problems.append(line.text)
                if "Content Security Policy" in line.text else None)
        if before:
            before(page)
        page.goto(base_url + "/")
        return page

    yield open_it
    for context in contexts:
        context.close()
    assert not problems, problems


@pytest.fixture
def ready_page(open_page):
    """The same, with the server's readiness seen by the page."""

    def open_ready(*args, **kwargs):
        page = open_page(*args, **kwargs)
        page.wait_for_selector('[data-testid="model-name"][data-phase="ready"]')
        return page

    return open_ready

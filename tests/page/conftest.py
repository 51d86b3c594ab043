"""What the page tests share: a server, Debian's Chromium, and a fresh page for each test.

The server is $BRAID_BASE_URL where that is set, else $BRAID_BIN serving models/braid-tiny. (While
the page is being changed: BRAID_BASE_URL of web/dev_fake_server.py, or BRAID_PAGE, a bundle that is
shown in place of the server's.)
"""

import os
import pathlib
import shutil
import sys

import pytest
from playwright.sync_api import sync_playwright

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from serving import addresses  # noqa: E402

CHROMIUM_FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking",
                  "--disable-component-update", "--disable-sync"]


@pytest.fixture(scope="session")
def base_url():
    yield from addresses()


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

    At the end of the test no script may have failed, unless the test expects it, and no other host
    may have been asked.
    """
    contexts = []
    problems = []

    def open_it(width=1280, scheme="light", before=None, url=base_url, expect_errors=False):
        context = browser.new_context(viewport={"width": width, "height": 800},
                                      color_scheme=scheme, reduced_motion="reduce")
        contexts.append(context)
        if "BRAID_PAGE" in os.environ:
            context.route(url + "/", lambda route: route.fulfill(path=os.environ["BRAID_PAGE"]))
        page = context.new_page()
        page.set_default_timeout(10_000)
        page.on("request", lambda request: None if request.url.startswith((url, "data:", "blob:"))
                else problems.append(f"the page asked {request.url}"))
        if not expect_errors:
            page.on("pageerror", lambda error: problems.append(f"a script failed: {error}"))
        page.on("console", lambda line: problems.append(line.text)
                if "Content Security Policy" in line.text else None)
        if before:
            before(page)
        page.goto(url + "/")
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

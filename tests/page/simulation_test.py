"""The page that `braid simulate cluster --html` writes: light and dark, wide and narrow."""

import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = os.environ.get("BRAID_BIN", str(ROOT / "build/release/braid"))


@pytest.fixture(scope="module")
def front(tmp_path_factory):
    path = tmp_path_factory.mktemp("simulation") / "front.html"
    subprocess.run([BINARY, "simulate", "cluster", ROOT / "tests/configs/qwen3_5_35b_a3b.json",
                    "--hardware", "h200", "--engines", "4", "--load", "sharegpt", "--rate",
                    "10,20,40", "--minutes", "0.2", "--html", path],
                   check=True, capture_output=True)  # fmt: skip
    return path


@pytest.mark.parametrize("scheme, ground", [("light", "rgb(255, 255, 255)"),
                                            ("dark", "rgb(17, 24, 39)")])
@pytest.mark.parametrize("width", [1280, 390])
def test_plots_are_drawn_within_the_page(browser, front, scheme, ground, width):
    context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
    page = context.new_page()
    problems = []
    page.on("request", lambda request: None if request.url.startswith("file:")
            else problems.append(request.url))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto(front.as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == ground
    plots = page.locator("figure svg")
    assert plots.count() == 6
    for at in range(plots.count()):
        # Every line has a colour of its own and stays inside its plot.
        drawn = plots.nth(at).evaluate("""svg => [...svg.querySelectorAll("polyline")].map(line => {
            const box = line.getBBox(), all = svg.viewBox.baseVal;
            return [getComputedStyle(line).stroke, box.width > 0, box.x >= 0 && box.y >= 0 &&
                    box.x + box.width <= all.width && box.y + box.height <= all.height];
        })""")
        assert len({colour for colour, *_ in drawn}) == len(drawn) > 0
        assert all(wide and inside for _, wide, inside in drawn)
    assert page.locator("tr").count() == 4
    if width == 1280:  # plots stand side by side
        boxes = [plots.nth(at).bounding_box() for at in range(2)]
        assert boxes[0]["y"] == boxes[1]["y"]
    context.close()
    assert not problems

"""What a model writes: Markdown, code and mathematics as elements, and nothing that runs."""

import pytest
from chatting import answer_with, ask, finish, growing, last_answer
from playwright.sync_api import expect

RICH = r"""# Title

Text with **bold**, *emphasis*, ~~struck~~, `code`, [a link](https://example.org/a?b=c) and
https://example.org/plain.

## Part

1. first
2. second
   - inner

> A quote.

| left | right |
|:-----|------:|
| a    | 12    |

Inline $E = mc^2$, \(a_1\), and

$$\frac{1}{2}$$

```python
def f(x):
    return "text"  # note
```

---

The price is $5 and then $6."""


def shown(page, text):
    answer_with(page, text)
    ask(page, "x")
    finish(page)
    return last_answer(page).get_by_test_id("answer-text")


def test_markdown_becomes_elements(ready_page):
    page = ready_page()
    answer = shown(page, RICH)
    for selector, text in (("h1", "Title"), ("h2", "Part"), ("strong", "bold"), ("em", "emphasis"),
                           ("s", "struck"), ("p > code", "code"), ("ol > li >> nth=0", "first"),
                           ("ol ul li", "inner"), ("blockquote", "A quote."),
                           ("th >> nth=1", "right"), ("td >> nth=1", "12"),
                           ("figure figcaption span >> nth=0", "python"),
                           (".hljs-keyword >> nth=0", "def"), (".hljs-comment", "# note")):
        expect(answer.locator(selector)).to_have_text(text)
    assert answer.locator("hr").count() == 1
    cell = answer.locator("td").nth(1)
    assert cell.evaluate("cell => getComputedStyle(cell).textAlign") == "right"
    assert "The price is $5 and then $6." in answer.inner_text()


def test_links_open_elsewhere_and_tell_nothing(ready_page):
    answer = shown(ready_page(), RICH)
    links = answer.locator("a")
    assert [link.get_attribute("href") for link in links.all()] == [
        "https://example.org/a?b=c", "https://example.org/plain"]
    for link in links.all():
        assert link.get_attribute("target") == "_blank"
        assert set(link.get_attribute("rel").split()) >= {"noopener", "noreferrer"}


def test_images_are_links_and_are_not_loaded(ready_page):
    answer = shown(ready_page(), "![a cat](https://example.org/cat.png)")
    expect(answer.locator("a")).to_have_text("a cat")
    assert answer.locator("a").get_attribute("href") == "https://example.org/cat.png"
    assert answer.locator("img").count() == 0


def test_mathematics_is_mathml(ready_page):
    answer = shown(ready_page(), RICH)
    assert answer.locator("math").count() == 3
    block = answer.locator("math[display=block]")
    assert block.count() == 1 and block.locator("mfrac").count() == 1
    first = answer.locator("math").first
    assert first.evaluate("element => element.namespaceURI").endswith("MathML")
    box = block.locator("mfrac").bounding_box()
    assert box["height"] > 20  # it is drawn as a fraction


def test_bad_mathematics_is_shown_as_it_is(ready_page):
    answer = shown(ready_page(), r"Before $\frac{1$ and $\unknown{2}$ after")
    assert "Before" in answer.inner_text() and "after" in answer.inner_text()


PAYLOADS = [
    "<script>window.hit = 1</script>",
    "<img src=x onerror='window.hit = 1'>",
    "<svg onload='window.hit = 1'><animate onbegin='window.hit = 1' attributeName=x dur=1s></svg>",
    "<svg><script>window.hit = 1</script></svg>",
    "<iframe srcdoc='<script>parent.hit = 1</script>'></iframe>",
    "<a href='javascript:window.hit = 1'>click</a>",
    "<math><mi xlink:href='javascript:window.hit = 1'>x</mi></math>",
    "<style>body { display: none }</style><p style='position: fixed; inset: 0'>x</p>",
    "<form action='https://example.org'><input name=a><button formaction=x>b</button></form>",
    "<details open ontoggle='window.hit = 1'>x</details>",
    "[click](javascript:window.hit=1)",
    "[click](JaVaScRiPt&#58;window.hit=1)",
    "[click](vbscript:x) [click](data:text/html,<script>window.hit=1</script>)",
    "![image](https://example.org/track.png) ![image](javascript:window.hit=1)",
    "![a](x\"onerror=\"window.hit=1)",
    "[x](https://example.org/\"onmouseover=\"window.hit=1)",
    "```html\n<img src=x onerror='window.hit = 1'>\n```",
    "```\"><img/src=x/onerror=window.hit=1>\ncode\n```",
    r"$\href{javascript:window.hit=1}{x}$ $\url{javascript:window.hit=1}$",
    r"$\htmlData{a=b}{x}$ $\includegraphics{https://example.org/a.png}$ $\class{a}{\style{b}{x}}$",
    r"$\fcolorbox{red}{blue}{x}$",  # KaTeX gives it a style
    "$$\\text{<img src=x onerror=window.hit=1>}$$",
    "| a |\n|---|\n| <img src=x onerror=window.hit=1> |",
    "<https://example.org/><javascript:window.hit=1>",
    "[x]: javascript:window.hit=1\n\n[x]",
    "<p id=app>clobber</p><a name=body id=cookie>x</a>",
]

# Elements with a handler, a style, a script's address, or of a kind that does not belong there.
FOREIGN = """(answer) => [...answer.querySelectorAll('*')].filter((element) =>
    element.matches(`script, img, iframe, object, embed, style, link, form, input, video, audio,
                     details, base, meta, template, annotation, annotation-xml, foreignObject`)
    || (element.localName === 'svg' && !element.classList.contains('icon'))
    || [...element.attributes].some(({name, value}) => /^on|^style$|^id$|^name$|^srcdoc$/.test(name)
        || (/href|src|action/.test(name) && !/^(https?|mailto):/.test(value))))
    .map((element) => element.outerHTML)"""


@pytest.mark.parametrize("live", [False, True], ids=["whole", "streamed"])
def test_nothing_that_a_model_writes_runs(ready_page, live):
    page = ready_page()
    text = "\n\n".join(PAYLOADS)
    if live:
        growing(page)
        ask(page, "x")
        for start in range(0, len(text), 40):
            page.evaluate("(text) => window.feed(text)", text[start:start + 40])
        page.evaluate("window.end()")
        finish(page)
    else:
        answer_with(page, text)
        ask(page, "x")
        finish(page)
    answer = last_answer(page).get_by_test_id("answer-text")
    assert answer.evaluate(FOREIGN) == []
    for link in answer.locator("a").all():
        link.hover()
    page.wait_for_timeout(200)
    assert page.evaluate("window.hit") is None
    assert answer.locator("pre").first.inner_text() == "<img src=x onerror='window.hit = 1'>"
    for tag in ("<script>window.hit = 1</script>", "<p id=app>clobber</p>"):  # they stay text
        assert tag in answer.inner_text()
    expect(page.get_by_test_id("composer")).to_be_visible()


def test_the_policy_allows_no_script_and_no_host_but_the_servers(ready_page):
    page = ready_page()
    policy = page.locator("meta[http-equiv=Content-Security-Policy]").get_attribute("content")
    assert "unsafe" not in policy and "://" not in policy and "*" not in policy
    assert "default-src 'none'" in policy and "script-src 'sha256-" in policy


def test_a_growing_answer_changes_in_place(ready_page):
    page = ready_page()
    growing(page)
    ask(page, "x")
    page.evaluate("window.feed('# Title\\n\\nA paragraph.\\n\\n```js\\nlet a = 1;\\n')")
    answer = last_answer(page).get_by_test_id("answer-text")
    expect(answer.locator("pre")).to_contain_text("let a")
    page.evaluate("""() => {
      const answer = document.querySelector('[data-testid=answer-text]');
      window.kept = [...answer.querySelectorAll('h1, p, pre, figure, figcaption button')];
      const selection = getSelection();
      selection.selectAllChildren(answer.querySelector('p'));
    }""")
    page.evaluate("window.feed('let b = 2;\\n```\\n\\n- item\\n')")
    expect(answer.locator("li")).to_have_text("item")
    assert page.evaluate("window.kept.length === 5 && window.kept.every((one) => one.isConnected)")
    assert page.evaluate("getSelection().toString()") == "A paragraph."
    page.evaluate("window.end()")
    finish(page)
    assert page.evaluate("window.kept.every((one) => one.isConnected)")


def test_a_list_that_begins_makes_no_heading_of_the_line_before(ready_page):
    page = ready_page()
    growing(page)
    ask(page, "x")
    page.evaluate("window.feed('Things:\\n-')")
    answer = last_answer(page).get_by_test_id("answer-text")
    expect(answer).to_contain_text("Things:")
    assert answer.locator("h1, h2").count() == 0
    page.evaluate("window.feed(' one'); window.end()")
    finish(page)
    expect(answer.locator("li")).to_have_text("one")


def test_code_is_copied_without_its_markup(ready_page):
    page = ready_page()
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    shown(page, "```python\nif a < b:\n    pass\n```")
    page.get_by_label("Copy code").click()
    assert page.evaluate("navigator.clipboard.readText()") == "if a < b:\n    pass"


def test_a_long_answer_of_everything_stays_quick(ready_page):
    page = ready_page()
    answer = shown(page, (RICH + "\n\n") * 60)
    assert answer.locator("h1").count() == 60

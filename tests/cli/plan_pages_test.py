"""What docs/plans says that braid plan prints is what it prints."""

import pathlib
import re
import shlex

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BLOCKS = [(page.name, block)
          for page in sorted((ROOT / "docs/plans").glob("*.md"))
          for block in re.findall(r"```console\n(.*?)```", page.read_text(), re.S)]


def test_every_page_has_commands():
    pages = {page.name for page in (ROOT / "docs/plans").glob("*.md")} - {"README.md"}
    assert {page for page, _ in BLOCKS} == pages and len(pages) == 3


@pytest.mark.parametrize("page,block", BLOCKS)
def test_a_block_is_what_the_command_prints(braid, monkeypatch, page, block):
    monkeypatch.chdir(ROOT)
    command, *lines = block.splitlines()
    assert command.startswith("$ braid plan ") and lines, page
    done = braid(*shlex.split(command.removeprefix("$ braid ")))
    assert done.returncode == 0, done.stderr
    printed = iter(done.stdout.splitlines())
    for line in lines:  # in this order, with others between them
        assert line in printed, f"{page}: {command} does not print {line!r}"

"""`braid cache`: what a directory of pages holds, beside a server that uses it and without one; and
`--cache-key-file`."""

import http.client
import json
import pathlib
import shutil
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from disk_tier_test import ask, metric, prompts, settle  # noqa: E402
from serving import serving  # noqa: E402

FLAGS = ("--max-model-len", "2048")


@pytest.fixture
def cache(braid):
    """Runs `braid cache NAME DIR`; what its JSON says, or its output."""
    def run(name, directory, *flags, code=0, text=False):
        result = braid("cache", name, directory, *flags, *(() if text else ("--json",)))
        assert result.returncode == code, result.stderr + result.stdout
        return result.stdout + result.stderr if text else json.loads(result.stdout)
    return run


def test_a_directory_is_listed_checked_and_cleared_beside_its_server(cache, braid, tmp_path):
    pages = tmp_path / "pages"
    with serving("--cache-dir", str(pages), *FLAGS) as server:
        answer = ask(server.port, prompts(1)[0])[0]
        settle(server.port)
        rows = cache("ls", pages)["segments"]
        assert len(rows) == 1 and rows[0]["written_to"] and rows[0]["known"]
        assert rows[0]["tokens"] == 384 and rows[0]["states"] >= 1
        assert rows[0]["bytes"] >= metric(server.port, "braid:tier_written_bytes_total")
        stat = cache("stat", pages)["fingerprints"]
        assert len(stat) == 1 and "--kv-dtype: " in stat[0]["lines"]
        verified = cache("verify", pages)
        assert verified["damaged"] == 0 and verified["parts"] >= 7
        # A server's own segment stays; it is the server's to clear.
        assert cache("clear", pages) == {"removed": 0, "bytes": 0, "kept": 1}
        assert "POST /flush_cache" in cache("clear", pages, text=True)
        connection = http.client.HTTPConnection("localhost", server.port, timeout=30)
        connection.request("POST", "/flush_cache")
        assert connection.getresponse().status == 200
        assert cache("ls", pages)["segments"] == []
        assert ask(server.port, prompts(1)[0])[0] == answer
    # Other numbers: another fingerprint, told apart by name.
    with serving("--cache-dir", str(pages), "--kv-dtype", "int8", *FLAGS) as server:
        ask(server.port, prompts(1)[0])
        settle(server.port)
    stat = {row["fingerprint"]: row["lines"] for row in cache("stat", pages)["fingerprints"]}
    assert len(stat) == 2
    foreign = next(name for name, lines in stat.items() if "--kv-dtype: i8" in lines)
    text = cache("stat", pages, text=True)
    assert foreign in text and "  --kv-dtype: i8" in text and "written by" not in text
    # Several segments are summed up, and cleared together.
    rows = cache("ls", pages)["segments"]
    copy = tmp_path / "copy"
    shutil.copytree(pages, copy)
    held = sum(row["bytes"] for row in rows)
    assert json.loads(braid("cache", "stat", copy, "--json").stdout)["bytes"] == held
    assert cache("verify", copy)["parts"] >= 14
    assert cache("clear", copy) == {"removed": 2, "bytes": held, "kept": 0}
    # A flipped bit is found.
    segment = next(p for p in pages.glob("*.pages") if not p.name.startswith(foreign))
    whole = segment.read_bytes()
    segment.write_bytes(bytes([whole[0] ^ 1]) + whole[1:])
    assert cache("verify", pages, code=1)["damaged"] == 1
    assert "1 of" in cache("verify", pages, code=1, text=True)
    assert cache("clear", pages, "--fingerprint", foreign)["removed"] == 1
    assert [row["fingerprint"] for row in cache("stat", pages)["fingerprints"]] != [foreign]
    assert cache("clear", pages)["removed"] == 1
    assert list(pages.iterdir()) == [], "the lines of fingerprints are gone, too"


def test_files_that_are_damaged_or_cannot_be_read_are_named(cache, tmp_path):
    pages = tmp_path / "pages"
    with serving("--cache-dir", str(pages), *FLAGS) as server:
        ask(server.port, prompts(1)[0])
        settle(server.port)
    (index,) = pages.glob("*.index")
    whole = index.read_bytes()
    assert cache("verify", pages)["segments"] == []
    entry = 64 + 5
    for bytes_of_it, why in [
            (whole[:entry] + bytes([whole[entry] ^ 1]) + whole[entry + 1:], "1 of"),
            (whole[:30], "ends too early"), (b"x" + whole[1:], "its header is damaged"),
            (b"", "ends too early")]:  # fmt: skip
        index.write_bytes(bytes_of_it)
        (segment,) = cache("verify", pages, code=1)["segments"]
        assert segment["fault"].startswith(f"{index}: ") and why in segment["fault"]
        said = cache("verify", pages, code=1, text=True)
        assert f"braid cache verify: {index}: " in said and "as they were written" not in said
    index.unlink()
    assert f"{index}: No such file" in cache("verify", pages, code=1, text=True)
    index.mkdir()  # it cannot be read, nor removed as a file is
    assert f"{index}: " in cache("verify", pages, code=1, text=True)
    assert cache("clear", pages, code=1)["removed"] == 0
    assert f"braid cache clear: {index}: " in cache("clear", pages, code=1, text=True)
    index.rmdir()
    assert cache("clear", pages)["removed"] == 1


def test_segments_of_several_servers_are_summed_up(cache, tmp_path):
    pages = tmp_path / "pages"
    with (serving("--cache-dir", str(pages), *FLAGS) as one,
          serving("--cache-dir", str(pages), *FLAGS) as other):  # fmt: skip
        for server, prompt in zip((one, other), prompts(2)):
            ask(server.port, prompt)
            settle(server.port)
        (stat,) = cache("stat", pages)["fingerprints"]
        assert stat["segments"] == stat["written_to"] == 2
        rows = cache("ls", pages)["segments"]
        for figure in ("bytes", "tokens", "states"):
            assert stat[figure] == sum(row[figure] for row in rows) > 0, figure


def test_a_directory_that_is_not_there_is_named(cache, tmp_path):
    assert str(tmp_path / "none") in cache("ls", tmp_path / "none", code=1, text=True)


def test_pages_are_encrypted_and_another_key_is_an_empty_cache(cache, braid, tiny, tmp_path):
    pages, keys = tmp_path / "pages", [tmp_path / "a.key", tmp_path / "b.key"]
    for i, key in enumerate(keys):
        key.write_text(f"{i + 1:064x}\n")
    prompt = prompts(1)[0]
    answers = set()

    def cached(*flags):
        with serving("--cache-dir", str(pages), *FLAGS, *flags) as server:
            answer, usage = ask(server.port, prompt)
            answers.add(json.dumps(answer))
            settle(server.port)
            return usage["prompt_tokens_details"]["cached_tokens"], "".join(server.log)

    tokens, log = cached("--cache-key-file", str(keys[0]))
    assert tokens == 0
    row = cache("ls", pages)["segments"][0]
    assert len(row["key"]) == 16 and row["key"] not in keys[0].read_text()
    assert cache("verify", pages)["damaged"] == 0  # without the key
    tokens, log = cached("--cache-key-file", str(keys[0]))
    assert tokens == 384 and keys[0].read_text().strip() not in log
    tokens, log = cached("--cache-key-file", str(keys[1]))
    assert tokens == 0 and log.count("encrypted with key") == 1
    tokens, log = cached()
    assert tokens == 0 and log.count("encrypted with key") == 1
    assert len(answers) == 1
    for flags, message in [(("--cache-key-file", keys[0]), "name one with --cache-dir"),
                           (("--cache-dir", pages, "--cache-key-file", tiny / "config.json"),
                            "openssl rand -hex 32"),
                           (("--cache-dir", pages, "--cache-key-file", pages / "no"), "no")]:
        result = braid("run", tiny, "a", "--raw", *flags)
        assert result.returncode != 0 and message in result.stderr


def test_a_conversation_goes_to_another_machine_as_a_file(cache, braid, tiny, tmp_path):
    here, there, file = tmp_path / "here", tmp_path / "there", tmp_path / "conversation.pages"
    prompt = prompts(1)[0]
    body = tmp_path / "request.json"
    body.write_text(json.dumps({"prompt": prompt}))

    def export(*flags):
        return braid("cache", "export", here, file, "--prefix", body, "--model", tiny, *flags)

    def imports(to, what=file):
        return braid("cache", "import", to, what)

    with serving("--cache-dir", str(here), *FLAGS) as server:
        answer = ask(server.port, prompt)[0]
        settle(server.port)
        exported = export("--json")
        assert exported.returncode == 0, exported.stderr
        assert json.loads(exported.stdout)["tokens"] == 384
    there.mkdir()
    assert "start one with --cache-dir" in imports(there).stderr
    with serving("--cache-dir", str(there), *FLAGS):
        pass
    assert imports(there).returncode == 0
    assert cache("verify", there)["damaged"] == 0
    with serving("--cache-dir", str(there), *FLAGS) as server:
        got, usage = ask(server.port, prompt)
        assert got == answer and usage["prompt_tokens_details"]["disk_tokens"] == 384
    # Other numbers are refused by name, and so is damage; nothing of it stays.
    other = tmp_path / "other"
    with serving("--cache-dir", str(other), "--kv-dtype", "int8", *FLAGS):
        pass
    refused = imports(other)
    assert refused.returncode == 1 and "--kv-dtype is" in refused.stderr
    assert "i8 in the directory" in refused.stderr
    clear = cache("clear", there)
    assert clear["kept"] == 0
    assert "start one with --cache-dir" in imports(there).stderr
    with serving("--cache-dir", str(there), *FLAGS):
        assert cache("clear", there)["removed"] == 0  # a server has its lines
        assert imports(there).returncode == 0
    assert cache("clear", there)["removed"] == 1
    with serving("--cache-dir", str(there), *FLAGS):
        pass
    whole = file.read_bytes()
    bad = tmp_path / "bad.pages"
    for at in [*range(0, 200, 13), *range(200, len(whole), len(whole) // 20)]:
        bad.write_bytes(whole[:at])
        assert imports(there, bad).returncode == 1, at
        bad.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1:])
        assert imports(there, bad).returncode == 1, at
        assert cache("ls", there)["segments"] == []
    # What the directory has not, and what is not asked for completely.
    assert "no pages that begin" in export("--tenant", "somebody").stderr
    assert "--prefix is needed" in braid("cache", "export", here, file, "--model", tiny).stderr


def test_an_encrypted_conversation_stays_encrypted(cache, braid, tiny, tmp_path):
    here, there, file = tmp_path / "here", tmp_path / "there", tmp_path / "conversation.pages"
    key = tmp_path / "key"
    key.write_text("5" * 64)
    flags = ("--cache-key-file", str(key), *FLAGS)
    prompt = prompts(1)[0]
    (tmp_path / "request.json").write_text(json.dumps({"prompt": prompt}))
    export = ("cache", "export", here, file, "--prefix", tmp_path / "request.json", "--model", tiny)
    with serving("--cache-dir", str(here), *flags) as server:
        answer = ask(server.port, prompt)[0]
        settle(server.port)
    assert "1 segments need another key" in braid(*export).stderr
    assert braid(*export, "--cache-key-file", key).returncode == 0
    with serving("--cache-dir", str(there), *flags):
        pass
    assert braid("cache", "import", there, file).returncode == 0
    with serving("--cache-dir", str(there), *flags) as server:
        got, usage = ask(server.port, prompt)
        assert got == answer and usage["prompt_tokens_details"]["disk_tokens"] == 384

"""`heddle data prepare`, and the page that describes it."""

import json
import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from heddle.cli.exchange.data import app
from heddle.data import open_prepared
from heddle.errors import HeddleError
from tests.helpers.commands import REPOSITORY

PAGE = REPOSITORY / "docs" / "train/data.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    (tmp_path / "corpus" / "deep").mkdir(parents=True)
    (tmp_path / "corpus" / "a.txt").write_text("the first of the texts\n" * 40)
    (tmp_path / "corpus" / "deep" / "b.txt").write_bytes(b"the other\xff text\n" * 4)
    (tmp_path / "corpus" / "empty.txt").touch()
    lines = [json.dumps({"body": f"document {i} of many"}) for i in range(100)]
    (tmp_path / "corpus" / "c.jsonl").write_text("\n".join(lines))
    return tmp_path


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["prepare", *arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert result.stderr == ""  # no bar where nobody watches
    return result.stdout


def test_a_summary_says_what_was_made(here: Path) -> None:
    shown = run("corpus/**/*.txt", "--tokenizer", "bpe:270", "-o", "made", "--validation", "0.2")
    meta = open_prepared(here / "made").meta
    rows = dict(re.split(r"  +", line.strip(), maxsplit=1) for line in shown.splitlines())
    assert rows == {
        "files": "3",
        "documents": "2 (1 empty, 4 bytes not UTF-8, read as U+FFFD)",
        "tokens": f"{meta.train.tokens:,} to train, {meta.validation.tokens:,} to validate",
        "vocabulary": "270 (bpe:270)",
        "bytes per token": f"{meta.bytes_per_token:.3f}",
        "unigram entropy": f"{meta.unigram_entropy:.3f} nats, the loss of guessing by frequency alone",
        "folder": "made",
    }
    assert meta.source.validation == 0.2


def test_several_patterns_and_a_key(here: Path) -> None:
    run("corpus/*.jsonl", "--key", "body", "-o", "one")
    assert open_prepared(here / "one").meta.source.documents == 100
    shown = CliRunner().invoke(app, ["prepare", "corpus/a.txt", "corpus/deep/b.txt", "-o", "two"])
    assert shown.exit_code == 0
    assert open_prepared(here / "two").meta.source.text == ("corpus/a.txt", "corpus/deep/b.txt")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("nothing/*.txt",), "No file matches 'nothing/"),
        (("corpus/a.txt", "--tokenizer", "byte"), "Did you mean 'bytes'"),
        (("corpus/a.txt", "--validation", "1"), "--validation must be in [0, 1), got 1"),
        (("corpus/c.jsonl",), "has no field 'text'"),
    ],
)
def test_mistakes_are_told(here: Path, arguments: tuple[str, ...], says: str) -> None:
    result = CliRunner().invoke(app, ["prepare", *arguments, "-o", "made"])
    assert isinstance(result.exception, HeddleError)
    assert says in str(result.exception)
    assert not (here / "made").exists()


def test_the_page_works_as_it_is_written(here: Path) -> None:
    blocks = BLOCK.findall(PAGE.read_text(encoding="utf-8"))
    commands = [shlex.split(line) for kind, block in blocks if kind == "sh" for line in block.splitlines() if line]
    assert len(commands) >= 3
    for command in commands:
        assert command[:3] == ["heddle", "data", "prepare"]
        run(*command[3:])
    scripts = [block for kind, block in blocks if kind == "python"]
    assert scripts
    rows = [{"instruction": "Add.", "input": "1 + 1", "output": "2"}, {"instruction": "Hi", "input": "", "output": "!"}]
    (here / "alpaca_data.json").write_text(json.dumps(rows))
    names: dict[str, object] = {}
    for script in scripts:
        exec(compile(script, str(PAGE), "exec"), names)


def test_the_page_names_every_key_of_the_description(here: Path) -> None:
    run("corpus/a.txt", "-o", "made")
    page = PAGE.read_text(encoding="utf-8")

    def keys(table: dict[str, object]) -> set[str]:
        inner = [keys(value) for value in table.values() if isinstance(value, dict)]
        return set(table).union(*inner)

    described = keys(json.loads((here / "made" / "data.json").read_text()))
    assert {key for key in described if f"`{key}`" not in page} == set()


def test_look_shows_what_is_learned_and_what_is_left_out(here: Path) -> None:
    pytest.importorskip("transformers")
    good = {"messages": [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}]}
    rows = [good, {"prompt": "a"}, {"text": "plain"}, {"messages": good["messages"][:1]}]
    (here / "chats.jsonl").write_text("\n".join(map(json.dumps, rows)))
    command = ["look", "chats.jsonl", "--tokenizer", "bytes", "--template", "chatml", "--sequence", "20"]
    result = CliRunner().invoke(app, command, catch_exceptions=False)
    assert result.exit_code == 0
    assert "<|im_start|>assistant\n⟦4<|im_end|>\n⟧" in result.stdout
    assert "⟦plain<|endoftext|>⟧" in result.stdout
    assert "chats.jsonl, line 1: 12 of 66 tokens are learned" in result.stdout
    assert re.search(r"samples +2 *\n", result.stdout)
    assert re.search(r"longer than 20 +1, cut", result.stdout)
    assert re.search(r"left out +1 × has a prompt, but no completion; first: chats.jsonl, line 2", result.stdout)
    strict = CliRunner().invoke(app, [*command, "--strict"])
    assert isinstance(strict.exception, HeddleError)
    assert strict.exception.what == "chats.jsonl, line 2 has a prompt, but no completion."


def test_conversations_can_be_prepared_ahead(here: Path) -> None:
    pytest.importorskip("transformers")
    rows = [{"instruction": f"say {i}", "output": str(i)} for i in range(20)]
    (here / "chats.jsonl").write_text("\n".join(map(json.dumps, rows)))
    shown = run("chats.jsonl", "--chat", "--template", "chatml", "-o", "made")
    assert re.search(r"learned +\d+ to train", shown)
    assert open_prepared(here / "made").meta.chat.rows == 20

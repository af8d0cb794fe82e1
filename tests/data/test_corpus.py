"""Files become documents: all of them, in one order, and nothing is passed over without a word."""

import io
import json
import os
import resource
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heddle.data import corpus as room
from heddle.data.corpus import CorpusTally, find_corpus
from heddle.errors import HeddleError
from tests.helpers.commands import REPOSITORY, blocks


def write(folder: Path, **files: str | bytes) -> None:
    for name, content in files.items():
        path = folder / name.replace("__", "/").replace("_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)


def refused(text: str | tuple[str, ...], base: Path, key: str = "text") -> HeddleError:
    with pytest.raises(HeddleError) as caught:
        list(find_corpus(text, base, key).documents())
    assert caught.value.why
    assert caught.value.hint
    return caught.value


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a.txt", ["a.txt"]),
        ("*.txt", ["a.txt", "b.txt"]),
        ("**/*.txt", ["a.txt", "b.txt", "deep/c.txt", "deep/er/d.txt"]),
        ("deep/**", ["deep/c.txt", "deep/er/d.txt", "deep/er/e.md"]),
        ("d*/*/?.[mt]*", ["deep/er/d.txt", "deep/er/e.md"]),
        (("b.txt", "deep/*.txt", "*.txt"), ["a.txt", "b.txt", "deep/c.txt"]),
        (("b.txt", "./b.txt", "deep/../b.txt"), ["b.txt"]),
    ],
)
def test_patterns_find_files_in_order_and_once(tmp_path: Path, text: str | tuple[str, ...], names: list[str]) -> None:
    write(tmp_path, a_txt="a", b_txt="b", deep__c_txt="c", deep__er__d_txt="d", deep__er__e_md="e")
    write(tmp_path, **{"_hidden.txt": "h"})
    assert list(find_corpus(text, tmp_path).files) == names


def test_an_absolute_pattern_and_a_name_with_brackets_are_found(tmp_path: Path) -> None:
    (tmp_path / "notes[1].txt").write_text("x")
    assert list(find_corpus("notes[1].txt", tmp_path).files) == ["notes[1].txt"]
    elsewhere = find_corpus((f"{tmp_path}/*.txt", "notes[1].txt"), tmp_path)
    assert list(elsewhere.documents()) == ["x"]


def test_a_folder_that_contains_itself_by_a_link_ends(tmp_path: Path) -> None:
    write(tmp_path, deep__a_txt="a")
    (tmp_path / "deep" / "up").symlink_to(tmp_path)
    (tmp_path / "other").symlink_to(tmp_path / "deep")  # a link that is not a circle is followed
    assert list(find_corpus("other/**/*.txt", tmp_path).documents()) == ["a"]


def test_folders_that_link_to_each_other_are_looked_through_once(tmp_path: Path, monkeypatch) -> None:
    """Paths through eight of them that never come back to a folder are more than a hundred thousand."""
    names = [f"n{number}" for number in range(8)]
    for name in names:
        write(tmp_path, **{f"{name}__{name}_txt": name})
        for other in set(names) - {name}:
            (tmp_path / name / other).symlink_to(tmp_path / other)
    looks, children = [], room._children
    monkeypatch.setattr(room, "_children", lambda folder, skipped: looks.append(folder) or children(folder, skipped))
    found = {path.name for path in find_corpus("**/*.txt", tmp_path).files.values()}
    assert found == {f"{name}.txt" for name in names}
    assert len(looks) == 2 * 9  # for the files of each, and for its folders
    looks.clear()
    assert len(find_corpus("**/**/**/**/*.txt", tmp_path).files) == 8
    assert len(looks) == 2 * 9


def test_a_pipe_is_not_called_a_folder(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.txt")
    assert "pipe" in refused("pipe.txt", tmp_path).hint


@pytest.mark.skipif(not os.path.ismount("/proc"), reason="has no /proc")
@pytest.mark.parametrize("pattern", ["/proc/kmsg", "/proc/self/status", "/proc/**/*"])
def test_what_the_kernel_makes_up_is_refused_unread(tmp_path: Path, pattern: str) -> None:
    assert "the kernel's" in refused(pattern, tmp_path).why


def test_stdlib_is_pythons_library_without_what_is_installed_beside_it(tmp_path: Path) -> None:
    files = find_corpus(("stdlib:*.py", "stdlib:json/**/*.py"), tmp_path).files
    assert {"stdlib:argparse.py", "stdlib:json/decoder.py"} <= files.keys()
    assert files["stdlib:argparse.py"] == Path(sysconfig.get_path("stdlib")) / "argparse.py"
    everything = find_corpus("stdlib:**/*.py*", tmp_path).files
    assert not [name for name in everything if "site-packages" in name or "__pycache__" in name]
    assert "'stdlib:site-packages/**'" in refused("stdlib:site-packages/**", tmp_path).what


def test_a_text_file_is_one_document_to_the_letter(tmp_path: Path) -> None:
    write(tmp_path, a_txt="one\r\ntwo\n\n", b_txt=b"\xef\xbb\xbfmarked")
    assert list(find_corpus("*.txt", tmp_path).documents()) == ["one\r\ntwo\n\n", "marked"]


def test_jsonl_is_a_document_a_line(tmp_path: Path) -> None:
    lines = [json.dumps({"body": text, "n": 1}) for text in ("first\u2028one", "", "third\nthree")]
    write(tmp_path, a_jsonl="\n\n".join(lines) + "\n")
    tally = CorpusTally()
    pieces = list(find_corpus("a.jsonl", tmp_path, "body").pieces(tally))
    assert [p.text for p in pieces] == ["first\u2028one", "third\nthree"]
    assert (tally.documents, tally.empty) == (2, 1)
    assert tally.read == (tmp_path / "a.jsonl").stat().st_size


def test_what_is_not_utf8_is_replaced_and_counted_apart_from_real_replacement_characters(
    tmp_path: Path,
) -> None:
    write(tmp_path, a_txt=b"caf\xe9 \xff\xfe " + "\ufffd é".encode(), b_jsonl=b'{"text": "\\ud800 \xe9"}')
    tally = CorpusTally()
    texts = [piece.text for piece in find_corpus("*", tmp_path).pieces(tally)]
    assert texts == ["caf\ufffd \ufffd\ufffd \ufffd é", "\ufffd \ufffd"]
    assert tally.replaced == 5
    assert tally.bytes == sum(len(text.encode()) for text in texts)
    assert tally.characters == sum(map(len, texts))


@settings(max_examples=60, deadline=None)
@given(text=st.text(st.sampled_from("ab1. \n\réß"), min_size=1, max_size=80), size=st.integers(1, 12))
def test_pieces_join_to_the_document_and_stay_small(text: str, size: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(room, "PIECE", size)
        parts = list(room._cut(io.StringIO(text, newline="\n"), Path("a.txt")))
    assert "".join(part for part, _ in parts) == text
    assert all(0 < len(part) <= size for part, _ in parts)
    assert [last for _, last in parts] == [False] * (len(parts) - 1) + [True]


def test_long_documents_are_cut_between_words(tmp_path: Path) -> None:
    words = "word, word\r\n" * (3 * room.PIECE // 12)
    write(tmp_path, a_txt=words)
    pieces = list(find_corpus("a.txt", tmp_path).pieces())
    assert len(pieces) > 2
    assert all(piece.text[0].isspace() for piece in pieces[1:])
    assert list(find_corpus("a.txt", tmp_path).documents()) == [words]


def test_nothing_matches(tmp_path: Path) -> None:
    write(tmp_path, corpus__a_txt="a")
    assert "'corpus/*.text'" in refused("corpus/*.text", tmp_path).what
    assert "a.txt" in refused("corpus/*.text", tmp_path).hint
    assert "Did you mean 'corpus'?" in refused("corpsu/*.txt", tmp_path).hint
    assert "corpus/**/*.txt" in refused("corpus", tmp_path).hint
    assert "empty" in refused("*.txt", tmp_path / "nowhere").hint
    # one pattern of several that finds nothing is a mistake too
    assert "'b.txt'" in refused(("corpus/a.txt", "b.txt"), tmp_path).what


def test_all_files_are_empty(tmp_path: Path) -> None:
    write(tmp_path, a_txt="", b_jsonl='{"text": ""}\n')
    assert "no text in the 2 file(s)" in refused("*", tmp_path).what


def test_a_file_that_vanishes_is_reported(tmp_path: Path) -> None:
    write(tmp_path, a_txt="a")
    corpus = find_corpus("a.txt", tmp_path)
    (tmp_path / "a.txt").unlink()
    with pytest.raises(HeddleError, match=r"a\.txt cannot be read.*\nNo such file"):
        list(corpus.documents())


def test_packed_files_are_refused(tmp_path: Path) -> None:
    write(tmp_path, a_jsonl_gz=b"\x1f\x8b")
    assert "Unpack" in refused("*", tmp_path).hint


@pytest.mark.parametrize("name", ["alpaca_data.json", "rows.csv", "ROWS.TSV", "rows.ndjson"])
def test_records_are_refused_with_what_works(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text('[{"instruction": "Say it.", "input": "", "output": "It."}]')
    for pattern in (name, "*"):
        error = refused(pattern, tmp_path)
        assert f"{name} holds records, not text" in error.what
        assert ".jsonl" in error.hint
        assert ".txt" in error.hint
        assert (f'chat = "{name}"' in error.hint) == (not name.endswith("ndjson"))


def test_the_manual_turns_records_into_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [{"instruction": "Add.", "input": "1, 2", "output": "3"}, {"instruction": "Go.", "input": "", "output": "✓"}]
    Path("alpaca_data.json").write_text(json.dumps(rows))
    code = next(each for each in blocks(REPOSITORY / "docs/train/data.md", "python") if "alpaca" in each)
    exec(code, {})
    assert list(find_corpus("alpaca.jsonl", tmp_path).documents()) == ["Add.\n\n1, 2\n\n3", "Go.\n\n✓"]


@pytest.mark.parametrize(
    ("line", "what", "more"),
    [
        ('{"text": "x"', "line 2 is not valid JSON", "column"),
        ('["text"]', "line 2 is not a JSON object", '["text"]'),
        ('{"texts": "x"}', "line 2 has no field 'text'", "Did you mean 'texts'?"),
        ('{"text": 3}', "line 2: 'text' is not a string", "It is 3."),
        ('{"text": null}', "line 2: 'text' is not a string", "It is null."),
    ],
)
def test_bad_jsonl_lines_are_named(tmp_path: Path, line: str, what: str, more: str) -> None:
    write(tmp_path, a_jsonl=f'{{"text": "fine"}}\n{line}\n')
    error = refused("a.jsonl", tmp_path)
    assert what in error.what
    assert "a.jsonl" in error.what
    assert more in str(error)


def bounded() -> None:
    gib = 1 << 30
    resource.setrlimit(resource.RLIMIT_DATA, (gib, gib))
    resource.setrlimit(resource.RLIMIT_CPU, (20, 20))


@pytest.mark.parametrize(
    ("name", "start", "what", "more"),
    [
        ("a.jsonl", b'{"text": "fine"}\n', "line 2 has more than 67,108,864 characters", ".txt"),
        ("a.jsonl", b'{"text": "fine"}\n{"text": "', "line 2 has more than 67,108,864 characters", ".txt"),
        ("a.txt", b"", "a.txt is not all text", "262,144 NUL"),
        ("a.txt", b"fine\n" * 200_000, "a.txt is not all text", "262,144 NUL"),
    ],
)
def test_an_endless_line_is_refused_in_seconds_and_bounded_memory(
    tmp_path: Path, name: str, start: bytes, what: str, more: str
) -> None:
    (tmp_path / name).write_bytes(start)
    os.truncate(tmp_path / name, 1 << 40)  # a hole of a terabyte: nothing is written
    command = [sys.executable, "-m", "heddle", "data", "prepare", name, "-o", "tokens"]
    ended = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=200, preexec_fn=bounded, check=False
    )
    told = " ".join(ended.stderr.split())
    assert ended.returncode == 2, told
    assert what in told
    assert more in told
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_text_of_one_line_may_be_longer_than_any_line_of_jsonl(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "LONGEST_LINE", 1000)
    line = "a long line " * 100
    write(tmp_path, a_txt=line, b_jsonl=json.dumps({"text": line}), c_jsonl=json.dumps({"text": line[:980]}))
    assert list(find_corpus("a.txt", tmp_path).documents()) == [line]
    assert list(find_corpus("c.jsonl", tmp_path).documents()) == [line[:980]]
    assert "b.jsonl, line 1 has more than 1,000 characters" in refused("b.jsonl", tmp_path).what


def test_an_object_of_many_fields_is_told_in_a_line(tmp_path: Path) -> None:
    write(tmp_path, a_jsonl=json.dumps({f"field-{number}" * 9: number for number in range(30_000)}))
    error = refused("a.jsonl", tmp_path)
    assert "has no field 'text'" in error.what
    assert len(error.hint) < 2000

"""Tokens are made once, found again, and made anew when what they come from changes."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from heddle.data import Prepared, open_prepared, prepare, prepared_for
from heddle.errors import HeddleError
from heddle.spec.job import Data


def documents(path: Path, *texts: str) -> Data:
    path.write_text("".join(json.dumps({"text": text, "title": text.upper()}) + "\n" for text in texts))
    return Data(text=path.name)


def test_tokens_are_made_once_and_found_again(tmp_path: Path) -> None:
    data = documents(tmp_path / "a.jsonl", *"abc")
    first = prepared_for(data, tmp_path)
    assert first.folder.parent == tmp_path / "prepared"
    again = prepared_for(data, tmp_path, lambda *_: pytest.fail("made the tokens again"))
    assert again.meta == first.meta


def test_whatever_changes_the_tokens_makes_new_ones(tmp_path: Path) -> None:
    data = documents(tmp_path / "a.jsonl", *"abc")
    (tmp_path / "t.json").write_text((prepared_for(data, tmp_path).folder / "tokenizer.json").read_text())
    other = replace(data, tokenizer="t.json")
    variants = [data, other, replace(data, validation=0.2), replace(data, key="title")]
    folders = {prepared_for(variant, tmp_path).folder for variant in variants}
    assert len(folders) == len(variants)

    def touched(path: Path, variant: Data) -> bool:
        """Whether a later time stamp on a file, and nothing else, leads to a folder of its own."""
        stat = path.stat()
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns + 1))
        return prepared_for(variant, tmp_path).folder not in folders

    assert touched(tmp_path / "a.jsonl", data)
    assert touched(tmp_path / "t.json", other)
    os.utime(tmp_path / "a.jsonl", ns=(0, 0))
    before = prepared_for(data, tmp_path).folder
    documents(tmp_path / "a.jsonl", *"abcd")
    os.utime(tmp_path / "a.jsonl", ns=(0, 0))
    assert prepared_for(data, tmp_path).folder != before


def test_two_processes_may_make_the_same_tokens_at_once(tmp_path: Path) -> None:
    data = documents(tmp_path / "a.jsonl", *"abc")
    other: list[Prepared] = []

    def meanwhile(*_: object) -> None:
        other.append(prepared_for(data, tmp_path))

    mine = prepared_for(data, tmp_path, meanwhile)
    assert other[0].folder == mine.folder
    assert [path.name for path in (tmp_path / "prepared").iterdir()] == [mine.folder.name]


def test_a_damaged_cache_is_refused_unless_asked_not_to_look(tmp_path: Path) -> None:
    data = documents(tmp_path / "a.jsonl", *"abc")
    path = prepared_for(data, tmp_path).folder / "train.bin"
    path.write_bytes(bytes([*path.read_bytes()[:-1], 0]))
    with pytest.raises(HeddleError, match="is damaged"):
        prepared_for(data, tmp_path)
    assert len(prepared_for(replace(data, verify=False), tmp_path).train) == 6


def test_a_prepared_folder_can_be_named(tmp_path: Path) -> None:
    made = prepare(documents(tmp_path / "a.jsonl", *"abc"), tmp_path, tmp_path / "out")
    opened = prepared_for(Data(tokens="out"), tmp_path)
    assert opened.meta == made.meta == open_prepared(tmp_path / "out").meta

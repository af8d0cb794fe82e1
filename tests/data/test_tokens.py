"""A folder of tokens is what it says it is, or it is refused."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from heddle.data import check_named, check_vocab, idle_rows, open_prepared, prepare, replaced_bytes
from heddle.data import tokens as room
from heddle.errors import HeddleError
from heddle.spec.job import Data


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    texts = [f"text {i}" for i in range(50)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return prepare(Data(text="a.jsonl", validation=0.2), tmp_path, tmp_path / "out").folder


def edit(folder: Path, **changes: Any) -> None:
    path = folder / "data.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def refused(folder: Path, verify: bool = True) -> HeddleError:
    with pytest.raises(HeddleError) as caught:
        open_prepared(folder, verify)
    assert caught.value.why
    assert caught.value.hint
    return caught.value


def test_tokens_are_mapped_and_cannot_be_changed(folder: Path) -> None:
    prepared = open_prepared(folder)
    assert type(prepared.train) is np.ndarray
    with pytest.raises(ValueError, match="read-only"):
        prepared.train[0] = 1
    assert prepared.tokenizer.decode(prepared.train[:6]) == "text 0"
    assert prepared.tokenizer is prepared.tokenizer


@pytest.mark.parametrize("name", ["train.bin", "validation.bin"])
@pytest.mark.parametrize("bit", [0, 7])
def test_a_flipped_bit_is_caught(folder: Path, name: str, bit: int) -> None:
    raw = bytearray((folder / name).read_bytes())
    digest = json.loads((folder / "data.json").read_text())[name.removesuffix(".bin")]["sha256"]
    raw[len(raw) // 2] ^= 1 << bit
    (folder / name).write_bytes(raw)
    error = refused(folder)
    assert f"{folder / name} is damaged" in error.what
    assert digest in error.why
    assert room.measure(np.frombuffer(raw, "<u2")).sha256 in error.why
    open_prepared(folder, verify=False)  # looks at the size alone


@pytest.mark.parametrize("verify", [True, False])
def test_a_file_of_another_size_is_caught_without_reading_it(folder: Path, verify: bool) -> None:
    raw = (folder / "train.bin").read_bytes()
    (folder / "train.bin").write_bytes(raw[:-1])
    assert f"has {len(raw) - 1} bytes instead of {len(raw)}" in refused(folder, verify).what
    (folder / "train.bin").unlink()
    assert "train.bin is missing" in refused(folder, verify).what


def test_a_token_beyond_the_vocabulary_is_named(folder: Path) -> None:
    edit(folder, vocab=200)
    for verify in (True, False):
        error = refused(folder, verify)
        assert "holds the token id 256" in error.what
        assert "largest is 199" in error.why
    meta = json.loads((folder / "data.json").read_text())
    edit(folder, train={**meta["train"], "largest": 3}, validation={**meta["validation"], "largest": 3})
    assert "holds the token id 256" in refused(folder).what  # found in the file itself


def test_a_model_with_too_small_a_vocabulary_is_refused(folder: Path) -> None:
    prepared = open_prepared(folder)
    check_vocab(prepared, 257)
    check_vocab(prepared, 50_304)
    with pytest.raises(HeddleError, match=r"model\.vocab = 256 is too small") as caught:
        check_vocab(prepared, 256)
    assert "the largest in use is 256" in caught.value.why
    assert "model.vocab = 257 or more; 320 is a multiple of 64" in caught.value.hint


def test_a_model_for_words_is_not_trained_on_bytes_unless_that_is_said(folder: Path) -> None:
    silent, told = Data(text="a.jsonl"), Data(text="a.jsonl", tokenizer="bytes")
    for data, vocab in ((silent, 257), (silent, 1028), (told, 50_257), (Data(tokens="out"), 50_257)):
        check_named(data, vocab)
    with pytest.raises(HeddleError, match=r"names no tokenizer, and the model has a vocabulary of 50,257") as caught:
        check_named(silent, 50_257)
    assert "50,000 rows of the embedding would never be used" in caught.value.why
    assert "bpe:50257" in caught.value.hint
    assert '"bytes", if you mean it' in caught.value.hint
    prepared = open_prepared(folder)
    assert idle_rows(prepared, 1028) is None
    assert "50,000 rows of the embedding are never used" in str(idle_rows(prepared, 50_257))


@pytest.mark.parametrize("end", [257, -1])
def test_an_end_of_text_that_is_no_token_is_refused(folder: Path, end: int) -> None:
    edit(folder, end=end)
    assert f"end = {end} is not a token" in refused(folder).what


def test_a_folder_that_is_not_prepared_is_refused(tmp_path: Path) -> None:
    assert "holds no tokens" in refused(tmp_path).what
    assert "There is no folder" in refused(tmp_path / "nowhere").what


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"format": 2}, "has format 2"),
        ({"format": None}, "has format None"),
        ({"dtype": "float64"}, "dtype = 'float64' is not known"),
        ({"color": 1}, "has no key 'color'"),
        ({"vocab": "many"}, "vocab = 'many' has the wrong type"),
        ({"train": {}}, "lacks 'tokens'"),
    ],
)
def test_a_description_that_makes_no_sense_is_refused(folder: Path, changes: dict[str, Any], says: str) -> None:
    edit(folder, **changes)
    error = refused(folder)
    assert says in error.what
    assert str(folder / "data.json") in error.what


def test_a_description_that_is_not_json_is_refused(folder: Path) -> None:
    (folder / "data.json").write_text("{")
    assert "not valid JSON" in refused(folder).what


def test_measuring_in_chunks_is_measuring_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = np.random.default_rng(0).integers(0, 70_000, 1000).astype("<u4")
    once = room.measure(tokens)
    monkeypatch.setattr(room, "CHUNK", 7)
    chunked = room.measure(tokens)
    assert chunked.sha256 == once.sha256
    assert chunked.counts.tolist() == once.counts.tolist() == np.bincount(tokens).tolist()
    assert once.largest == tokens.max()


def test_entropy_of_known_frequencies() -> None:
    assert room.measure(np.arange(8, dtype="<u2")).entropy == pytest.approx(math.log(8))
    assert str(room.measure(np.zeros(8, "<u2")).entropy) == "0.0"
    assert room.measure(np.zeros(0, "<u2")).entropy == 0


def test_a_loss_in_bits_per_byte() -> None:
    split = room.TokenSplit(tokens=100, documents=1, bytes=400, largest=1, sha256="")
    assert split.bytes_per_token == 4
    assert split.bits_per_byte(math.log(2)) == pytest.approx(0.25)  # a bit a token, four bytes per token


def test_bytes_that_are_not_utf_8_are_told(tmp_path: Path) -> None:
    (tmp_path / "old.txt").write_bytes("Caf\u00e9, Stra\u00dfe. ".encode("latin-1") * 10)
    (tmp_path / "new.txt").write_text("Caf\u00e9, Stra\u00dfe. " * 10, encoding="utf-8")
    found = {name: prepare(Data(text=f"{name}.txt"), tmp_path, tmp_path / name) for name in ("old", "new")}
    assert "20 bytes of the text are not UTF-8" in (replaced_bytes(found["old"]) or "")
    assert replaced_bytes(found["new"]) is None

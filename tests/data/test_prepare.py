"""Text becomes token files: all of it, split by documents, whole or not at all, and only once."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers

from heddle.data import Prepared, find_corpus, prepare
from heddle.errors import HeddleError
from heddle.spec.job import Data

room: Any = sys.modules["heddle.data.prepare"]  # the package's `prepare` is the function
END = 256


def documents(path: Path, *texts: str) -> Data:
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return Data(text=path.name)


def split_up(tokens: np.ndarray) -> list[str]:
    """The documents in a stream of byte tokens."""
    ends = np.flatnonzero(tokens == END)
    return [bytes(part[part != END].tolist()).decode() for part in np.split(tokens, ends + 1)[:-1]]


def stream(prepared: Prepared) -> list[int]:
    return [*prepared.train.tolist(), *prepared.validation.tolist()]


def python(folder: Path, *lines: str) -> "subprocess.CompletedProcess[str]":
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-c", "\n".join(lines)]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)


def test_every_document_goes_to_one_side_and_ends(tmp_path: Path) -> None:
    texts = [f"document {i} " + "x" * (i * 7 % 40) for i in range(200)]
    prepared = prepare(documents(tmp_path / "a.jsonl", *texts), tmp_path, tmp_path / "out")
    train, validation = split_up(prepared.train), split_up(prepared.validation)
    assert sorted(train + validation) == sorted(texts)
    assert train == [text for text in texts if text in set(train)]  # the order stays
    meta = prepared.meta
    assert (meta.train.documents, meta.validation.documents) == (len(train), len(validation))
    assert meta.validation.tokens == len(prepared.validation)
    assert meta.train.bytes == sum(map(len, train))
    assert len(prepared.validation) / len(stream(prepared)) == pytest.approx(0.05, abs=0.01)


@pytest.mark.parametrize("share", [0.05, 0.3, 0.77])
def test_the_split_follows_its_rule_whatever_the_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, share: float
) -> None:
    sizes = np.random.default_rng(0).geometric(1 / 60, 300).tolist()
    texts = [f"{i:03}" + "y " * size for i, size in enumerate(sizes)]
    expected: list[str] = []
    kept = total = 0
    for text in texts:
        if kept < share * total:
            kept += len(text) + 1
            expected.append(text)
        total += len(text) + 1
    data = replace(documents(tmp_path / "a.jsonl", *texts), validation=share)
    whole = prepare(data, tmp_path, tmp_path / "whole")
    assert split_up(whole.validation) == expected
    monkeypatch.setattr("heddle.data.corpus.PIECE", 16)
    monkeypatch.setattr(room, "BATCH", 50)
    pieces = prepare(data, tmp_path, tmp_path / "pieces")
    assert whole.meta == pieces.meta


def test_one_long_document_gives_its_end_to_validation(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("0123456789" * 100)
    prepared = prepare(Data(text="a.txt", validation=0.1), tmp_path, tmp_path / "out")
    assert stream(prepared) == [*b"0123456789" * 100, END]
    assert (len(prepared.train), len(prepared.validation)) == (901, 100)
    assert (prepared.meta.train.bytes, prepared.meta.validation.bytes) == (900, 100)


def test_a_long_document_does_not_make_validation_much_too_large(tmp_path: Path) -> None:
    data = documents(tmp_path / "a.jsonl", "a" * 999, "b" * 999)
    prepared = prepare(data, tmp_path, tmp_path / "out")
    assert prepared.validation.tolist() == [*b"b" * 100]
    assert prepared.train.tolist() == [*b"a" * 999, END, *b"b" * 899, END]
    assert (prepared.meta.train.bytes, prepared.meta.validation.bytes) == (1898, 100)


def test_the_split_favors_no_length(tmp_path: Path) -> None:
    sizes = np.random.default_rng(0).geometric(1 / 60, 2000)
    data = documents(tmp_path / "a.jsonl", *("y" * int(size) for size in sizes))
    kept = [len(text) for text in split_up(prepare(data, tmp_path, tmp_path / "out").validation)]
    assert np.mean(kept) == pytest.approx(np.mean(sizes), rel=0.15)


def test_no_share_means_no_validation(tmp_path: Path) -> None:
    data = replace(documents(tmp_path / "a.jsonl", "a", "b"), validation=0.0)
    prepared = prepare(data, tmp_path, tmp_path / "out")
    assert split_up(prepared.train) == ["a", "b"]
    assert len(prepared.validation) == 0
    assert (tmp_path / "out" / "validation.bin").stat().st_size == 0


def test_the_folder_describes_itself(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"caf\xe9 caf\xc3\xa9")
    (tmp_path / "b.txt").touch()
    prepared = prepare(Data(text="*.txt", validation=0.0), tmp_path, tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "data.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "train.bin",
        "validation.bin",
    ]
    written = json.loads((tmp_path / "out" / "data.json").read_text())
    raw = (tmp_path / "out" / "train.bin").read_bytes()
    ids = [*"caf\ufffd café".encode(), END]
    assert raw == np.array(ids, "<u2").tobytes()
    shares = [ids.count(i) / len(ids) for i in set(ids)]
    assert written == {
        "format": 1,
        "dtype": "uint16",
        "tokenizer": "bytes",
        "vocab": 257,
        "end": 256,
        "bytes_per_token": pytest.approx(12 / 13),
        "unigram_entropy": pytest.approx(-sum(p * np.log(p) for p in shares)),
        "train": {
            "tokens": 13,
            "documents": 1,
            "bytes": 12,
            "largest": 256,
            "sha256": hashlib.sha256(raw).hexdigest(),
        },
        "validation": {
            "tokens": 0,
            "documents": 0,
            "bytes": 0,
            "largest": -1,
            "sha256": hashlib.sha256(b"").hexdigest(),
        },
        "source": {
            "text": ["*.txt"],
            "key": "text",
            "validation": 0.0,
            "files": 2,
            "documents": 1,
            "characters": 9,
            "bytes": 12,
            "empty": 1,
            "replaced": 1,
        },
    }
    assert prepared.tokenizer.decode(prepared.train[:-1]) == "caf\ufffd café"  # type: ignore[index]


def test_the_same_text_gives_the_same_folder(tmp_path: Path) -> None:
    data = Data(text="stdlib:json/*.py", tokenizer="bpe:700")
    folders = [prepare(data, tmp_path, tmp_path / name).folder for name in "ab"]
    left, right = ({path.name: path.read_bytes() for path in folder.iterdir()} for folder in folders)
    assert left == right


def test_bpe_tokens_decode_to_the_text(tmp_path: Path) -> None:
    data = Data(text="stdlib:json/*.py", tokenizer="bpe:700", validation=0.0)
    prepared = prepare(data, tmp_path, tmp_path / "out")
    texts = list(find_corpus("stdlib:json/*.py", tmp_path).documents())
    assert prepared.tokenizer.decode(prepared.train) == "".join(f"{text}<|endoftext|>" for text in texts)
    assert prepared.meta.vocab == 700
    assert prepared.meta.bytes_per_token > 1.5


def test_a_large_vocabulary_is_kept_in_four_bytes(tmp_path: Path) -> None:
    vocab = {"</s>": 0, "low": 1, "high": 70_000}
    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocab, unk_token="</s>"))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    inner.save(str(tmp_path / "words.json"))
    (tmp_path / "a.txt").write_text("low high low")
    data = Data(text="a.txt", tokenizer="words.json", validation=0.0)
    prepared = prepare(data, tmp_path, tmp_path / "out")
    assert prepared.train.tolist() == [1, 70_000, 1, 0]
    assert (prepared.meta.dtype, prepared.meta.vocab) == ("uint32", 70_001)


def test_a_large_corpus_is_sampled_evenly_to_train_the_tokenizer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = find_corpus(str(documents(tmp_path / "a.jsonl", *"abcdefgh").text), tmp_path)
    assert list(room._training_texts(corpus, corpus.size, lambda *_: None)) == [*"abcdefgh"]
    monkeypatch.setattr(room, "TRAINING_BYTES", corpus.size // 3 + 1)
    assert list(room._training_texts(corpus, corpus.size, lambda *_: None)) == [*"adg"]


def test_progress_reaches_the_end(tmp_path: Path) -> None:
    calls: list[tuple[str, int, int]] = []
    data = replace(documents(tmp_path / "a.jsonl", *"abcd"), tokenizer="bpe:300")
    prepare(data, tmp_path, tmp_path / "out", lambda *call: calls.append(call))
    size = (tmp_path / "a.jsonl").stat().st_size
    assert calls[0][0] == "learning the vocabulary"
    assert calls[-1] == ("encoding", size, size)


def test_an_existing_folder_is_refused_and_left_alone(tmp_path: Path) -> None:
    data = documents(tmp_path / "a.jsonl", "a")
    (tmp_path / "empty").mkdir()
    prepare(data, tmp_path, tmp_path / "empty")  # nothing in it could be lost
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("precious")
    (tmp_path / "file").write_text("precious")
    for name in ("empty", "full", "file"):
        with pytest.raises(HeddleError, match="exists already") as caught:
            prepare(data, tmp_path, tmp_path / name)
        assert caught.value.why
        assert caught.value.hint
    assert (tmp_path / "full" / "mine").read_text() == "precious"


def test_a_place_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    with pytest.raises(HeddleError, match=r"cannot be written.\nNot a directory"):
        prepare(documents(tmp_path / "a.jsonl", "a"), tmp_path, tmp_path / "a.jsonl" / "out")


@pytest.mark.parametrize("tokenizer", ["bytes", "bpe:300"])
def test_a_mistake_in_the_text_leaves_nothing_behind(tmp_path: Path, tokenizer: str) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "fine"}\n{"text": oops}\n')
    with pytest.raises(HeddleError, match=r"a\.jsonl, line 2 is not valid JSON"):
        prepare(Data(text="a.jsonl", tokenizer=tokenizer), tmp_path, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["a.jsonl"]


def test_an_interrupt_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = documents(tmp_path / "a.jsonl", *"abcdef")
    monkeypatch.setattr(room, "BATCH", 1)

    def interrupt(doing: str, done: int, total: int) -> None:
        assert [path.suffix for path in tmp_path.iterdir() if path.name != "a.jsonl"] == [".part"]
        if done > total / 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare(data, tmp_path, tmp_path / "out", interrupt)
    assert [path.name for path in tmp_path.iterdir()] == ["a.jsonl"]


def test_a_kill_leaves_no_folder_under_the_name(tmp_path: Path) -> None:
    documents(tmp_path / "a.jsonl", "a")
    run = python(
        tmp_path,
        "import os",
        "from pathlib import Path",
        "from heddle.spec.job import Data",
        "from heddle.data import prepare",
        f"die = lambda *_: os.kill(os.getpid(), {signal.SIGKILL:d})",
        "prepare(Data(text='a.jsonl'), Path(), Path('out'), die)",
    )
    assert run.returncode == -signal.SIGKILL, run.stderr
    assert not (tmp_path / "out").exists()
    assert split_up(prepare(Data(text="a.jsonl"), tmp_path, tmp_path / "out").train) == ["a"]


def test_memory_does_not_grow_with_the_corpus(tmp_path: Path) -> None:
    line = "the quick brown fox jumps over the lazy dog\n"
    peaks = []
    for name, megabytes in (("small", 10), ("large", 50)):
        with (tmp_path / f"{name}.txt").open("w") as file:
            file.writelines(line for _ in range(megabytes * 10**6 // len(line)))
        tracemalloc.start()
        prepare(Data(text=f"{name}.txt"), tmp_path, tmp_path / name)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < peaks[0] + 5e6
    assert peaks[1] < 25e6


def test_the_room_needs_no_torch(tmp_path: Path) -> None:
    run = python(tmp_path, "import sys, heddle.data, heddle.cli.exchange.data", "print('torch' in sys.modules)")
    assert run.stdout == "False\n", run.stderr


@pytest.mark.slow
@pytest.mark.parametrize(("tokenizer", "seconds"), [("bytes", 2), ("bpe:8192", 30)])
def test_ten_megabytes_are_quick(tmp_path: Path, tokenizer: str, seconds: float) -> None:
    data = Data(text=("stdlib:*.py", "stdlib:[a-s]*/**/*.py"), tokenizer=tokenizer)
    start = time.perf_counter()
    prepared = prepare(data, tmp_path, tmp_path / "out")
    assert time.perf_counter() - start < seconds
    assert prepared.meta.source.bytes > 10e6

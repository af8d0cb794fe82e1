"""Every tokenizer writes any text and reads it back, and comes back from disk as it was."""

import json
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from heddle.data import corpus, load_tokenizer
from heddle.data.tokenizer import (
    END,
    ByteTokenizer,
    Tokenizer,
    check_tokenizer,
    make_tokenizer,
    read_tokenizer_json,
    token_dtype,
    train_bpe,
)
from heddle.errors import HeddleError
from tests.helpers.clock import growth

TEXT = corpus.find_corpus("stdlib:json/*.py", Path())
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)


@cache
def bpe() -> Tokenizer:
    return train_bpe(600, TEXT.documents())


@cache
def hugging_face_bytes() -> tokenizers.Tokenizer:
    return tokenizers.Tokenizer.from_str(ByteTokenizer().to_json())


@settings(max_examples=50, deadline=None)
@given(st.lists(texts, max_size=4))
def test_any_text_round_trips(batch: list[str]) -> None:
    for tokenizer in (ByteTokenizer(), bpe()):
        for text, ids in zip(batch, tokenizer.encode_batch(batch), strict=True):
            assert tokenizer.decode(ids) == text
            assert ids.dtype == np.dtype("<u2")
            assert tokenizer.encode(text).tolist() == ids.tolist()
            assert ids.max(initial=0) < tokenizer.vocab


@settings(max_examples=50, deadline=None)
@given(texts, texts)
def test_the_bytes_tokenizer_is_the_same_in_hugging_faces_library(left: str, right: str) -> None:
    text = left + END + right
    assert ByteTokenizer().encode(text).tolist() == hugging_face_bytes().encode(text).ids


def test_bytes_are_bytes() -> None:
    tokenizer = ByteTokenizer()
    assert (tokenizer.vocab, tokenizer.end) == (257, 256)
    assert tokenizer.encode("é!").tolist() == [0xC3, 0xA9, ord("!")]
    assert tokenizer.decode([0xC3, ord("a"), 256, 300]) == f"\ufffda{END}{END}"


def test_a_spelled_out_end_token_is_the_end_token() -> None:
    for tokenizer in (ByteTokenizer(), bpe()):
        ids = tokenizer.encode(f"a{END}b").tolist()
        assert ids.count(tokenizer.end) == 1
        assert tokenizer.decode(ids) == f"a{END}b"


def test_a_prompt_with_bytes_that_are_no_text_is_encoded() -> None:
    for tokenizer in (ByteTokenizer(), bpe()):
        assert tokenizer.decode(tokenizer.encode("a\udcffb")) == "a?b"


def test_bpe_learns_from_the_text() -> None:
    text = next(TEXT.documents())
    assert bpe().vocab == 600
    assert len(bpe().encode(text)) < 0.6 * len(text)


def test_bpe_stops_where_there_is_nothing_left_to_merge() -> None:
    assert train_bpe(5000, ["aa aa"]).vocab < 300


def test_bpe_training_is_deterministic_and_quiet() -> None:
    # In processes of their own: the hash seeds of one process are the same throughout.
    script = (
        "from pathlib import Path; from heddle.data import find_corpus\n"
        "from heddle.data.tokenizer import train_bpe\n"
        "import hashlib\n"
        "made = train_bpe(600, find_corpus('stdlib:json/*.py', Path()).documents())\n"
        "print(hashlib.sha256(made.to_json().encode()).hexdigest())"
    )
    runs = [subprocess.run([sys.executable, "-c", script], capture_output=True, text=True) for _ in range(2)]
    assert [run.stderr for run in runs] == ["", ""]
    assert runs[0].stdout == runs[1].stdout
    assert len(runs[0].stdout.strip()) == 64


def test_pieces_of_a_long_document_have_the_tokens_of_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    wholes = bpe().encode_batch(list(TEXT.documents()))
    monkeypatch.setattr(corpus, "PIECE", 1000)
    pieces = [piece.text for piece in TEXT.pieces()]
    assert len(pieces) > 5 * len(wholes)
    assert np.concatenate(bpe().encode_batch(pieces)).tolist() == np.concatenate(wholes).tolist()


@pytest.mark.parametrize("make", [ByteTokenizer, bpe])
def test_saved_tokenizers_come_back(tmp_path: Path, make: type[Tokenizer]) -> None:
    tokenizer = make()
    tokenizer.save(tmp_path / "run" / "tokenizer")
    again = load_tokenizer(tmp_path / "run" / "tokenizer")
    assert type(again) is type(tokenizer)
    assert (again.vocab, again.end) == (tokenizer.vocab, tokenizer.end)
    assert again.encode("été 7").tolist() == tokenizer.encode("été 7").tolist()


def word_level(path: Path, *words: str) -> tokenizers.Tokenizer:
    vocab = {word: 2 * i for i, word in enumerate(("[UNK]", "a", "b", *words))}  # ids with gaps
    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocab, unk_token="[UNK]"))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    inner.add_special_tokens(list(words))
    inner.save(str(path))
    return inner


@pytest.mark.parametrize("name", ["<|endoftext|>", "</s>", "<|end_of_text|>", "<eos>"])
def test_the_end_of_text_of_a_file_is_found(tmp_path: Path, name: str) -> None:
    word_level(tmp_path / "tokenizer.json", "<s>", name)
    tokenizer = read_tokenizer_json(tmp_path / "tokenizer.json")
    assert (tokenizer.end, tokenizer.vocab) == (8, 9)


@pytest.mark.parametrize("value", ["<stop>", {"content": "<stop>", "special": True}])
def test_the_configuration_beside_a_file_names_its_end_of_text(tmp_path: Path, value: object) -> None:
    word_level(tmp_path / "tokenizer.json", "</s>", "<stop>")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"eos_token": value}))
    assert read_tokenizer_json(tmp_path / "tokenizer.json").end_name == "<stop>"
    assert load_tokenizer(tmp_path).end_name == "<stop>"


def test_truncation_padding_and_added_tokens_of_a_file_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    inner = word_level(path, "<s>", "</s>")
    inner.post_processor = tokenizers.processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", 6)])
    inner.enable_truncation(3)
    inner.enable_padding(length=3)
    inner.save(str(path))
    tokenizer = read_tokenizer_json(path)
    assert [ids.tolist() for ids in tokenizer.encode_batch(["a b a b", "b"])] == [[2, 4, 2, 4], [4]]
    tokenizer.save(tmp_path / "saved")
    assert load_tokenizer(tmp_path / "saved").encode("a b a b").tolist() == [2, 4, 2, 4]


def test_a_file_without_an_end_of_text_is_refused(tmp_path: Path) -> None:
    word_level(tmp_path / "tokenizer.json", "[CLS]")
    with pytest.raises(HeddleError, match=r"no end-of-text token") as caught:
        read_tokenizer_json(tmp_path / "tokenizer.json")
    assert "[CLS]" in caught.value.why
    assert "eos_token" in caught.value.hint


@pytest.mark.parametrize(("content", "says"), [("{", "not valid JSON"), ("{}", "is not a tokenizer")])
def test_a_file_that_is_no_tokenizer_is_refused(tmp_path: Path, content: str, says: str) -> None:
    (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(HeddleError, match=says):
        read_tokenizer_json(tmp_path / "tokenizer.json")


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("byte", "Did you mean 'bytes'"),
        ("gpt2", "Known: bpe:8192, bytes, path/to/tokenizer.json"),
        ("bpe", "257 at least"),
        ("bpe:abc", "257 at least"),
        ("bpe:10", "257 at least"),
        ("bpe:-300", "257 at least"),
        ("bpe:8k", "For example 'bpe:8192'"),
        ("some/tokenizer.json", "There is no tokenizer at"),
    ],
)
def test_unknown_words_are_refused_with_what_works(tmp_path: Path, word: str, says: str) -> None:
    with pytest.raises(HeddleError, match=says) as caught:
        make_tokenizer(word, tmp_path, lambda: pytest.fail("read the text for nothing"))
    assert word in caught.value.what + caught.value.why
    assert caught.value.hint


def test_words_lead_to_tokenizers(tmp_path: Path) -> None:
    assert check_tokenizer("bytes", tmp_path) is None
    assert check_tokenizer("bpe:257", tmp_path) == 257
    word_level(tmp_path / "tokenizer.json", "</s>")
    for word in ("tokenizer.json", ".", str(tmp_path)):
        assert make_tokenizer(word, tmp_path, list).vocab == 7
    assert make_tokenizer("bpe:257", tmp_path, lambda: ["ab ab ab"]).vocab == 257


def test_a_folder_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(HeddleError, match="There is no tokenizer in"):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize(("vocab", "dtype"), [(257, "uint16"), (65536, "uint16"), (65537, "uint32")])
def test_ids_are_kept_in_the_smaller_type_that_holds_them(vocab: int, dtype: str) -> None:
    assert token_dtype(vocab).name == dtype
    assert vocab - 1 <= np.iinfo(token_dtype(vocab)).max


@pytest.mark.parametrize("run", ["a", " ", "-", "ab", "7", "é"])
def test_long_runs_are_learned_in_the_time_of_their_length(run):
    assert growth(lambda: train_bpe(400, [run * 10_000]), lambda: train_bpe(400, [run * 100_000])) < 30
    tokenizer = train_bpe(400, [run * 100_000, "the weaver leads each thread to its place " * 50])
    for text in (run * 1000, "the weaver's thread", run * 77 + " x"):
        assert tokenizer.decode(tokenizer.encode(text)) == text
    assert len(tokenizer.encode(run * 6400)) < 6400 * len(run.encode()) / 8


def test_words_of_usual_length_are_learned_as_ever(monkeypatch):
    texts = [f"the {'weaver' * n} leads thread {n} to its place,\n\n\tnaïvely -- {'=' * 40}. " for n in range(1, 9)] * 9
    learned = train_bpe(500, texts).to_json()
    monkeypatch.setattr("heddle.data.tokenizer.LONG_WORD", re.compile("(?!)"))
    assert train_bpe(500, texts).to_json() == learned


def test_a_tokenizer_that_lacks_its_unknown_token_is_told(tmp_path: Path) -> None:
    words = tokenizers.models.WordLevel({"</s>": 0, "known": 1}, unk_token="[UNK]")
    path = tmp_path / "tokenizer.json"
    tokenizers.Tokenizer(words).save(str(path))
    tokenizer = read_tokenizer_json(path)
    with pytest.raises(HeddleError, match="cannot encode this text") as caught:
        tokenizer.encode("other")
    assert "WordLevel" in caught.value.why
    assert "unknown token" in caught.value.hint

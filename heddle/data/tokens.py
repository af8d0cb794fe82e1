"""A folder of tokens made by `prepare`: what it says about itself, and its two files mapped into memory."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heddle.data.documents import Documents, Trained
from heddle.data.tokenizer import LARGEST_BPE, ByteTokenizer, Tokenizer, load_tokenizer
from heddle.errors import HeddleError
from heddle.spec.data import Data
from heddle.spec.tables import build, read_json

FORMAT = 1
META_FILE = "data.json"
TRAIN_FILE = "train.bin"
VALIDATION_FILE = "validation.bin"
LEARNED = ".learned"  # instead of .bin: a byte for each token, 1 where it is learned
LENGTHS = ".lengths"  # the same: how long each document is
LEARNED_TYPE, LENGTHS_TYPE = "u1", "<u4"
MUCH_LARGER = 4  # times: the vocabulary of a model, against that of a tokenizer; padding adds a hundredth
CHUNK = 1 << 20  # tokens looked at together when a file is measured

AGAIN = "Copy the folder again, or delete it and prepare it again."

Array = NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class TokenSplit:
    """One token file, as data.json describes it."""

    tokens: int  # ends of documents included
    documents: int
    bytes: int  # of the text the tokens stand for, in UTF-8
    largest: int  # the largest token id; -1 in an empty file
    sha256: str

    @property
    def bytes_per_token(self) -> float:
        """How much text a token stands for, on average."""
        return self.bytes / self.tokens if self.tokens else math.nan

    def bits_per_byte(self, loss: float) -> float:
        """A loss in nats per token, told in a unit that does not depend on the tokenizer."""
        return loss / math.log(2) / self.bytes_per_token


@dataclass(frozen=True, kw_only=True)
class DocumentSplit:
    """What is known of the documents of one token file beside their tokens."""

    learned: int  # tokens
    longest: int  # document, in tokens
    sha256: str  # of the bytes that say what is learned, then of the lengths


@dataclass(frozen=True, kw_only=True)
class Conversations:
    """What data.json says of documents that are learned in part."""

    learn: str
    template: str  # the checksum of its text
    rows: int  # that were read
    skipped: dict[str, int]  # rows that were left out, by reason
    train: DocumentSplit
    validation: DocumentSplit


@dataclass(frozen=True, kw_only=True)
class TextSource:
    """What the tokens were made from."""

    text: tuple[str, ...]
    key: str
    validation: float
    files: int
    documents: int
    characters: int
    bytes: int
    empty: int  # files and lines without text
    replaced: int  # bytes that were not UTF-8


@dataclass(frozen=True, kw_only=True)
class Meta:
    """The contents of data.json."""

    format: int = FORMAT
    dtype: str
    tokenizer: str
    vocab: int
    end: int
    bytes_per_token: float  # of train and validation together
    unigram_entropy: float  # nats; the loss of a model that knows how often tokens occur and nothing else
    train: TokenSplit
    validation: TokenSplit
    source: TextSource
    chat: Conversations | None = None  # where only a part of the tokens is learned

    def to_json(self) -> str:
        """The text of data.json."""
        table = {key: value for key, value in asdict(self).items() if value is not None}
        return json.dumps(table, indent=2, ensure_ascii=False) + "\n"


@dataclass(frozen=True)
class TokenFacts:
    """What one pass over a token file finds out."""

    sha256: str
    counts: NDArray[np.int64]  # of each token id

    @property
    def largest(self) -> int:
        """The largest token id, -1 if there is none."""
        present = np.flatnonzero(self.counts)
        return int(present[-1]) if len(present) else -1

    @property
    def entropy(self) -> float:
        """The entropy of the token frequencies, in nats."""
        p = self.counts[self.counts > 0] / max(self.counts.sum(), 1)
        return float(-(p * np.log(p)).sum()) + 0.0  # + 0.0: a single kind of token has entropy 0, not -0


def measure(tokens: Array) -> TokenFacts:
    """Digest and count tokens, a chunk at a time: a token file may be larger than memory."""
    digest, counts = hashlib.sha256(), np.zeros(0, np.int64)
    for start in range(0, len(tokens), CHUNK):
        chunk = np.ascontiguousarray(tokens[start : start + CHUNK])
        digest.update(chunk.data)
        found = np.bincount(chunk, minlength=len(counts))
        found[: len(counts)] += counts
        counts = found
    return TokenFacts(digest.hexdigest(), counts)


def map_tokens(path: Path, dtype: str | np.dtype[Any]) -> Array:
    """A token file as a read-only array that is read from disk only where it is looked at."""
    if path.stat().st_size == 0:  # which cannot be mapped
        return np.empty(0, dtype)
    return np.asarray(np.memmap(path, dtype, mode="r"))


def open_tokens(path: Path, split: TokenSplit, dtype: str, vocab: int, verify: bool = True) -> Array:
    """Map a token file and hold it against its description; `verify` also reads all of it."""
    expected = split.tokens * np.dtype(dtype).itemsize
    if not path.is_file():
        raise HeddleError(f"{path} is missing.", f"{META_FILE} describes {split.tokens:,} tokens there.", AGAIN)
    if (size := path.stat().st_size) != expected:
        raise HeddleError(
            f"{path} has {size:,} bytes instead of {expected:,}.",
            f"{META_FILE} describes {split.tokens:,} tokens of type {dtype}.",
            AGAIN,
        )
    if split.largest >= vocab:
        raise _beyond(path, split.largest, vocab)
    tokens = map_tokens(path, dtype)
    if verify:
        found = measure(tokens)
        if found.sha256 != split.sha256:
            raise HeddleError(
                f"{path} is damaged.",
                f"Its SHA-256 is {found.sha256}; {META_FILE} has {split.sha256}.",
                AGAIN,
            )
        if found.largest >= vocab:
            raise _beyond(path, found.largest, vocab)
    return tokens


def _beyond(path: Path, largest: int, vocab: int) -> HeddleError:
    return HeddleError(
        f"{path} holds the token id {largest}.", f"According to {META_FILE}, the largest is {vocab - 1}.", AGAIN
    )


@dataclass(frozen=True)
class Prepared:
    """Tokens ready to train on."""

    folder: Path
    train: Trained
    validation: Trained  # empty if nothing was kept for it
    meta: Meta

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer that made the tokens."""
        return load_tokenizer(self.folder)


def open_prepared(folder: str | Path, verify: bool = True, pack: bool = False) -> Prepared:
    """Open a folder made by `prepare`; `verify` checks every byte of its tokens first."""
    folder = Path(folder)
    if not (folder / META_FILE).is_file():
        raise HeddleError(
            f"{folder} holds no tokens." if folder.is_dir() else f"There is no folder {folder}.",
            f"A folder of tokens has a {META_FILE}.",
            "Make one with `heddle data prepare TEXT -o FOLDER`, or give the text itself as data.text.",
        )
    meta = _read_meta(folder / META_FILE)

    train: Trained = open_tokens(folder / TRAIN_FILE, meta.train, meta.dtype, meta.vocab, verify)
    validation: Trained = open_tokens(folder / VALIDATION_FILE, meta.validation, meta.dtype, meta.vocab, verify)
    if not 0 <= meta.end < meta.vocab:
        raise HeddleError(
            f"{folder / META_FILE}: end = {meta.end} is not a token.", f"The tokens are 0 to {meta.vocab - 1}.", AGAIN
        )
    if meta.chat is not None:
        splits = ((train, meta.train, meta.chat.train), (validation, meta.validation, meta.chat.validation))
        names, pairs = (TRAIN_FILE, VALIDATION_FILE), meta.chat.learn == "preference"
        train, validation = (
            open_documents(folder / name, np.asarray(tokens), split.documents, about, meta.end, verify, pack, pairs)
            for name, (tokens, split, about) in zip(names, splits, strict=True)
        )
    elif pack:
        raise HeddleError(
            f"{folder} holds text in one stream; there is nothing to pack.",
            "Samples of text are cut from it without a gap.",
            "Leave out pack = true, or give conversations as data.chat.",
        )
    return Prepared(folder, train, validation, meta)


def open_documents(
    path: Path, tokens: Array, count: int, about: DocumentSplit, end: int, verify: bool, pack: bool, pairs: bool
) -> Documents:
    """Map what is known of a token file's documents, and hold it against its description."""
    expected = {LEARNED: len(tokens), LENGTHS: count * np.dtype(LENGTHS_TYPE).itemsize}
    for suffix, size in expected.items():
        file = path.with_suffix(suffix)
        if not file.is_file() or file.stat().st_size != size:
            raise HeddleError(
                f"{file} is {'not as long as it should be' if file.is_file() else 'missing'}.",
                f"{META_FILE} describes {count:,} documents of {len(tokens):,} tokens.",
                AGAIN,
            )
    learned = map_tokens(path.with_suffix(LEARNED), LEARNED_TYPE)
    lengths = map_tokens(path.with_suffix(LENGTHS), LENGTHS_TYPE)
    if verify and (found := digest_documents(learned, lengths)) != about.sha256:
        raise HeddleError(
            f"What {path.with_suffix(LEARNED)} and {LENGTHS} say is damaged.",
            f"Their SHA-256 is {found}; {META_FILE} has {about.sha256}.",
            AGAIN,
        )
    if int(np.sum(lengths, dtype=np.int64)) != len(tokens):
        raise HeddleError(
            f"The lengths in {path.with_suffix(LENGTHS)} do not add up.", f"There are {len(tokens):,} tokens.", AGAIN
        )
    if pairs and len(lengths) % 2:
        raise HeddleError(f"{path} has {len(lengths):,} documents.", "Those of preferences come in pairs.", AGAIN)
    return Documents(tokens, learned, lengths, end, pack, pairs)


def digest_documents(learned: Array, lengths: Array) -> str:
    """The checksum of what is known of documents."""
    digest = hashlib.sha256()
    for array in (learned, lengths):
        for start in range(0, len(array), CHUNK):
            digest.update(np.ascontiguousarray(array[start : start + CHUNK]).data)
    return digest.hexdigest()


def _read_meta(path: Path) -> Meta:
    table = read_json(path, "a description of prepared tokens")
    if table.get("format") != FORMAT:
        raise HeddleError(
            f"{path} has format {table.get('format')!r}.",
            f"This version of Heddle reads format {FORMAT}.",
            AGAIN,
        )
    try:
        meta = build(Meta, table, META_FILE)
    except HeddleError as error:
        raise HeddleError(f"{path}: {error.what}", error.why, error.hint or AGAIN) from None
    if meta.dtype not in ("uint16", "uint32"):
        raise HeddleError(f"{path}: dtype = {meta.dtype!r} is not known.", "It is uint16 or uint32.", AGAIN)
    return meta


def check_named(data: Data, model_vocab: int) -> None:
    """Refuse to train a model for words on bytes just because nobody named a tokenizer."""
    if data.tokens is None and data.tokenizer is None and model_vocab > MUCH_LARGER * ByteTokenizer.vocab:
        raise HeddleError(
            f"[data] names no tokenizer, and the model has a vocabulary of {model_vocab:,}.",
            f"Text would become bytes, of which there are {ByteTokenizer.vocab} with the end of text: "
            f"{model_vocab - ByteTokenizer.vocab:,} rows of the embedding would never be used.",
            f'Add tokenizer = "path/to/tokenizer.json", or "bpe:{min(model_vocab, LARGEST_BPE)}" to learn one from the '
            'text; or "bytes", if you mean it.',
        )


def idle_rows(prepared: Prepared, model_vocab: int) -> str | None:
    """What to say of a model with far more rows than its data has tokens; None if it has not."""
    meta = prepared.meta
    if model_vocab <= MUCH_LARGER * meta.vocab:
        return None
    return (
        f"The model has a vocabulary of {model_vocab:,}, its tokenizer '{meta.tokenizer}' only {meta.vocab:,} tokens: "
        f"{model_vocab - meta.vocab:,} rows of the embedding are never used. Use a larger tokenizer, or "
        f"model.vocab = {meta.vocab}."
    )


def replaced_bytes(prepared: Prepared) -> str | None:
    """What to say of text that is not all UTF-8; None if it is."""
    if not (count := prepared.meta.source.replaced):
        return None
    return (
        f"{count:,} {'byte' if count == 1 else 'bytes'} of the text {'is' if count == 1 else 'are'} not UTF-8 and "
        "read as U+FFFD. If a file has another encoding, convert it: iconv -f latin1 -t utf-8 OLD > NEW."
    )


def check_vocab(prepared: Prepared, model_vocab: int) -> None:
    """Refuse a model whose embedding has no row for a token of the data's tokenizer."""
    meta = prepared.meta
    if model_vocab < meta.vocab:
        largest = max(meta.train.largest, meta.validation.largest)
        raise HeddleError(
            f"model.vocab = {model_vocab} is too small for the tokens in {prepared.folder}.",
            f"Their tokenizer '{meta.tokenizer}' has {meta.vocab} tokens; the largest in use is {largest}.",
            f"Use model.vocab = {meta.vocab} or more; {-(-meta.vocab // 64) * 64} is a multiple of 64.",
        )

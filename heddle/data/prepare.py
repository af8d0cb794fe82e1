"""Text to token files, in one stream: whatever the size of the corpus, a few pieces of it are in memory."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np

from heddle.data.conversations import conversations_for, prepare_conversations
from heddle.data.corpus import Corpus, CorpusTally, TextPiece, find_corpus
from heddle.data.output import Progress, refuse_existing
from heddle.data.tokenizer import (
    TRAINING_BYTES,
    Ids,
    Tokenizer,
    check_tokenizer,
    make_tokenizer,
    token_dtype,
)
from heddle.data.tokens import (
    FORMAT,
    META_FILE,
    TRAIN_FILE,
    VALIDATION_FILE,
    Meta,
    Prepared,
    TextSource,
    TokenFacts,
    TokenSplit,
    map_tokens,
    measure,
    open_prepared,
)
from heddle.durable import whole_or_nothing
from heddle.errors import HeddleError
from heddle.spec.data import Data

# Characters encoded together: enough for the tokenizer to keep all cores busy.
BATCH = 1 << 20
BATCH_PIECES = 4096


def prepare(data: Data, base: Path, output: Path, progress: Progress | None = None) -> Prepared:
    """Turn `data.text`, relative to `base`, into a folder of tokens at `output`.

    The folder appears under its name only when it is whole, and depends on the text and on `data` alone.
    """
    refuse_existing(output)
    if data.chat:
        return prepare_conversations(data, base, output, progress)
    corpus = find_corpus(data.text, base, data.key)
    with whole_or_nothing(output) as folder:
        _fill(folder, data, base, corpus, progress or (lambda *_: None))
    return open_prepared(output, verify=False)  # what was just written was measured by reading it back


def prepared_for(data: Data, base: Path = Path(), progress: Progress | None = None) -> Prepared:
    """The tokens a job trains on: the folder `data.tokens`, or text or conversations made into tokens once and kept."""
    if data.tokens is not None:
        return open_prepared(base / data.tokens, data.verify, data.pack)
    if data.chat:
        return conversations_for(data, base, progress)
    corpus = find_corpus(data.text, base, data.key)
    folder = base / data.cache / _fingerprint(data, base, corpus)
    if not (folder / META_FILE).is_file():
        try:
            return prepare(data, base, folder, progress)
        except HeddleError:
            # Another process may have made the same tokens meanwhile; then they are as good as ours.
            if not (folder / META_FILE).is_file():
                raise
    return open_prepared(folder, data.verify)


def _fingerprint(data: Data, base: Path, corpus: Corpus) -> str:
    """Changes with whatever changes the tokens; of the files it looks at size and time, not at every byte."""
    tokenizer = check_tokenizer(data.tokenizer_word, base)
    files = dict(corpus.files)
    if isinstance(tokenizer, Path):
        files["tokenizer"] = tokenizer
    stats = [(name, path.stat()) for name, path in files.items()]
    parts = [
        FORMAT,
        data.tokenizer_word,
        data.key,
        data.validation,
        [(name, stat.st_size, stat.st_mtime_ns) for name, stat in stats],
    ]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def _fill(folder: Path, data: Data, base: Path, corpus: Corpus, progress: Progress) -> None:
    total = corpus.size
    tokenizer = make_tokenizer(data.tokenizer_word, base, lambda: _training_texts(corpus, total, progress))
    tokenizer.save(folder)
    dtype = token_dtype(tokenizer.vocab)
    tally = CorpusTally()
    with (folder / TRAIN_FILE).open("w+b") as train, (folder / VALIDATION_FILE).open("w+b") as validation:
        splitter = Splitter(train, validation, data.validation)
        end = np.array([tokenizer.end], dtype)
        for pieces in _batches(corpus.pieces(tally)):
            for piece, ids in zip(pieces, tokenizer.encode_batch([p.text for p in pieces]), strict=True):
                splitter.add(ids.astype(dtype, copy=False), piece.size)
                if piece.last:
                    splitter.add(end, 0)
                    splitter.end_document()
            progress("encoding", tally.read, total)
        splitter.balance(dtype.itemsize)
    measured = [measure(map_tokens(folder / name, dtype)) for name in (TRAIN_FILE, VALIDATION_FILE)]
    meta = _describe(data, corpus, tokenizer, tally, splitter, *measured)
    (folder / META_FILE).write_text(meta.to_json(), encoding="utf-8")


def _training_texts(corpus: Corpus, total: int, progress: Progress) -> Iterator[str]:
    """What a tokenizer is trained on: all of a small corpus, every k-th piece of a large one."""
    step = -(-total // TRAINING_BYTES) or 1
    tally = CorpusTally()
    for number, piece in enumerate(corpus.pieces(tally)):
        if number % step == 0:
            yield piece.text
            progress("learning the vocabulary", tally.read, total)


def _batches(pieces: Iterable[TextPiece]) -> Iterator[list[TextPiece]]:
    batch: list[TextPiece] = []
    characters = 0
    for piece in pieces:
        batch.append(piece)
        characters += len(piece.text)
        if characters >= BATCH or len(batch) == BATCH_PIECES:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


class Splitter:
    """Sends each document to training or validation as it streams by.

    A document goes to validation when validation is behind its share of the tokens so far. That looks only at what
    came before, so it favors neither short documents nor long ones.
    """

    def __init__(self, train: BinaryIO, validation: BinaryIO, share: float) -> None:
        self.files = (train, validation)
        self.share = share
        self.tokens, self.documents, self.bytes = [0, 0], [0, 0], [0, 0]  # of train and of validation
        self._split = 0  # where the current document goes; the first always to training

    def add(self, ids: Ids, size: int) -> None:
        """Take in more tokens of the current document, which stand for `size` bytes of text."""
        self.files[self._split].write(ids.tobytes())
        self.tokens[self._split] += len(ids)
        self.bytes[self._split] += size

    def end_document(self) -> None:
        """The current document is complete; decide where the next one goes."""
        self.documents[self._split] += 1
        self._split = int(self.tokens[1] < self.share * sum(self.tokens))

    def balance(self, itemsize: int) -> None:
        """Move the end of one split to the other if long documents left validation far from its share."""
        wanted = int(self.share * sum(self.tokens))
        surplus = self.tokens[1] - wanted
        if wanted <= 2 * self.tokens[1] and surplus <= wanted:
            return
        giver, moved = int(surplus > 0), abs(surplus)
        source, target = self.files[giver], self.files[1 - giver]
        keep = self.tokens[giver] - moved
        source.flush()
        source.seek(keep * itemsize)
        shutil.copyfileobj(source, target)
        source.truncate(keep * itemsize)
        # The cut falls inside a document, of which only tokens can be counted; bytes are shared out alike.
        size = round(self.bytes[giver] * moved / self.tokens[giver])
        for split, sign in ((giver, -1), (1 - giver, 1)):
            self.tokens[split] += sign * moved
            self.bytes[split] += sign * size


def _describe(
    data: Data,
    corpus: Corpus,
    tokenizer: Tokenizer,
    tally: CorpusTally,
    splitter: Splitter,
    train: TokenFacts,
    validation: TokenFacts,
) -> Meta:
    splits = [
        TokenSplit(
            tokens=splitter.tokens[i],
            documents=splitter.documents[i],
            bytes=splitter.bytes[i],
            largest=found.largest,
            sha256=found.sha256,
        )
        for i, found in enumerate((train, validation))
    ]
    return Meta(
        dtype=token_dtype(tokenizer.vocab).name,
        tokenizer=data.tokenizer_word,
        vocab=tokenizer.vocab,
        end=tokenizer.end,
        bytes_per_token=tally.bytes / sum(splitter.tokens),
        unigram_entropy=train.entropy,
        train=splits[0],
        validation=splits[1],
        source=TextSource(
            text=(data.text,) if isinstance(data.text, str) else data.text,
            key=data.key,
            validation=data.validation,
            files=len(corpus.files),
            documents=tally.documents,
            characters=tally.characters,
            bytes=tally.bytes,
            empty=tally.empty,
            replaced=tally.replaced,
        ),
    )

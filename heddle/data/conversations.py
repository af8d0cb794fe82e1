"""Conversations to token files, in one stream: rows, texts by the chat template, tokens, and which are learned."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from heddle.data.chats import Plain, Sample, sample_of
from heddle.data.documents import Documents, MixedDocuments, Trained
from heddle.data.output import Progress, refuse_existing, whole_or_nothing
from heddle.data.pairs import pair_of
from heddle.data.rows import RowError, RowFiles, RowsRead, find_rows, refuse
from heddle.data.template import (
    SPECIAL_FILE,
    TEMPLATE_FILE,
    ChatTemplate,
    Encoded,
    WrittenChat,
    encode,
    find_template,
    samples_of,
)
from heddle.data.tokenizer import CONFIG_FILE, Tokenizer, check_tokenizer, make_tokenizer, token_dtype
from heddle.data.tokens import (
    FORMAT,
    LEARNED,
    LENGTHS,
    LENGTHS_TYPE,
    META_FILE,
    TRAIN_FILE,
    VALIDATION_FILE,
    Conversations,
    DocumentSplit,
    Meta,
    Prepared,
    TextSource,
    TokenSplit,
    digest_documents,
    map_tokens,
    measure,
    open_prepared,
)
from heddle.errors import HeddleError
from heddle.spec.data import ChatSource, Data

BATCH = 256  # texts that are tokenized together
NOTHING = "nothing to learn"
MARK = re.compile(r"\d+|'[^']*'|\"[^\"]*\"")


@dataclass
class ChatTally:
    """What reading has come across. Nothing is left out without being counted here."""

    rows: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    first: dict[str, RowError] = field(default_factory=dict)  # the first of each kind that was left out
    progress: RowsRead = field(default_factory=RowsRead)

    def skip(self, error: RowError) -> None:
        """Leave a row out and count why."""
        reason = kind_of(error)
        self.skipped[reason] += 1
        self.first.setdefault(reason, error)


def kind_of(error: RowError) -> str:
    """The reason without its place: "has no role" for "chat.jsonl, line 7, message 2 has no role."."""
    what = re.sub(r"^.*?, (?:line|row) \d+(?: \(line \d+\))?(?:, (?:message|turn) \d+)?:? ?", "", error.what)
    return MARK.sub("…", what).rstrip(".")


@dataclass(frozen=True)
class ChatWriter:
    """What turns rows into tokens: the template, the tokenizer, and what is learned."""

    template: ChatTemplate
    tokenizer: Tokenizer
    data: Data

    def encoded(
        self, rows: RowFiles, key: str | None, tally: ChatTally
    ) -> Iterator[tuple[str, WrittenChat | Plain, Encoded]]:
        """Every sample of some rows that has anything to learn, with its place and its text."""
        bad: Callable[[RowError], None] = tally.skip if self.data.bad_rows == "skip" else refuse
        batch: list[tuple[str, WrittenChat | Plain]] = []
        for placed in rows.rows(tally.progress, bad):
            tally.rows += 1
            try:
                read: Iterable[Sample] = pair_of(placed) if self.pairs else (sample_of(placed, key),)
                texts = [
                    text for each in read for text in samples_of(each, self.template, self.data.learn, placed.where)
                ]
                batch += [(placed.where, text) for text in texts]
            except RowError as error:
                bad(error)
            if len(batch) >= BATCH:
                yield from self._made(batch, tally, bad)
                batch = []
        yield from self._made(batch, tally, bad)

    @property
    def pairs(self) -> bool:
        """Whether samples come two by two: what is preferred, and what is not."""
        return self.data.learn == "preference"

    def _made(
        self, batch: list[tuple[str, WrittenChat | Plain]], tally: ChatTally, bad: Callable[[RowError], None]
    ) -> Iterator[tuple[str, WrittenChat | Plain, Encoded]]:
        together = 2 if self.pairs else 1  # of which both are used, or neither
        every = zip(batch, encode(batch, self.tokenizer), strict=True)
        for group in zip(*[every] * together, strict=True):
            wrong = next((made for _, made in group if isinstance(made, RowError)), None)
            if wrong is not None:
                bad(wrong)
                continue
            whole = [(where, text, made) for (where, text), made in group if isinstance(made, Encoded)]
            if all(made.learned[1:].any() for _, _, made in whole):
                yield from whole
            else:
                tally.skipped[NOTHING] += 1


def writer_of(data: Data, base: Path, rows: RowFiles) -> ChatWriter:
    """The template and the tokenizer that a job names."""
    kind = check_tokenizer(data.tokenizer_word, base)
    folder = kind.parent if isinstance(kind, Path) else None
    tokenizer = make_tokenizer(data.tokenizer_word, base, lambda: _texts(rows))
    return ChatWriter(find_template(data.template, base, folder, data.template_options or {}), tokenizer, data)


def _texts(rows: RowFiles) -> Iterator[str]:
    """What a tokenizer is trained on: whatever text the rows hold."""

    def strings(value: Any) -> Iterator[str]:
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict | list):
            for entry in value.values() if isinstance(value, dict) else value:
                yield from strings(entry)

    for _, row in rows.rows(bad=lambda _: None):
        yield from strings(row)


# ------------------------------------------------------------------------------------------------------- preparation


def conversations_for(data: Data, base: Path, progress: Progress | None) -> Prepared:
    """The tokens of a job's conversations, each source made into tokens once and kept."""
    made = [_kept(data, source, base, progress) for source in data.chat_sources]
    return made[0] if len(made) == 1 else mixed(made, [source.weight for source in data.chat_sources])


def kept_conversations(data: Data, base: Path) -> Prepared | None:
    """The same if all of them are there already."""
    folders = [_folder(data, source, base)[1] for source in data.chat_sources]
    if not all((folder / META_FILE).is_file() for folder in folders):
        return None
    return conversations_for(replace(data, verify=False), base, None)


def _folder(data: Data, source: ChatSource, base: Path) -> tuple[Data, Path]:
    """What one source alone is made from, and where its tokens are kept."""
    single = replace(data, chat=(replace(source, weight=1.0),))
    return single, base / data.cache / _fingerprint(single, base)


def _kept(data: Data, source: ChatSource, base: Path, progress: Progress | None) -> Prepared:
    single, folder = _folder(data, source, base)
    if not (folder / META_FILE).is_file():
        try:
            prepare_conversations(single, base, folder, progress)
        except HeddleError:
            # Another process may have made the same tokens meanwhile; then they are as good as ours.
            if not (folder / META_FILE).is_file():
                raise
    return open_prepared(folder, data.verify, data.pack)


def prepare_conversations(data: Data, base: Path, output: Path, progress: Progress | None = None) -> Prepared:
    """Make one source of conversations into a folder of tokens."""
    if len(data.chat_sources) > 1:
        raise HeddleError(
            f"{len(data.chat_sources)} sources do not go into one folder.",
            "A mixture is made of folders of its sources, which a job makes by itself.",
            "Prepare them one by one, or give them to a job as data.chat.",
        )
    refuse_existing(output)
    (source,) = data.chat_sources
    rows = find_rows(source.paths, base, source.split)
    held_out = (data.held_out,) if isinstance(data.held_out, str) else data.held_out
    apart = find_rows(held_out, base) if held_out else None
    writer = writer_of(data, base, rows)
    with whole_or_nothing(output) as folder:
        _fill(folder, writer, rows, apart, source, base, progress or (lambda *_: None))
    return open_prepared(output, verify=False, pack=data.pack)


def _fingerprint(data: Data, base: Path) -> str:
    """Changes with whatever changes the tokens; of the files it looks at size and time, not at every byte."""
    (source,) = data.chat_sources
    tokenizer = check_tokenizer(data.tokenizer_word, base)
    held_out = (data.held_out,) if isinstance(data.held_out, str) else data.held_out
    rows, apart = find_rows(source.paths, base, source.split), find_rows(held_out, base) if held_out else None
    files = dict(rows.files) | {f"held out {name}": path for name, path in (apart.files if apart else {}).items()}
    if isinstance(tokenizer, Path):
        beside = (TEMPLATE_FILE, SPECIAL_FILE, CONFIG_FILE)
        files |= {name: tokenizer.parent / name for name in beside if (tokenizer.parent / name).is_file()}
        files["tokenizer"] = tokenizer
    if data.template is not None and (base / data.template).is_file():
        files["template"] = base / data.template
    stats = [(name, path.stat()) for name, path in files.items()]
    parts = [
        "chat", FORMAT, data.tokenizer_word, source.key, source.split, rows.dataset, data.validation, data.learn,
        data.template, data.template_options, data.bad_rows,
        [(name, stat.st_size, stat.st_mtime_ns) for name, stat in stats],
    ]  # fmt: skip
    return hashlib.sha256(json.dumps(parts, default=str).encode()).hexdigest()[:16]


class DocumentFile:
    """One split as it is written: tokens, what is learned of them, and lengths."""

    def __init__(self, folder: Path, name: str, dtype: np.dtype[Any]) -> None:
        self.path, self.dtype = folder / name, dtype
        self.files = [
            path.open("wb") for path in (self.path, self.path.with_suffix(LEARNED), self.path.with_suffix(LENGTHS))
        ]
        self.tokens = self.documents = self.bytes = self.learned = self.longest = 0

    def add(self, made: Encoded, size: int) -> None:
        """Take in a document that stands for `size` bytes of text."""
        tokens, learned, lengths = self.files
        tokens.write(made.ids.astype(self.dtype).tobytes())
        learned.write(made.learned.astype(np.uint8).tobytes())
        lengths.write(np.array([len(made.ids)], LENGTHS_TYPE).tobytes())
        self.tokens += len(made.ids)
        self.documents += 1
        self.bytes += size
        self.learned += int(made.learned[1:].sum())
        self.longest = max(self.longest, len(made.ids))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self.files:
            file.close()

    def described(self) -> tuple[TokenSplit, DocumentSplit, float]:
        """What data.json says of it, and the entropy of its tokens."""
        found = measure(map_tokens(self.path, self.dtype))
        learned = map_tokens(self.path.with_suffix(LEARNED), "u1")
        lengths = map_tokens(self.path.with_suffix(LENGTHS), LENGTHS_TYPE)
        split = TokenSplit(
            tokens=self.tokens,
            documents=self.documents,
            bytes=self.bytes,
            largest=found.largest,
            sha256=found.sha256,
        )
        about = DocumentSplit(learned=self.learned, longest=self.longest, sha256=digest_documents(learned, lengths))
        return split, about, found.entropy


def _fill(
    folder: Path,
    writer: ChatWriter,
    rows: RowFiles,
    apart: RowFiles | None,
    source: ChatSource,
    base: Path,
    progress: Progress,
) -> None:
    data, tokenizer = writer.data, writer.tokenizer
    save_tokenizer(writer, folder, base)
    tally, held = ChatTally(), ChatTally()
    dtype = token_dtype(tokenizer.vocab)
    with DocumentFile(folder, TRAIN_FILE, dtype) as train, DocumentFile(folder, VALIDATION_FILE, dtype) as validation:
        goes = train
        for number, (_, text, made) in enumerate(writer.encoded(rows, source.key, tally)):
            # a conversation goes where that split is behind its share of the tokens so far, the first one to training
            if not (writer.pairs and number % 2):  # a pair goes together
                late = apart is None and validation.tokens < data.validation * (train.tokens + validation.tokens)
                goes = validation if late and train.documents else train
            goes.add(made, _bytes(text))
            progress("writing conversations", tally.progress.done, max(tally.progress.total, tally.progress.done))
        for _, text, made in writer.encoded(apart, source.key, held) if apart is not None else ():
            validation.add(made, _bytes(text))
            progress("writing what is held out", held.progress.done, max(held.progress.total, held.progress.done))
    if not train.documents:
        reasons = "; ".join(f"{count:,} × {reason}" for reason, count in (tally.skipped).most_common(3))
        raise HeddleError(
            f"There is nothing to learn in {next(iter(rows.files), rows.dataset)}.",
            f"Of {tally.rows:,} rows none is left: {reasons or 'all are empty'}.",
            "`heddle data look` shows what is learned of each.",
        )
    (first, about, entropy), (second, about_second, _) = train.described(), validation.described()
    skipped = tally.skipped + held.skipped
    meta = Meta(
        dtype=token_dtype(tokenizer.vocab).name,
        tokenizer=data.tokenizer_word,
        vocab=tokenizer.vocab,
        end=tokenizer.end,
        bytes_per_token=(first.bytes + second.bytes) / (first.tokens + second.tokens),
        unigram_entropy=entropy,
        train=first,
        validation=second,
        source=TextSource(
            text=source.paths,
            key=source.key or "",
            validation=0.0 if apart is not None else data.validation,
            files=len(rows.files) + (len(apart.files) if apart is not None else 0),
            documents=first.documents + second.documents,
            characters=0,
            bytes=first.bytes + second.bytes,
            empty=skipped[NOTHING],
            replaced=0,
        ),
        chat=Conversations(
            learn=data.learn,
            template=hashlib.sha256((writer.template.text or "").encode()).hexdigest(),
            rows=tally.rows + held.rows,
            skipped=dict(skipped),
            train=about,
            validation=about_second,
        ),
    )
    (folder / META_FILE).write_text(meta.to_json(), encoding="utf-8")


def save_tokenizer(writer: ChatWriter, folder: Path, base: Path) -> None:
    """The tokenizer with its template beside it, as it came where it came with one: chats are written by it later."""
    writer.tokenizer.save(folder)
    kind = check_tokenizer(writer.data.tokenizer_word, base)
    if isinstance(kind, Path):
        for name in (CONFIG_FILE, SPECIAL_FILE):
            if (kind.parent / name).is_file():
                shutil.copyfile(kind.parent / name, folder / name)
    if writer.template.text is not None:
        (folder / TEMPLATE_FILE).write_text(writer.template.text, encoding="utf-8")


def _bytes(text: WrittenChat | Plain) -> int:
    return len(
        (text.text if isinstance(text, WrittenChat) else text.prompt + text.completion).encode("utf-8", "replace")
    )


# ----------------------------------------------------------------------------------------------------------- mixture


def mixed(parts: list[Prepared], weights: list[float]) -> Prepared:
    """Several folders as one: samples take turns by weight."""

    def together(name: str) -> Trained:
        found = [(getattr(part, name), weight) for part, weight in zip(parts, weights, strict=True)]
        some = [
            (documents, weight) for documents, weight in found if isinstance(documents, Documents) and len(documents)
        ]
        if not some:
            return parts[0].validation if name == "validation" else parts[0].train
        return MixedDocuments(tuple(documents for documents, _ in some), tuple(weight for _, weight in some))

    metas = [part.meta for part in parts]
    first = metas[0]
    if len({meta.vocab for meta in metas}) > 1 or any(meta.chat is None for meta in metas):
        raise HeddleError(
            "The sources of the mixture have different tokenizers.",
            f"Their vocabularies have {', '.join(str(meta.vocab) for meta in metas)} tokens.",
            "Name one tokenizer for all.",
        )
    chats = [meta.chat for meta in metas if meta.chat is not None]
    meta = replace(
        first,
        train=_sum([meta.train for meta in metas], weights),
        validation=_sum([meta.validation for meta in metas], weights),
        source=replace(
            first.source,
            text=tuple(path for meta in metas for path in meta.source.text),
            files=sum(meta.source.files for meta in metas),
            documents=sum(meta.source.documents for meta in metas),
            bytes=sum(meta.source.bytes for meta in metas),
            empty=sum(meta.source.empty for meta in metas),
        ),
        chat=replace(
            chats[0],
            rows=sum(chat.rows for chat in chats),
            skipped=dict(sum((Counter(chat.skipped) for chat in chats), Counter())),
            train=_sum_documents([chat.train for chat in chats]),
            validation=_sum_documents([chat.validation for chat in chats]),
        ),
    )
    return Prepared(parts[0].folder, together("train"), together("validation"), meta)


def _sum(splits: list[TokenSplit], weights: list[float]) -> TokenSplit:
    digest = hashlib.sha256(json.dumps([[split.sha256 for split in splits], weights]).encode()).hexdigest()
    return TokenSplit(
        tokens=sum(split.tokens for split in splits),
        documents=sum(split.documents for split in splits),
        bytes=sum(split.bytes for split in splits),
        largest=max(split.largest for split in splits),
        sha256=digest,
    )


def _sum_documents(splits: list[DocumentSplit]) -> DocumentSplit:
    return DocumentSplit(
        learned=sum(split.learned for split in splits),
        longest=max(split.longest for split in splits),
        sha256=hashlib.sha256("".join(split.sha256 for split in splits).encode()).hexdigest(),
    )

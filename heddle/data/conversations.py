"""Conversations to folders of tokens: each source is made into tokens once and kept."""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import replace
from pathlib import Path

from heddle.data.chat_writer import NOTHING, ChatTally, ChatWriter, writer_of
from heddle.data.chats import Plain
from heddle.data.document_file import DocumentFile
from heddle.data.mixed_folders import mixed
from heddle.data.output import Progress, refuse_existing
from heddle.data.rows import RowFiles, find_rows
from heddle.data.template import (
    SPECIAL_FILE,
    TEMPLATE_FILE,
    WrittenChat,
)
from heddle.data.tokenizer import CONFIG_FILE, check_tokenizer, token_dtype
from heddle.data.tokens import (
    FORMAT,
    META_FILE,
    TRAIN_FILE,
    VALIDATION_FILE,
    Conversations,
    Meta,
    Prepared,
    TextSource,
    open_prepared,
)
from heddle.durable import whole_or_nothing
from heddle.errors import HeddleError
from heddle.spec.data import ChatSource, Data


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

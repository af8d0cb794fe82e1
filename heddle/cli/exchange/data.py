"""`heddle data`: make text into tokens, once, ahead of training; look at what conversations teach."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heddle.cli.help import Command, CommandGroup
from heddle.cli.ranged import ranged

if TYPE_CHECKING:
    from rich.table import Table

    from heddle.data import Prepared
    from heddle.data.look import DataLook

app = typer.Typer(cls=CommandGroup, help="Tokenize text and conversations.", no_args_is_help=True)


@app.command(cls=Command)
def prepare(
    text: Annotated[list[str], typer.Argument(help="Files or globs of text or .jsonl; 'stdlib:*.py' is Python's own.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder to create.")],
    tokenizer: Annotated[
        str, typer.Option("--tokenizer", "-t", help="bytes, bpe:SIZE, or the path of a tokenizer.json.")
    ] = "bytes",
    validation: Annotated[float, ranged(within="[0, 1)", help="Fraction of the tokens kept for evaluation.")] = 0.05,
    key: Annotated[str, typer.Option(help="The field of a JSONL line that holds the text.")] = "text",
    chat: Annotated[
        bool, typer.Option("--chat", help="The files are conversations, written by a chat template.")
    ] = False,
    template: Annotated[str | None, typer.Option(help="With --chat: a .jinja file, or chatml.")] = None,
) -> None:
    """Turn text, or conversations, into a folder of tokens, which jobs use as data.tokens."""
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    from heddle.console import plain_console
    from heddle.data import prepare
    from heddle.spec.data import Data

    texts, chats = ((), tuple(text)) if chat else (tuple(text), ())
    data = Data(text=texts, chat=chats, tokenizer=tokenizer, validation=validation, key=key, template=template)
    errors = plain_console(stderr=True)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal) as bar:
        task = bar.add_task("reading", total=None)
        prepared = prepare(
            data,
            Path(),
            output,
            lambda doing, done, total: bar.update(task, description=doing, completed=done, total=total),
        )
    plain_console().print(_summary(prepared))


@app.command(cls=Command)
def look(
    chat: Annotated[
        list[str], typer.Argument(help="Conversations: .jsonl, .json, .csv, .parquet, globs, or datasets:NAME.")
    ],
    tokenizer: Annotated[
        str,
        typer.Option("--tokenizer", "-t", help="A folder with a tokenizer.json, as of a Hugging Face model; or bytes."),
    ],
    template: Annotated[
        str | None, typer.Option(help="A .jinja file, or chatml; the tokenizer's own if left out.")
    ] = None,
    learn: Annotated[
        str, typer.Option(help="assistant, last, each, all or preference: what is learned.")
    ] = "assistant",
    key: Annotated[str | None, typer.Option(help="The field to learn from, where it is not one of the usual.")] = None,
    samples: Annotated[int, ranged(within="[0, 1000]", help="How many samples to show.")] = 3,
    sequence: Annotated[
        int, ranged(within="[0, 1e9]", help="Say how many samples are longer than this; 0: do not.")
    ] = 0,
    strict: Annotated[bool, typer.Option("--strict", help="Stop at the first row that is not right.")] = False,
) -> None:
    """Show what a job would learn from conversations: samples, counts, lengths, and what is left out and why."""
    from heddle.console import plain_console
    from heddle.data.look import colored, look
    from heddle.spec.data import Data
    from heddle.spec.tables import build

    source = {"path": chat} | ({} if key is None else {"key": key})
    words = {"tokenizer": tokenizer, "learn": learn, "bad_rows": "refuse" if strict else "skip"}
    data = build(Data, words | {"chat": [source]} | ({} if template is None else {"template": template}), "data")
    console = plain_console()
    for looked in look(data, Path(), samples):
        for sample in looked.samples:
            console.print(f"{sample.where}: {sample.learned:,} of {sample.tokens:,} tokens are learned", style="bold")
            console.print(colored(sample, console.is_terminal), soft_wrap=True)
        console.print(_looked(looked, sequence))


def _looked(looked: DataLook, sequence: int) -> Table:
    from rich.table import Table

    table = Table(box=None, show_header=False, pad_edge=False)
    lengths = ", ".join(
        f"{length:,} ({'longest' if q == 1 else f'{q:.0%}'})" for q, length in looked.quantiles().items()
    )
    table.add_row("rows", f"{looked.rows:,} in {looked.name}")
    table.add_row("samples", f"{len(looked.lengths):,}")
    share = looked.learned / max(1, looked.tokens)
    table.add_row("tokens", f"{looked.tokens:,}, of which {looked.learned:,} are learned ({share:.1%})")
    table.add_row("lengths", lengths)
    if sequence:
        table.add_row(f"longer than {sequence:,}", f"{looked.longer_than(sequence):,}, cut at their end")
    for reason, count in looked.skipped.most_common():
        first = f"; first: {looked.first[reason].what}" if reason in looked.first else ""
        table.add_row("left out", f"{count:,} × {reason}{first}")
    return table


def _summary(prepared: Prepared) -> Table:
    from rich.table import Table

    meta, source = prepared.meta, prepared.meta.source
    left_out = ", ".join(
        f"{count:,} {what}"
        for count, what in ((source.empty, "empty"), (source.replaced, "bytes not UTF-8, read as U+FFFD"))
        if count
    )
    table = Table(box=None, show_header=False, pad_edge=False)
    rows = {
        "files": f"{source.files:,}",
        "documents": f"{source.documents:,}" + (f" ({left_out})" if left_out else ""),
        "tokens": f"{meta.train.tokens:,} to train, {meta.validation.tokens:,} to validate",
        "vocabulary": f"{meta.vocab:,} ({meta.tokenizer})",
        "bytes per token": f"{meta.bytes_per_token:.3f}",
        **_conversations(prepared),
        "unigram entropy": f"{meta.unigram_entropy:.3f} nats, the loss of guessing by frequency alone",
        "folder": str(prepared.folder),
    }
    for name, value in rows.items():
        table.add_row(name, value)
    return table


def _conversations(prepared: Prepared) -> dict[str, str]:
    chat = prepared.meta.chat
    if chat is None:
        return {}
    skipped = sum(chat.skipped.values())
    return {
        "learned": f"{chat.train.learned:,} to train, {chat.validation.learned:,} to validate",
        "rows": f"{chat.rows:,}" + (f", {skipped:,} left out" if skipped else ""),
    }

"""`heddle data`: make text into tokens, once, ahead of training."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heddle.cli.help import Command, Group
from heddle.cli.ranged import ranged

if TYPE_CHECKING:
    from rich.table import Table

    from heddle.data import Prepared

app = typer.Typer(cls=Group, help="Tokenize text.", no_args_is_help=True)


@app.callback()
def _data() -> None:
    """Keeps `prepare` a word of its own: Typer would fold a group with one command into the command."""


@app.command(cls=Command)
def prepare(
    text: Annotated[list[str], typer.Argument(help="Files or globs of text or .jsonl; 'stdlib:*.py' is Python's own.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder to create.")],
    tokenizer: Annotated[
        str, typer.Option("--tokenizer", "-t", help="bytes, bpe:SIZE, or the path of a tokenizer.json.")
    ] = "bytes",
    validation: Annotated[float, ranged(within="[0, 1)", help="Fraction of the tokens kept for evaluation.")] = 0.05,
    key: Annotated[str, typer.Option(help="The field of a JSONL line that holds the text.")] = "text",
) -> None:
    """Turn text into a folder of tokens, which jobs use as data.tokens."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    from heddle.data import prepare
    from heddle.spec.job import Data

    data = Data(text=tuple(text), tokenizer=tokenizer, validation=validation, key=key)
    errors = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal) as bar:
        task = bar.add_task("reading", total=None)
        prepared = prepare(
            data,
            Path(),
            output,
            lambda doing, done, total: bar.update(task, description=doing, completed=done, total=total),
        )
    Console().print(_summary(prepared))


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
        "unigram entropy": f"{meta.unigram_entropy:.3f} nats, the loss of guessing by frequency alone",
        "folder": str(prepared.folder),
    }
    for name, value in rows.items():
        table.add_row(name, value)
    return table

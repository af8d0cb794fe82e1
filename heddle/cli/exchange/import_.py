"""`heddle import`: weights from elsewhere become a checkpoint, launch lines of other trainers a job."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heddle.cli.exchange.trainers import add_imports
from heddle.cli.help import Command, CommandGroup

if TYPE_CHECKING:
    from heddle.checkpoint.exchange.convert import Converted

app = typer.Typer(
    cls=CommandGroup,
    help="Make a checkpoint of other systems' weights, or a job of their launch lines.",
    no_args_is_help=True,
)


@app.command(cls=Command)
def hf(
    folder: Annotated[Path, typer.Argument(help="A model's folder: config.json and safetensors.", metavar="FOLDER")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The checkpoint to create.")],
    check: Annotated[bool, typer.Option(help="Compare logits with transformers, if it is installed.")] = True,
) -> None:
    """Turn a Hugging Face folder into a checkpoint, which jobs use as train.from."""
    from heddle.cli.common import require_torch

    require_torch("import")

    from heddle.checkpoint.exchange.agreement import Agreed
    from heddle.checkpoint.exchange.convert import import_huggingface
    from heddle.checkpoint.source import checkpoint_source, huggingface_source
    from heddle.console import plain_console

    source = huggingface_source(folder)
    agreed = Agreed(source.model, check)
    written = import_huggingface(source, output, lambda made: agreed.check(folder, checkpoint_source(made)))
    console = plain_console(soft_wrap=True)
    console.print(f"{source.model.name}: {source.model.parameters:,} parameters, {summary(written)}.")
    console.print(str(agreed))
    console.print(f'Start a run from it with [train] from = "{output}": its model and tokenizer are used.')


def summary(written: Converted) -> str:
    """What was written, in a few words."""
    from heddle.format import size

    beside = f", with {', '.join(written.companions)}" if written.companions else ""
    return f"{size(written.bytes)} in {written.files} file{'s' * (written.files > 1)} at {written.folder}{beside}"


add_imports(app)

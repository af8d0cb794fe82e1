"""`heddle import`: weights from elsewhere become a checkpoint, launch lines of other trainers a job."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heddle.cli.exchange.trainers import Dtype, add_imports
from heddle.cli.help import Command, CommandGroup
from heddle.cli.ranged import POSITIVE, ranged

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


class CheckpointTrainer(StrEnum):
    """Whose checkpoints are read."""

    TORCHTITAN = "torchtitan"
    MEGATRON = "megatron"


@app.command(cls=Command)
def dcp(
    folder: Annotated[Path, typer.Argument(help="The checkpoint of one step, or of several: the last.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The Hugging Face folder to create.")],
    trainer: Annotated[CheckpointTrainer, typer.Option(help="Who wrote it; megatron: its torch_dist format.")],
    model: Annotated[str, typer.Option(help="What was trained: a preset, or a config.json.")],
    dtype: Annotated[Dtype | None, typer.Option(help="Round the weights to this type.")] = None,
    shard_gib: Annotated[
        float, ranged(within=POSITIVE, help="The largest file, and about the most held in memory at once.")
    ] = 5.0,
) -> None:
    """Turn a distributed checkpoint of torchtitan or Megatron-LM into a Hugging Face folder, for train.from."""
    from heddle.cli.common import require_torch

    require_torch("import")

    from heddle.checkpoint.exchange.distributed import import_distributed
    from heddle.console import plain_console
    from heddle.format import GIB
    from heddle.runtime.device import DTYPES
    from heddle.spec.shorthand import named_model

    shape = named_model(model)
    rounded = None if dtype is None else DTYPES[dtype.value]
    written = import_distributed(folder, output, trainer.value, shape, rounded, int(shard_gib * GIB))
    console = plain_console(soft_wrap=True)
    console.print(f"{shape.name}: {shape.parameters:,} parameters, {summary(written)}.")
    console.print("Copy the tokenizer's files beside it: a distributed checkpoint has none.")


def summary(written: Converted) -> str:
    """What was written, in a few words."""
    from heddle.format import size

    beside = f", with {', '.join(written.companions)}" if written.companions else ""
    return f"{size(written.bytes)} in {written.files} file{'s' * (written.files > 1)} at {written.folder}{beside}"


add_imports(app)

"""`heddle export`: weights for other systems."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from heddle.cli.help import Command, Group
from heddle.cli.ranged import POSITIVE, ranged
from heddle.format import GIB

app = typer.Typer(cls=Group, help="Write weights for other systems.", no_args_is_help=True)


class Dtype(StrEnum):
    """What numbers may be rounded to."""

    FP32 = "fp32"
    BF16 = "bf16"
    FP16 = "fp16"


@app.callback()
def _export() -> None:
    """Keeps `hf` a word of its own: Typer would fold a group with one command into the command."""


@app.command(cls=Command)
def hf(
    weights: Annotated[Path, typer.Argument(help="A run or a checkpoint.", metavar="RUN|CHECKPOINT")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder to create.")],
    dtype: Annotated[
        Dtype | None, typer.Option(help="Round the weights to this type. Default: leave them as they are.")
    ] = None,
    shard_gib: Annotated[
        float, ranged(within=POSITIVE, help="The largest file, and the most held in memory at once.")
    ] = 5.0,
    check: Annotated[bool, typer.Option(help="Compare logits with transformers, if it is installed.")] = True,
) -> None:
    """Write the weights of a run or a checkpoint as a Hugging Face folder, tokenizer included."""
    from heddle.cli.common import require_torch

    require_torch("export")

    from functools import partial

    from rich.console import Console

    from heddle.checkpoint.exchange.agreement import Agreed
    from heddle.checkpoint.exchange.convert import export_huggingface
    from heddle.checkpoint.source import find_source
    from heddle.cli.exchange.import_ import summary
    from heddle.parallel.mesh import Mesh
    from heddle.runtime.device import DTYPES

    source = find_source(weights, Mesh(), partial(typer.secho, err=True))
    rounded = None if dtype is None else DTYPES[dtype.value]
    agreed = Agreed(source.model, check)
    shard = int(shard_gib * GIB)
    written = export_huggingface(source, output, rounded, shard, lambda made: agreed.check(made, source, rounded))
    console = Console(highlight=False, soft_wrap=True, markup=False)
    console.print(f"{source.model.name}: {source.model.parameters:,} parameters, {summary(written)}.")
    console.print(str(agreed))

"""`heddle export`: weights for other systems, and plans for other trainers."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from heddle.cli.exchange.trainers import Dtype, add_exports
from heddle.cli.help import Command, CommandGroup
from heddle.cli.ranged import POSITIVE, ranged
from heddle.format import GIB

app = typer.Typer(
    cls=CommandGroup, help="Write weights for other systems, and plans for other trainers.", no_args_is_help=True
)


class Base(StrEnum):
    """What adapters of a run with a base in four bits are added to."""

    TRAINED = "trained"
    ORIGINAL = "original"


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
    onto: Annotated[
        Base | None,
        typer.Option(
            help="With tune.base = 'nf4', what adapters are added to: the base that they learned beside, or the "
            "original weights. Default: trained. Both errors are reported."
        ),
    ] = None,
) -> None:
    """Write the weights of a run or a checkpoint as a Hugging Face folder, tokenizer included."""
    from heddle.cli.common import require_torch

    require_torch("export")

    from functools import partial

    from heddle.checkpoint.exchange.agreement import Agreed
    from heddle.checkpoint.exchange.convert import export_huggingface
    from heddle.checkpoint.exchange.merge import merge_errors, merged_onto
    from heddle.checkpoint.source import find_source
    from heddle.cli.exchange.import_ import summary
    from heddle.console import plain_console
    from heddle.parallel.mesh import Mesh
    from heddle.runtime.device import DTYPES

    found = find_source(weights, Mesh(), partial(typer.secho, err=True))
    source = merged_onto(found, None if onto is None else onto.value)
    rounded = None if dtype is None else DTYPES[dtype.value]
    agreed = Agreed(source.model, check)
    shard = int(shard_gib * GIB)
    written = export_huggingface(source, output, rounded, shard, lambda made: agreed.check(made, source, rounded))
    console = plain_console(soft_wrap=True)
    console.print(f"{source.model.name}: {source.model.parameters:,} parameters, {summary(written)}.")
    console.print(str(agreed))
    if check and (errors := merge_errors(found, rounded)) is not None:
        console.print(str(errors))


@app.command(cls=Command)
def peft(
    run: Annotated[
        Path, typer.Argument(help="A run with [tune], or one of its checkpoints.", metavar="RUN|CHECKPOINT")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder to create.")],
    base: Annotated[str | None, typer.Option(help="What the folder calls its base; train.from if left out.")] = None,
) -> None:
    """Write the adapters of a run as PEFT reads them; export hf writes the weights with adapters added."""
    from heddle.cli.common import require_torch

    require_torch("export")

    from functools import partial

    from heddle.checkpoint.adapters import export_peft
    from heddle.console import plain_console

    written = export_peft(run, output, partial(typer.secho, err=True), base)
    plain_console(soft_wrap=True).print(f"Wrote the adapters to {written}.", highlight=False)


add_exports(app)

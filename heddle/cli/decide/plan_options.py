"""The options of `heddle plan`; those that fix fields of a plan are one for each field that says how it is taken."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from heddle.cli.ranged import COUNT, POSITIVE, ranged
from heddle.planning.fields import FIELDS, FieldOption

GIVEN = "What to plan, in place of a job file or of its keys"
SEARCH = "What to look for"
FIXED = "Fixed fields of the plan; the rest is searched"

JobFile = Annotated[
    Path | None, typer.Argument(help="A job file; whatever its [plan] sets is kept.", metavar="[JOB.toml]")
]
Top = Annotated[int, ranged(within=COUNT, help="How many plans to show.")]
Explain = Annotated[bool, typer.Option("--explain", help="Say why this plan, and why not others.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print it as JSON.")]
Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", help="Write the job with the best plan to this file.", metavar="PLAN.toml"),
]
Objective = Annotated[
    str,
    typer.Option(
        help="fastest step, cheapest step, fewest devices by --days, or smallest memory.", rich_help_panel=SEARCH
    ),
]
MemoryGib = Annotated[
    float | None, ranged(within=POSITIVE, help="Use at most this much memory per device.", rich_help_panel=SEARCH)
]
Days = Annotated[
    float | None, ranged(within=POSITIVE, help="The deadline for --objective fewest.", rich_help_panel=SEARCH)
]
Tokens = Annotated[
    float | None,
    ranged(
        within="[1, 1e18]",
        help="Tokens to train on, for days and dollars. Default: the job's steps.",
        rich_help_panel=SEARCH,
    ),
]
Price = Annotated[float | None, ranged(within=POSITIVE, help="Dollars per device-hour: say what training costs.")]
Devices = Annotated[
    int | None, ranged(within=COUNT, help="Use this many of the cluster's devices.", rich_help_panel=SEARCH)
]
Free = Annotated[
    bool,
    typer.Option("--free", help="Search all plans, and say how the file's [plan] compares.", rich_help_panel=SEARCH),
]
ByLayer = Annotated[
    bool | None,
    typer.Option(
        "--by-layer/--no-by-layer",
        help="Choose recompute, zero and offload layer by layer. Default: where that is faster by more than 1 %.",
        show_default=False,
        rich_help_panel=SEARCH,
    ),
]
AllowDelay = Annotated[
    bool,
    typer.Option("--allow-delay", help="Also consider late updates; the loss may differ.", rich_help_panel=SEARCH),
]
AllowCompression = Annotated[
    str | None,
    typer.Option(
        "--allow-compression",
        help="Over a network, also let links between groups carry bf16, int8 or int4, no narrower than this; the "
        "loss may differ.",
        metavar="CODE",
        rich_help_panel=SEARCH,
    ),
]
Model = Annotated[
    str | None,
    typer.Option(
        help="A preset, or a config.json from Hugging Face.", metavar="NAME|CONFIG.json", rich_help_panel=GIVEN
    ),
]
Cluster = Annotated[
    str | None,
    typer.Option(
        help="A preset, or a file. Default: the job's, or this machine.",
        metavar="NAME|FILE.toml",
        rich_help_panel=GIVEN,
    ),
]
Nodes = Annotated[int | None, ranged(within="[1, 1e6]", help="How many nodes the cluster has.", rich_help_panel=GIVEN)]
GlobalBatch = Annotated[int | None, ranged(within=COUNT, help="Samples per step.", rich_help_panel=GIVEN)]
SequenceLength = Annotated[
    int | None, ranged(within=COUNT, help="Tokens per sample. Default: the model's longest.", rich_help_panel=GIVEN)
]
Precision = Annotated[
    str | None, typer.Option(help="fp32, bf16 or fp16. Default: the best for the devices.", rich_help_panel=GIVEN)
]
Network = Annotated[
    Path | None,
    typer.Option(help="Plan over this network, in place of a cluster.", metavar="FILE.toml", rich_help_panel=GIVEN),
]
Changes = Annotated[
    list[str] | None,
    typer.Option("--set", help="Change a key: --set train.steps=50.", metavar="TABLE.KEY=VALUE", rich_help_panel=GIVEN),
]

Command = TypeVar("Command", bound=Callable[..., None])


def takes_fixed_fields(command: Command) -> Command:
    """Give a command these options in place of its `**fixed`, under which it gets them; see `fixed_of`."""
    signature = inspect.signature(command, eval_str=True)
    own = [each for each in signature.parameters.values() if each.kind is not each.VAR_KEYWORD]
    more = [_parameter(each.name, each.option) for each in FIELDS if each.option is not None]
    command.__signature__ = signature.replace(parameters=[*own, *more])  # type: ignore[attr-defined]
    command.__annotations__ |= {each.name: each.annotation for each in more}  # from which the manual has their types
    return command


def _parameter(field: str, option: FieldOption) -> inspect.Parameter:
    settings = {"help": option.help, "rich_help_panel": FIXED}
    taken = ranged(within=option.within, **settings) if option.within else typer.Option(**settings)  # type: ignore[arg-type]
    return inspect.Parameter(
        option.name or field,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[option.kind | None, taken],
    )


def fixed_of(options: dict[str, Any]) -> dict[str, Any]:
    """The fields of a plan that were given as options."""
    named = {each.name: options[each.option.name or each.name] for each in FIELDS if each.option is not None}
    return {name: value for name, value in named.items() if value is not None}

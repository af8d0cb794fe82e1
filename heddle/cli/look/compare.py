"""`heddle compare`: which of two jobs learns faster."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from heddle.cli.ranged import ranged
from heddle.errors import HeddleError


def compare(
    first: Annotated[Path, typer.Argument(help="A job file, or a run's folder.", metavar="A.toml|RUN")],
    second: Annotated[Path, typer.Argument(help="The other job file or run folder.", metavar="B.toml|RUN")],
    seeds: Annotated[int, ranged(within="[1, 1000]", help="How often to train each, with different seeds.")] = 3,
    loss: Annotated[
        float | None, ranged(within="(0, 1e3]", help="The loss to reach. Default: the lowest that all runs reach.")
    ] = None,
    name: Annotated[str, typer.Option(help="The runs go to RUNS/NAME.")] = "compare",
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Write the page to this file.", metavar="FILE.html")
    ] = Path("compare.html"),
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", help="Change a key of both: --set train.steps=50", metavar="TABLE.KEY=VALUE"),
    ] = None,
) -> None:
    """Train two jobs on the same data, and plot their loss over tokens and time, with the spread over seeds."""
    from heddle.cli.common import check_page, load_with_changes, require_torch, write_output

    require_torch("compare")
    from rich.console import Console

    from heddle.report.losses import losses_page
    from heddle.train import compare as comparing

    check_page(output)
    console = Console(highlight=False, soft_wrap=True, stderr=as_json)
    paths = (first, second)
    names = _names(paths)
    if all(path.is_dir() for path in paths):
        found = comparing.compare_runs(list(zip(names, paths, strict=True)), loss)
    elif any(path.is_dir() for path in paths):
        raise HeddleError(
            f"{first} and {second} are a run and a job file.",
            "Two runs are compared as they are; two jobs are trained in turns first.",
            "Give two run folders, or two job files.",
        )
    else:
        jobs = [(label, load_with_changes(path, changes or [])) for label, path in zip(names, paths, strict=True)]
        trained = comparing.compare(jobs, seeds, loss, name, console.print)
        if trained is None:
            console.print("Stopped. Run the same command to continue.")
            return
        found = trained
    write_output(output, losses_page(found.settings, found.loss, found.in_words()))
    for line in (*found.in_words(), f"The curves are in {output}."):
        console.print(line, markup=False)
    if as_json:
        import json

        typer.echo(json.dumps(found.to_json()))


def _names(paths: tuple[Path, Path]) -> list[str]:
    """What to call the two: the files' names, told apart where they are the same."""
    names = [path.absolute().name if path.is_dir() else path.stem for path in paths]
    return names if names[0] != names[1] else [f"{names[0]}-a", f"{names[1]}-b"]

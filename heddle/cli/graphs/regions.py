"""`heddle regions`: who holds which stage of which pipeline, over links that differ."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from heddle.cli.ranged import COUNT, COUNT_OR_ZERO, POSITIVE, ranged
from heddle.errors import HeddleError


def regions(
    file: Annotated[Path, typer.Argument(help="Networks and a workload.", metavar="CASES.json")],
    job: Annotated[Path | None, typer.Option("--job", hidden=True)] = None,
    case: Annotated[str | None, typer.Option("--case", help="Which network of the file, if it has several.")] = None,
    pipeline: Annotated[
        int | None,
        ranged("--pipeline", within=COUNT, help="Stages. Default: the file's. Replicas follow from the devices."),
    ] = None,
    data: Annotated[int | None, ranged("--data", within=COUNT, help="Replicas per stage. Default: the file's.")] = None,
    time_limit: Annotated[
        float, ranged("--time-limit", within=POSITIVE, help="CPU seconds, then the best so far.")
    ] = 3.0,
    seed: Annotated[int, ranged("--seed", within=COUNT_OR_ZERO, help="Random seed of the search.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")] = False,
) -> None:
    """Choose which device holds which stage when links differ: sites, regions, spot machines (DT-FM)."""
    # Imported here so that `heddle --help` does not pay for them.
    import json

    from heddle.console import plain_console
    from heddle.planning.regions import read_case, solve
    from heddle.planning.regions.text import draw

    if job is not None:
        raise HeddleError(
            "`heddle regions` no longer plans a job.",
            "There is one planner for jobs, over a cluster or over a network.",
            f"Use `heddle plan {job} --network {file}`.",
        )
    console = plain_console()
    chosen = read_case(file, case, pipeline, data)
    found = solve(chosen.problem, time_limit, seed)
    if as_json:
        facts = {
            "cost": found.layout.cost,
            "data": found.layout.data,
            "pipeline": found.layout.pipeline,
            "layout": found.layout.devices.tolist(),
            "bound": found.bound,
            "seconds": found.seconds,
        }
        console.out(json.dumps(facts))
        return
    for line in draw(chosen, found, console.width):
        console.print(line, soft_wrap=True, markup=False)

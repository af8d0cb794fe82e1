"""`heddle regions`: who holds which stage of which pipeline, over links that differ."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heddle.cli.ranged import COUNT, COUNT_OR_ZERO, POSITIVE, ranged

if TYPE_CHECKING:
    from rich.console import Console


def regions(
    file: Annotated[
        Path, typer.Argument(help="Networks and a workload, CASES.json; with --job, a network, NETWORK.toml.")
    ],
    job: Annotated[
        Path | None, typer.Option("--job", help="Plan this job over the network, by its predicted step time.")
    ] = None,
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

    from rich.console import Console

    from heddle.plan.regions import read_case, solve
    from heddle.plan.regions.text import draw

    console = Console(highlight=False)
    if job is not None:
        _over_network(console, file, job, time_limit, as_json)
        return
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


def _over_network(console: Console, file: Path, job: Path, time_limit: float, as_json: bool) -> None:
    """Plans of a job over a network: the best of each pair of degrees, and who holds what in the fastest."""
    import json

    from heddle.plan.regions.for_job import plans_over
    from heddle.plan.search.describe import in_words
    from heddle.spec.job import load_job
    from heddle.spec.network.network_file import load_network
    from heddle.spec.ranks import groups
    from heddle.spec.tables import to_table

    network = load_network(file)
    found = plans_over(load_job(job), network, time_limit)
    if as_json:
        rows = [{"plan": to_table(each.plan), "devices": each.devices, **vars(each.step)} for each in found]
        console.out(json.dumps({"plans": rows}))
        return
    for each in found:
        step = each.step
        console.print(f"{step.seconds:.3g} s per step  {in_words(each.plan)}", markup=False, soft_wrap=True)
        console.print(
            f"    {step.pipeline:.3g} s pipeline, {step.exchange:.3g} s exchange of gradients, "
            f"{step.agreement:.3g} s agreement on loss and norm"
        )
    best = found[0]
    first = dict(zip((group.name for group in network.groups), network.first_device, strict=True))
    names = [f"{name}:{device - first[name]}" for device, name in enumerate(network.group_of)]
    for replica, ranks in enumerate(groups(best.plan, "pipeline")):
        held = " → ".join(names[best.devices[rank]] for rank in ranks)
        console.print(f"pipeline {replica}: {held}", markup=False, soft_wrap=True)
    order = " ".join(names[device] for device in best.devices)
    console.print(f"Start the ranks in this order: {order}", markup=False, soft_wrap=True)

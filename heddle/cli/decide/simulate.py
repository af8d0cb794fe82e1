"""`heddle simulate`: how long a step takes, where the time goes, what each stage holds, before anything is spent."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heddle.cli.ranged import ranged

if TYPE_CHECKING:
    from rich.console import Console

    from heddle.simulate.simulation import Simulation


def simulate(
    plan: Annotated[
        Path, typer.Argument(help="A job file; without a [plan] it is planned first.", metavar="PLAN.toml")
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
    trace: Annotated[
        Path | None,
        typer.Option(help="Write the timeline of the step: .json for ui.perfetto.dev, .svg or .png.", metavar="FILE"),
    ] = None,
    memory: Annotated[bool, typer.Option("--memory", help="Show the memory of every stage, item by item.")] = False,
    tokens: Annotated[
        float | None,
        ranged(within="[1, 1e18]", help="Say how many days this many tokens take. Default: the job's own."),
    ] = None,
    changes: Annotated[
        list[str] | None, typer.Option("--set", help="Change a key: --set plan.tensor=4.", metavar="TABLE.KEY=VALUE")
    ] = None,
) -> None:
    """Predict a training step: its time, the memory of each stage, and whether it fits."""
    import json

    from rich.console import Console

    from heddle.cli.common import load_with_changes, write_trace
    from heddle.simulate.simulation import simulate as predict

    loaded = load_with_changes(plan, changes or [])
    found = None
    if loaded.plan is None and loaded.network is not None:
        from heddle.plan.regions.network_search import search_network

        loaded = search_network(loaded).job
    if loaded.plan is None:
        from heddle.plan.search.search import search

        found = search(loaded)
    prediction = predict(loaded) if found is None else found.best
    job = prediction.job
    budget = tokens if tokens is not None else float(job.train.steps * job.tokens_per_step)
    console = Console(highlight=False)
    written = write_trace(trace, prediction.trace, prediction.memory_curves) if trace is not None else ""
    if as_json:
        from heddle.spec.tables import to_table

        facts = prediction.to_json() | {"tokens": budget, "days": prediction.days(budget)}
        facts |= {"plan": to_table(prediction.plan), "planned": found is not None}
        console.out(json.dumps(facts))
    else:
        if found is not None:
            from heddle.plan.search.describe import planned_in_words

            said = f"{plan} has no [plan]. {planned_in_words(found.best, found.feasible)}\n"
            console.print(said, markup=False, soft_wrap=True)
        show(console, prediction, budget, memory)
        if written:
            console.print(f"\n{written}", soft_wrap=True)
    prediction.check_fits()


MOST = 100  # columns of a bar
TALL = 16  # rows of a picture that is shown unasked


def show(console: Console, prediction: Simulation, tokens: float, memory: bool) -> None:
    """For people."""
    from heddle.errors import listing
    from heddle.format import duration, figures, tokens_in_words
    from heddle.simulate.network.devices import devices_of
    from heddle.spec.ranks import split_in_words
    from heddle.spec.software import HEDDLE
    from heddle.trace.bars import bar
    from heddle.trace.terminal import draw

    job, plan, cluster = prediction.job, prediction.plan, prediction.cluster
    used = devices_of(plan, cluster, prediction.network)
    devices = listing(f"{count:,} × {device.name}" for device, count in used.items())
    console.print(
        f"{job.model.name}: {job.model.parameters:,} parameters on {devices} "
        f"({split_in_words(plan)}), {job.precision_in_words}",
        soft_wrap=True,
    )
    seconds = prediction.step_seconds
    unit, scale = ("s", 1.0) if seconds >= 0.1 else ("ms", 1e3)
    console.print(f"step        {figures(scale * seconds)} {unit} for {job.tokens_per_step:,} tokens")
    console.print(f"speed       {prediction.tokens_per_second:,.0f} tokens/s")
    console.print(f"utilisation {prediction.mfu:.1%} of peak for the model (MFU), {prediction.hfu:.1%} in all (HFU)")
    console.print(f"bubble      {prediction.bubble:.1%} of the ideal time")
    console.print(f"training    {duration(86_400 * prediction.days(tokens))} for {tokens_in_words(tokens)} tokens")
    console.print()
    decimals = len(figures(scale * seconds).partition(".")[2])
    parts = {name: float(value) for name, value in prediction.breakdown._asdict().items()}
    console.print(bar(parts, min(console.width, MOST)), soft_wrap=True)
    for name, value in parts.items():
        if name == "moved" and not value:
            continue  # most plans offload nothing
        console.print(f"{name:<11} {scale * value:>9.{decimals}f} {unit} {value / seconds:>7.1%}")
    console.print()
    if 1 < plan.pipeline <= (plan.pipeline if memory else TALL):
        console.print(draw(prediction.trace, console.width), soft_wrap=True)
        console.print()
    show_memory(console, prediction, memory)
    console.print(f"\nefficiency of '{cluster.name}': {cluster.efficiency.source}", soft_wrap=True)
    console.print(f"software: {cluster.software or HEDDLE}", soft_wrap=True)


def show_memory(console: Console, prediction: Simulation, every: bool) -> None:
    """The bill of every stage, or of the fullest."""
    from rich.text import Text

    from heddle.format import GIB, memory_unit
    from heddle.trace.bars import legend, memory_bar, memory_scale

    bills, limit, most = prediction.memory, prediction.limit, prediction.worst
    unit, size = memory_unit(most)
    names = bills[0]._fields
    console.print(f"{unit:<9}" + "".join(f"{name:>12}" for name in (*names, "total", "headroom")), soft_wrap=True)
    for number, bill in enumerate(bills):
        if every or number == prediction.fullest:
            cells = [*bill, bill.total, limit - bill.total]
            line = f"stage {number:<3}" + "".join(f"{float(cell) / size:>12.2f}" for cell in cells)
            console.print(line, soft_wrap=True)
    console.print()
    needs = [{name: float(value) for name, value in bill._asdict().items()} for bill in bills]
    scale = memory_scale(most, limit)
    width = max(20, min(console.width, MOST) - 32)
    for number, need in enumerate(needs):
        if every or number == prediction.fullest:
            free = (limit - sum(need.values())) / GIB
            drawn = Text(f"stage {number:<3} ") + memory_bar(need, limit, width, scale)
            end = f"{free:.2f} GiB free" if free >= 0 else f"{-free:.2f} GiB too much"
            console.print(drawn.append(f"  {end}", "" if free >= 0 else "bold red"), soft_wrap=True)
    ends = f"the bar ends at the {limit / GIB:.4g} GiB of a device"
    if scale > limit:
        ends = f"| the {limit / GIB:.4g} GiB of a device"
    elif scale < limit:
        ends = f"the bar ends at {scale / size:.3g} {unit}, a device has {limit / GIB:.4g} GiB"
    console.print(f"{legend(needs[prediction.fullest])}; {ends}", style="dim", soft_wrap=True)
    if every and prediction.plan.by_layer:
        from heddle.plan.layer_memory.explain import strips

        console.print()
        for line in strips(prediction):
            console.print(line, markup=False, soft_wrap=True)
    if not every and len(bills) > 1:
        console.print(f"(the fullest of {len(bills)} stages; --memory shows all)")

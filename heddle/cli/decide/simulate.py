"""`heddle simulate`: how long a step takes, where the time goes, what each stage holds, before anything is spent."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heddle.cli.ranged import POSITIVE, ranged

if TYPE_CHECKING:
    from rich.console import Console

    from heddle.simulating.failures import ExpectedRun
    from heddle.simulating.simulation import Simulation


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
    price: Annotated[
        float | None, ranged(within=POSITIVE, help="Dollars per device-hour: say what that costs.")
    ] = None,
    mtbf: Annotated[
        float | None,
        ranged(
            within="[1e-3, 1e12]",
            help="Hours between two failures of one device that stop the run: say how many days it takes with them.",
        ),
    ] = None,
    restart: Annotated[
        float, ranged(within="[0, 1e6]", help="With --mtbf: seconds from a failure to the first step after it.")
    ] = 600.0,
    checkpoint: Annotated[
        float | None,
        ranged(
            within=POSITIVE,
            help="With --mtbf: seconds that a checkpoint holds up training. Default: its bytes over the disks' speed.",
        ),
    ] = None,
    changes: Annotated[
        list[str] | None, typer.Option("--set", help="Change a key: --set plan.tensor=4.", metavar="TABLE.KEY=VALUE")
    ] = None,
) -> None:
    """Predict a training step: its time, the memory of each stage, and whether it fits."""
    import json

    from heddle.cli.common import write_trace
    from heddle.console import plain_console
    from heddle.data.useful import useful_share
    from heddle.planning.best import choice_in_words, with_best_plan
    from heddle.simulating.simulation import simulate as predict
    from heddle.spec.changes import load_with_changes

    loaded, found = with_best_plan(load_with_changes(plan, changes or []))
    prediction = predict(loaded) if found is None else found.best
    job = prediction.job
    budget = tokens if tokens is not None else float(job.train.steps * job.tokens_per_step)
    console = plain_console()
    written = write_trace(trace, prediction.trace, prediction.memory_curves) if trace is not None else ""
    if as_json:
        from heddle.spec.tables import to_table

        facts = prediction.to_json() | {"tokens": budget, "days": prediction.days(budget)}
        facts |= {} if price is None else {"dollars": prediction.dollars(budget, price)}
        facts |= {} if mtbf is None else {"expected": prediction.expected(budget, mtbf, restart, checkpoint).to_json()}
        facts |= {"plan": to_table(prediction.plan), "planned": found is not None}
        if (useful := useful_share(job)) is not None:
            facts |= useful.to_json(prediction.tokens_per_second)
        console.out(json.dumps(facts))
    else:
        if found is not None:
            console.print(f"{plan} has no [plan]. {choice_in_words(found)}\n", markup=False, soft_wrap=True)
        expected = None if mtbf is None else prediction.expected(budget, mtbf, restart, checkpoint)
        show(console, prediction, budget, memory, price, expected)
        if (useful := useful_share(job)) is not None:
            console.print(useful.in_words(prediction.tokens_per_second), soft_wrap=True)
        if written:
            console.print(f"\n{written}", soft_wrap=True)
    prediction.check_fits()


MOST = 100  # columns of a bar
TALL = 16  # rows of a picture that is shown unasked


def show(
    console: Console,
    prediction: Simulation,
    tokens: float,
    memory: bool,
    price: float | None = None,
    expected: ExpectedRun | None = None,
) -> None:
    """For people."""
    from heddle.cost.breakdown import STEP
    from heddle.errors import listing
    from heddle.format import duration, figures, short_figures, tokens_in_words
    from heddle.planning.search.describe import headline
    from heddle.simulating.network.devices import devices_of
    from heddle.spec.software import HEDDLE
    from heddle.trace.bars import bar
    from heddle.trace.terminal import draw

    job, plan, cluster = prediction.job, prediction.plan, prediction.cluster
    used = devices_of(plan, cluster, prediction.network)
    devices = listing(f"{count:,} × {device.name}" for device, count in used.items())
    console.print(
        f"{job.model.name}: {job.model.parameters:,} parameters on {devices} "
        f"({headline(plan)}), {job.precision_in_words}",
        soft_wrap=True,
    )
    seconds = prediction.step_seconds
    unit, scale = ("s", 1.0) if seconds >= 0.1 else ("ms", 1e3)
    bar_of_errors = "" if prediction.error_bar is None else f" {prediction.error_bar}"
    console.print(
        f"step        {figures(scale * seconds)} {unit}{bar_of_errors} for {job.tokens_per_step:,} tokens",
        soft_wrap=True,
    )
    console.print(f"speed       {prediction.tokens_per_second:,.0f} tokens/s")
    console.print(f"utilization {prediction.mfu:.1%} of peak for the model (MFU), {prediction.hfu:.1%} in all (HFU)")
    console.print(f"bubble      {prediction.bubble:.1%} of the ideal time")
    costs = "" if price is None else f", ${short_figures(prediction.dollars(tokens, price))}"
    console.print(
        f"training    {duration(86_400 * prediction.days(tokens))} for {tokens_in_words(tokens)} tokens{costs}"
    )
    if expected is not None:
        console.print(f"expected    {expected}", soft_wrap=True)
    console.print()
    decimals = len(figures(scale * seconds).partition(".")[2])
    parts = {name: float(value) for name, value in prediction.breakdown._asdict().items()}
    console.print(bar(parts, min(console.width, MOST)), soft_wrap=True)
    for name, value in parts.items():
        if STEP[name].seldom and not value:
            continue
        console.print(f"{name:<11} {scale * value:>9.{decimals}f} {unit} {value / seconds:>7.1%}")
    console.print()
    if 1 < plan.pipeline <= (plan.pipeline if memory else TALL):
        console.print(draw(prediction.trace, console.width), soft_wrap=True)
        console.print()
    show_memory(console, prediction, memory)
    console.print(f"\nefficiency of '{cluster.name}': {cluster.efficiency.source}", soft_wrap=True)
    console.print(f"software: {cluster.software or HEDDLE}", soft_wrap=True)


def show_memory(console: Console, prediction: Simulation, every: bool) -> None:
    """The breakdown of every stage, or of the fullest."""
    from rich.text import Text

    from heddle.format import GIB, memory_unit
    from heddle.trace.bars import legend, memory_bar, memory_scale

    breakdowns, limit, most = prediction.memory, prediction.limit, prediction.worst
    unit, size = memory_unit(most)
    names = [name for name in breakdowns[0]._fields if name != "fetched" or any(each.fetched for each in breakdowns)]
    console.print(f"{unit:<9}" + "".join(f"{name:>12}" for name in (*names, "total", "headroom")), soft_wrap=True)
    for number, breakdown in enumerate(breakdowns):
        if every or number == prediction.fullest:
            cells = [*(getattr(breakdown, name) for name in names), breakdown.total, limit - breakdown.total]
            line = f"stage {number:<3}" + "".join(f"{float(cell) / size:>12.2f}" for cell in cells)
            console.print(line, soft_wrap=True)
    console.print()
    needs = [{name: float(value) for name, value in breakdown._asdict().items()} for breakdown in breakdowns]
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
    if every and prediction.outside is not None:
        console.print(f"the slack has to have room for {prediction.outside}", style="dim", soft_wrap=True)
    if every and prediction.plan.by_layer:
        from heddle.planning.layer_memory.explain import strips

        console.print()
        for line in strips(prediction):
            console.print(line, markup=False, soft_wrap=True)
    if not every and len(breakdowns) > 1:
        console.print(f"(the fullest of {len(breakdowns)} stages; --memory shows all)")

"""`heddle simulate`: how long a step takes, where the time goes, what each stage holds, before anything is spent."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from heddle.simulate import Simulation


def simulate(
    plan: Annotated[Path, typer.Argument(help="A job file with a [plan] and a [cluster].", metavar="PLAN.toml")],
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
    trace: Annotated[Path | None, typer.Option(help="Write the step for ui.perfetto.dev.", metavar="FILE.json")] = None,
    memory: Annotated[bool, typer.Option("--memory", help="Show the memory of every stage, item by item.")] = False,
    tokens: Annotated[
        float | None, typer.Option(help="Also say how many days this many tokens take; else the job's own.")
    ] = None,
    changes: Annotated[
        list[str] | None, typer.Option("--set", help="Change a key: --set plan.tensor=4.", metavar="TABLE.KEY=VALUE")
    ] = None,
) -> None:
    """Predict a training step: seconds, memory of each stage, and whether it fits."""
    import json

    from rich.console import Console

    from heddle.cli.common import load_with_changes, write_output
    from heddle.simulate.simulation import simulate as predict
    from heddle.trace import to_perfetto

    prediction = predict(load_with_changes(plan, changes or []))
    job = prediction.job
    budget = tokens if tokens is not None else float(job.train.steps * job.tokens_per_step)
    console = Console(highlight=False)
    if trace is not None:
        write_output(trace, json.dumps(to_perfetto(prediction.trace)))
    if as_json:
        facts = prediction.to_json() | {"tokens": budget, "days": prediction.days(budget)}
        console.out(json.dumps(facts))
    else:
        show(console, prediction, budget, memory)
        if trace is not None:
            console.print(f"\nWritten to {trace}. Open it at https://ui.perfetto.dev.", soft_wrap=True)
    prediction.check_fits()


def show(console: Console, prediction: Simulation, tokens: float, memory: bool) -> None:
    """For people."""
    job, plan, cluster = prediction.job, prediction.plan, prediction.cluster
    console.print(
        f"{job.model.name}: {job.model.parameters:,} parameters on {plan.world:,} × {cluster.device.name} "
        f"(tensor {plan.tensor} × pipeline {plan.pipeline} × data {plan.data}), {job.train.precision}",
        soft_wrap=True,
    )
    seconds = prediction.step_seconds
    console.print(f"step        {seconds:.4g} s for {job.tokens_per_step:,} tokens")
    console.print(f"speed       {prediction.tokens_per_second:,.0f} tokens/s")
    console.print(f"utilisation {prediction.mfu:.1%} of peak for the model (MFU), {prediction.hfu:.1%} in all (HFU)")
    console.print(f"bubble      {prediction.bubble:.1%} of the ideal time")
    console.print(f"training    {prediction.days(tokens):.3g} days for {tokens:.4g} tokens")
    console.print()
    for name, value in prediction.breakdown._asdict().items():
        share = float(value) / seconds
        console.print(f"{name:<11} {float(value):>9.4f} s {share:>7.1%}  {'█' * round(40 * max(share, 0))}")
    console.print()
    show_memory(console, prediction, memory)
    console.print(f"\nefficiency of '{cluster.name}': {cluster.efficiency.source}", soft_wrap=True)


def show_memory(console: Console, prediction: Simulation, every: bool) -> None:
    """The bill of every stage, or of the fullest."""
    from heddle.spec.cluster import GIB

    bills = prediction.memory
    fullest = max(range(len(bills)), key=lambda stage: float(bills[stage].total))
    names = bills[0]._fields
    console.print("GiB      " + "".join(f"{name:>12}" for name in (*names, "total", "headroom")), soft_wrap=True)
    for number, bill in enumerate(bills):
        if every or number == fullest:
            cells = [*bill, bill.total, prediction.limit - bill.total]
            line = f"stage {number:<3}" + "".join(f"{float(cell) / GIB:>12.2f}" for cell in cells)
            console.print(line, soft_wrap=True)
    if not every and len(bills) > 1:
        console.print(f"(the fullest of {len(bills)} stages; --memory shows all)")

"""`heddle schedule`: draw a pipeline schedule, prove that it cannot deadlock, and say what it costs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from heddle.cli.ranged import ranged
from heddle.schedule.registry import IN_WORDS, RULES

SEVERAL = [f"{rule.name} {rule.usual_virtual}" for rule in RULES.values() if rule.usual_virtual > 1]


def schedule(
    name: Annotated[str, typer.Argument(help=IN_WORDS)],
    pipeline: Annotated[int, ranged("--pipeline", "-p", within="[1, 1e4]", help="Pipeline ranks.")],
    microbatches: Annotated[int, ranged("--microbatches", "-m", within="[1, 1e5]", help="Microbatches per step.")],
    virtual: Annotated[
        int | None,
        ranged(
            "--virtual", "-v", within="[1, 1e3]", help=f"Chunks of the model per rank; {', '.join(SEVERAL)}, others 1."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the schedule as JSON.")] = False,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Also write it: .svg, .png, or .json for ui.perfetto.dev.", metavar="FILE"),
    ] = None,
) -> None:
    """Draw a pipeline schedule, verify it, and state its bubble and its memory."""
    # Imported here so that `heddle --help` does not pay for them.
    import json

    from rich.console import Console

    from heddle.cli.common import write_trace
    from heddle.schedule import build, rule_of, verify
    from heddle.simulate.replay import replay
    from heddle.trace.terminal import draw

    rule = rule_of(name)
    virtual = virtual if virtual is not None else rule.usual_virtual
    order = build(name, pipeline, microbatches, virtual)
    verified = verify(order)
    trace = replay(order, forward=1.0, backward=2.0)
    formula = rule.bubble(pipeline, microbatches, virtual)
    console = Console(highlight=False)
    file = write_trace(output, trace) if output is not None else ""

    if as_json:
        facts = {
            "name": name,
            "pipeline": pipeline,
            "virtual": virtual,
            "microbatches": microbatches,
            "bubble": {"replay": trace.bubble, "formula": formula},
            "peak_stash": verified.peak_stash,
            "actions": verified.actions,
            "messages": verified.messages,
            "ranks": order.ranks,
        }
        console.out(json.dumps(facts))
        return

    console.print(draw(trace, console.width), soft_wrap=True)
    if virtual == 1:
        unit, written = "microbatches", "(p-1)/m"
    else:
        unit = "microbatches x chunks"
        written = "(p-1)/(v m)" if microbatches >= pipeline else "(v p + m-1)/(v m) - 1"
    console.print()
    console.print(f"bubble      {trace.bubble:.1%} of the ideal time; formula {written} = {formula:.1%}")
    console.print("            (every forward takes 1, every backward 2, messages nothing)")
    console.print(f"peak stash  {' '.join(map(str, verified.peak_stash))}")
    console.print(f"            (activations that each rank holds at once, in {unit})")
    console.print(f"verified    {verified.actions} actions, {verified.messages} messages: complete, no deadlock")
    if file:
        console.print(f"\n{file}", soft_wrap=True)

"""`heddle schedule`: draw a pipeline schedule, prove that it cannot deadlock, and say what it costs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from heddle.cli.ranged import ranged


def schedule(
    name: Annotated[str, typer.Argument(help="1f1b, interleaved, gpipe, zb-h1, zb-h2, zb-v or dualpipev")],
    pipeline: Annotated[int, ranged("--pipeline", "-p", within="[1, 1e4]", help="Pipeline ranks.")],
    microbatches: Annotated[int, ranged("--microbatches", "-m", within="[1, 1e5]", help="Microbatches per step.")],
    virtual: Annotated[
        int | None,
        ranged(
            "--virtual", "-v", within="[1, 1e3]", help="Chunks of the model per rank; the schedule's own if left out."
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
    steady = trace.period * (1 + trace.bubble) / trace.duration - 1
    console = Console(highlight=False)
    file = write_trace(output, trace) if output is not None else ""

    if as_json:
        facts = {
            "name": name,
            "pipeline": pipeline,
            "virtual": virtual,
            "microbatches": microbatches,
            "bubble": {"replay": trace.bubble, "formula": formula, "without_barrier": steady},
            "peak_stash": verified.peak_stash,
            "actions": verified.actions,
            "messages": verified.messages,
            "ranks": order.ranks,
        }
        console.out(json.dumps(facts))
        return

    console.print(draw(trace, console.width), soft_wrap=True)
    unit = "microbatches" if virtual == 1 else "microbatches x chunks"
    console.print()
    written = rule.written(pipeline, microbatches, virtual)
    console.print(f"bubble      {trace.bubble:.1%} of the ideal time; formula {written} = {formula:.1%}")
    if abs(steady - trace.bubble) > 1e-9:
        console.print(f"            {abs(steady):.1%} where steps follow each other without a barrier")
    halves = " in halves" * bool(order.split)
    console.print(f"            (every forward takes 1, every backward 2{halves}, messages nothing)")
    console.print(f"peak stash  {' '.join(map(str, verified.peak_stash))}")
    console.print(f"            (activations that each rank holds at once, in {unit})")
    console.print(f"verified    {verified.actions} actions, {verified.messages} messages: complete, no deadlock")
    if file:
        console.print(f"\n{file}", soft_wrap=True)

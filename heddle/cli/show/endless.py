"""What `heddle schedule` prints of an order of work that never drains."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from heddle.cli.common import write_trace
from heddle.console import plain_console
from heddle.schedule import verify
from heddle.schedule.late import LateSchedule, update_rule
from heddle.simulating.late import enough_steps, steady_seconds, weight_versions, with_replays
from heddle.simulating.replay import replay, step_time
from heddle.trace.terminal import draw

DRAWN = 3  # steps


def show_endless(
    name: str, pipeline: int, microbatches: int, message: float, as_json: bool, output: Path | None
) -> None:
    """Draw its first steps, and state its period, its delays and the weights that it keeps."""
    late = LateSchedule(update_rule(name), pipeline, microbatches)
    chunks = range(late.chunks)
    # first and last chunk of a ring share a rank, and the work that others have alone
    ring = late.chunks > pipeline
    forward = [0.5 if ring and chunk in (0, chunks[-1]) else 1.0 for chunk in chunks]
    backward = with_replays(late.rule, forward, [2 * seconds for seconds in forward])
    period = steady_seconds(late, lambda order: step_time(order, forward, backward, message))
    verified = verify(late.unrolled(enough_steps(late)))
    trace = replay(late.unrolled(DRAWN), forward, backward, message)
    versions = [weight_versions(late, chunk) for chunk in chunks]
    useful = 3 * microbatches / period
    facts = {
        "name": name,
        "pipeline": pipeline,
        "microbatches": microbatches,
        "period": period,
        "utilization": useful,
        "delays": late.delays,
        "weight_versions": versions,
        "peak_stash": verified.peak_stash,
    }
    file = write_trace(output, trace) if output is not None else ""
    console = plain_console()
    if as_json:
        console.out(json.dumps(facts | {"ranks": late.unrolled(DRAWN).ranks}))
        return
    console.print(draw(trace, console.width), soft_wrap=True)
    console.print(f"\nThe first {DRAWN} steps, then the pipeline drains; a real run would continue.\n", soft_wrap=True)
    console.print(f"period      {period:g} per step; useful work is {useful:.0%} of it")
    console.print(f"            (a rank's forward takes 1, its backward 2, messages {message:g})")
    console.print(f"delay       {_row(late.delays)} updates, by chunk")
    console.print(f"old weights {_row(versions)} versions, by chunk")
    console.print(f"peak stash  {_row(verified.peak_stash)}")
    console.print(f"verified    {verified.actions} actions, {verified.messages} messages: complete, no deadlock")
    if file:
        console.print(f"\n{file}", soft_wrap=True)


def _row(numbers: Iterable[int]) -> str:
    return " ".join(map(str, numbers))

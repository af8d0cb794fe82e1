"""`heddle schedule`: draw a pipeline schedule, prove that it cannot deadlock, and say what it costs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from heddle.cli.ranged import ranged
from heddle.schedule.late import UPDATES
from heddle.schedule.registry import IN_WORDS, RULES
from heddle.spec.ranges import Range

SEVERAL = [f"{rule.name} {rule.usual_virtual}" for rule in RULES.values() if rule.usual_virtual > 1]
MOST = 16_384  # actions of an order that is searched
MOST_WRITTEN = 500_000  # actions of a drawing in a file
EVEN = (1.0, 1.0, 1.0)  # seconds of the parts of a chunk
PART = "[1e-9, 1e9]"
# which kinds of schedules use an option
USERS = {
    "--extra-warmup": ("deep",),
    "--parts": ("searched",),
    "--message": ("searched", "late"),
    "--hold": ("searched",),
}


def schedule(
    name: Annotated[str, typer.Argument(help=f"{IN_WORDS}; searched; or with late updates {', '.join(UPDATES)}")],
    pipeline: Annotated[int, ranged("--pipeline", "-p", within="[1, 1e4]", help="Pipeline ranks.")],
    microbatches: Annotated[int, ranged("--microbatches", "-m", within="[1, 1e5]", help="Microbatches per step.")],
    virtual: Annotated[
        int | None,
        ranged(
            "--virtual",
            "-v",
            within="[1, 1e3]",
            help=f"Chunks of the model per rank. Default: {', '.join(SEVERAL)}, others 1.",
        ),
    ] = None,
    extra_warmup: Annotated[
        int | None,
        ranged(
            "--extra-warmup",
            within="[0, 1e5]",
            help="deep-1f1b: extra microbatches a rank starts early, per later rank. Default: 1.",
        ),
    ] = None,
    parts: Annotated[
        tuple[float, float, float],
        typer.Option("--parts", help="searched: seconds of a chunk's forward, backward input and backward weight."),
    ] = EVEN,
    message: Annotated[
        float, ranged("--message", within="[0, 1e9]", help="searched, or late updates: seconds per message.")
    ] = 0.0,
    hold: Annotated[
        float | None,
        ranged("--hold", within="[1, 1e9]", help="searched: microbatches x chunks a rank may hold. Default: no limit."),
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

    from heddle.cli.common import write_trace
    from heddle.console import plain_console
    from heddle.schedule import build, rule_of, verify
    from heddle.simulating.replay import clocked
    from heddle.trace.terminal import draw, ranks_drawn

    given: dict[str, object] = {"--extra-warmup": extra_warmup, "--hold": hold}
    given |= {"--parts": parts if parts != EVEN else None, "--message": message or None}
    _refuse_unused(name, [option for option, value in given.items() if value is not None])
    if name == "searched":
        _searched(pipeline, microbatches, virtual or 1, parts, message, hold, as_json, output)
        return
    if name in UPDATES:
        from heddle.cli.show.endless import show_endless
        from heddle.spec.plan import Plan

        Plan(pipeline=pipeline, virtual=virtual or 1, update=name)  # says what it refuses
        show_endless(name, pipeline, microbatches, message, as_json, output)
        return
    rule = rule_of(name, extra_warmup)
    virtual = virtual if virtual is not None else rule.usual_virtual
    order = build(name, pipeline, microbatches, virtual, extra_warmup)
    if output is not None:
        _refuse_large(output, sum(map(len, order.ranks)))
    verified = verify(order)
    run = clocked(order, forward=1.0, backward=2.0)
    bubble, steady = run.bubbles()
    formula = rule.bubble(pipeline, microbatches, virtual)
    console = plain_console()
    file = write_trace(output, run.trace()) if output is not None else ""

    if as_json:
        facts = {
            "name": name,
            "pipeline": pipeline,
            "virtual": virtual,
            "microbatches": microbatches,
            "bubble": {"replay": bubble, "formula": formula, "without_barrier": steady},
            "peak_stash": verified.peak_stash,
            "actions": verified.actions,
            "messages": verified.messages,
            "ranks": order.ranks,
        }
        console.out(json.dumps(facts))
        return

    shown = ranks_drawn(pipeline, verified.actions)
    picture = draw(run.trace(shown), console.width) if shown else "(too long to draw)\n"
    console.print(picture, soft_wrap=True)
    unit = "microbatches" if virtual == 1 else "microbatches x chunks"
    console.print()
    written = rule.written(pipeline, microbatches, virtual)
    console.print(f"bubble      {bubble:.1%} of the ideal time; formula {written} = {formula:.1%}")
    if abs(steady - bubble) > 1e-9:
        console.print(f"            {abs(steady):.1%} where steps follow each other without a barrier")
    halves = " in halves" * bool(order.split)
    console.print(f"            (every forward takes 1, every backward 2{halves}, messages nothing)", soft_wrap=True)
    console.print(f"peak stash  {_few(verified.peak_stash)}", soft_wrap=True)
    console.print(f"            (activations that each rank holds at once, in {unit})")
    console.print(f"verified    {verified.actions} actions, {verified.messages} messages: complete, no deadlock")
    if file:
        console.print(f"\n{file}", soft_wrap=True)


def _few(peaks: tuple[int, ...]) -> str:
    """A number for each rank, of very many the first and the last."""
    few = 64
    if len(peaks) <= few:
        return " ".join(map(str, peaks))
    first, last = peaks[: few // 2], peaks[-few // 2 :]
    return f"{_few(first)} … {_few(last)}, most {max(peaks)}"


def _refuse_large(output: Path, actions: int) -> None:
    from heddle.errors import HeddleError

    if actions > MOST_WRITTEN:
        raise HeddleError(
            f"{actions:,} actions are too many for {output}.",
            f"Whatever opens it would take minutes; {MOST_WRITTEN:,} are the most.",
            "Use fewer microbatches or ranks, or --json for the order alone.",
        )


def _refuse_unused(name: str, given: list[str]) -> None:
    """Refuse a name that is not known, and options that this kind of schedule would ignore."""
    from heddle.errors import HeddleError, listing, nearest

    names = {"fixed": list(RULES), "searched": ["searched"], "late": list(UPDATES)}
    known = [each for some in names.values() for each in some]
    if name not in known:
        raise HeddleError(f"There is no schedule '{name}'.", "It names an order of work.", nearest(name.lower(), known))
    names["deep"] = [rule.name for rule in RULES.values() if rule.deepened is not None]
    for option in given:
        users = [each for kind in USERS[option] for each in names[kind]]
        if name not in users:
            raise HeddleError(
                f"{option} does not go with the schedule '{name}'.",
                "It would be ignored.",
                f"Leave it out; it is for {listing(users)}.",
            )


def _searched(
    pipeline: int,
    microbatches: int,
    virtual: int,
    parts: tuple[float, float, float],
    message: float,
    hold: float | None,
    as_json: bool,
    output: Path | None,
) -> None:
    """The best order that is found for what chunks take and ranks may hold; two chunks per rank lie in a V."""
    import json

    from heddle.cli.common import write_trace
    from heddle.console import plain_console
    from heddle.errors import HeddleError
    from heddle.planning.order.search import search_order
    from heddle.planning.order.stages import Stages
    from heddle.schedule import ChunkPlacement, verify
    from heddle.simulating.replay import replay
    from heddle.trace.terminal import draw

    if virtual > 2:
        raise HeddleError(
            f"An order is searched for 1 or 2 chunks per rank, not virtual = {virtual}.",
            "One chunk per rank is a line, two are a V.",
            "Use --virtual 2, or the schedule interleaved.",
        )
    for part in parts:
        Range(PART, "A forward and both halves of a backward take time.").check("--parts", part)
    chunks, placement = pipeline * virtual, ChunkPlacement.V if virtual == 2 else ChunkPlacement.LOOP
    if (actions := 3 * chunks * microbatches) > MOST:
        raise HeddleError(
            f"An order of {actions:,} actions is too long to search.",
            f"A search takes about a millisecond per action; {MOST:,} are the most.",
            f"Use --microbatches {max(1, MOST // (3 * chunks))} or fewer, fewer ranks, or a schedule with a name.",
        )
    limits = [] if hold is None else [hold] * pipeline
    forward, soon, late = ([part] * chunks for part in parts)
    stages = Stages(pipeline, microbatches, forward, soon, late, message, limits=limits, placement=placement)
    found = search_order(stages)
    verified = verify(found.schedule)
    whole = parts[1] + parts[2]
    trace = replay(found.schedule, parts[0], whole, message, weight=parts[2])
    file = write_trace(output, trace) if output is not None else ""
    console = plain_console()
    if as_json:
        facts = {
            "name": "searched",
            "pipeline": pipeline,
            "virtual": virtual,
            "microbatches": microbatches,
            "seconds": found.seconds,
            "bound": found.bound,
            "bubble": {"replay": trace.bubble},
            "peak_stash": verified.peak_stash,
            "actions": verified.actions,
            "messages": verified.messages,
            "ranks": found.schedule.ranks,
        }
        console.out(json.dumps(facts))
        return
    console.print(draw(trace, console.width), soft_wrap=True)
    console.print()
    console.print(
        f"step        {found.seconds:.6g} s; no order takes less than {found.bound:.6g} s: {found.gap:.1%} above"
    )
    console.print(f"bubble      {trace.bubble:.1%} of the ideal time; improved from {found.begins_with}")
    console.print(f"peak stash  {' '.join(map(str, verified.peak_stash))}")
    console.print(f"verified    {verified.actions} actions, {verified.messages} messages: complete, no deadlock")
    if file:
        console.print(f"\n{file}", soft_wrap=True)

"""What `heddle plan` prints: the ranked choices, where the best one's time and memory go, and the reasons."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from heddle.format import figures, short_figures

if TYPE_CHECKING:
    from rich.console import Console

    from heddle.plan.search.explain import Explanation
    from heddle.plan.search.search import Search
    from heddle.spec.plan import Plan


USUAL = ("1f1b", "interleaved")  # schedules that a table does not name


def _pipeline(plan: Plan) -> str:
    """Stages, chunks per rank where there are several, and a schedule that is out of the ordinary."""
    several, unusual = plan.virtual > 1, plan.pipeline > 1 and plan.schedule not in USUAL
    return f"{plan.pipeline}" + f"×{plan.virtual}" * several + f" {plan.schedule}" * unusual


def show_choices(console: Console, found: Search, top: int) -> None:
    """A ranked table."""
    from rich.table import Table

    from heddle.plan.search.ranking import ties_in_words
    from heddle.plan.search.search import summary

    job, cluster = found.job, found.cluster
    console.print(
        f"{job.model.name}: {job.model.parameters:,} parameters on {found.best.plan.world:,} × {cluster.device.name}, "
        f"batch {job.train.global_batch} × {job.sequence:,} tokens, {job.precision_in_words}",
        soft_wrap=True,
    )
    console.print(
        f"{found.considered:,} legal plans, {found.feasible:,} feasible; searched in {found.seconds:.2f} s\n",
        soft_wrap=True,
    )
    varying = len({each.plan.world for each in found.plans}) > 1
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for heading in ("#", *["devices"] * varying, "tensor", "pipe", "data", "zero", "micro", "recompute"):
        table.add_column(heading, justify="left" if heading == "recompute" else "right", no_wrap=True)
    for heading in ("step s", "tokens/s", "MFU", "GiB", "free", "bubble", "variants"):
        table.add_column(heading, justify="right", no_wrap=True)
    for place, choice in enumerate(found.choices[:top], 1):
        each = choice.best
        facts, plan = summary(each), each.plan
        words = (
            "by layer"
            if plan.layers
            else plan.recompute
            if isinstance(plan.recompute, str)
            else f"{plan.recompute.count('full')} of {len(plan.recompute)}"
        )
        table.add_row(
            str(place),
            *[str(plan.world)] * varying,
            f"{plan.tensor}{'s' * plan.sequence}",
            _pipeline(plan),
            str(plan.data),
            str(plan.zero),
            str(plan.microbatch),
            words,
            figures(each.step_seconds),
            short_figures(each.tokens_per_second),
            f"{each.mfu:.1%}",
            _gib(facts["worst_stage_gib"]),
            _gib(facts["headroom_gib"]),
            f"{each.bubble:.1%}",
            f"+{choice.variants}" if choice.variants else "",
        )
    unlimited = console.options.update(width=10_000)
    console.width = max(console.width, 90, console.measure(table, options=unlimited).maximum)  # wrapped rather than cut
    console.print(table)
    shown = found.plans[:top]
    names = dict.fromkeys(name for choice in found.choices[:top] for name in choice.fields)
    differ = " or ".join(", ".join(names).rsplit(", ", 1))
    legend = [
        *["tensor 8s: sequence parallel, too"] * any(each.plan.sequence for each in shown),
        *["pipe 4×2: interleaved, 2 chunks per rank"]
        * any(each.plan.virtual > 1 and each.plan.schedule in USUAL for each in shown),
        *["recompute 2 of 8: full, in 2 of 8 layers"] * any(isinstance(p.plan.recompute, tuple) for p in shown),
        *["by layer: recompute, zero and offload differ between layers"] * any(p.plan.layers for p in shown),
        "GiB: the fullest stage",
        *[f"variants: other plans with these degrees and microbatch, which differ in {differ}"] * bool(differ),
    ]
    console.print("; ".join(legend), style="dim", soft_wrap=True)
    if tied := ties_in_words(found.plans[:top], found.fastest, found.wish):
        console.print(tied, soft_wrap=True)
    if cluster.device.host:
        console.print(f"speed of this machine: {cluster.efficiency.source}", style="dim", soft_wrap=True)


def show_best(console: Console, found: Search) -> None:
    """Where the time and the memory of the first choice go, a bar each."""
    from heddle.format import memory_unit
    from heddle.trace.bars import bar, legend, memory_bar

    best = found.best
    width = max(20, min(console.width, 100) - 34)
    time = {name: float(value) for name, value in best.breakdown._asdict().items() if name != "moved" or value}
    bill = best.memory[best.fullest]
    unit, size = memory_unit(best.worst)
    held = {name: float(value) for name, value in bill._asdict().items()}
    console.print()
    for title, line, end, parts in (
        ("time of 1  ", bar(time, width), f"{figures(best.step_seconds)} s", time),
        ("memory of 1", memory_bar(held, best.limit, width), f"{figures(best.worst / size, 3)} {unit}", held),
    ):
        console.print(title, line, end, soft_wrap=True)
        console.print(f"            {legend(parts)}", style="dim", soft_wrap=True)


def _gib(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:.1f}"


def show_rank(console: Console, found: Search, table: dict[str, Any]) -> None:
    """How good the file's own plan is."""
    from dataclasses import replace

    from heddle.format import memory_unit
    from heddle.plan.search.describe import in_words, overfull
    from heddle.simulate.simulation import simulate
    from heddle.spec.plan import Plan
    from heddle.spec.tables import build

    own = simulate(replace(found.job, plan=build(Plan, table, "plan")))
    rank = found.rank(own.plan)
    slower = own.step_seconds / found.best.step_seconds - 1
    verdict = f"{figures(own.step_seconds)} s per step ({slower:+.1%})"
    if found.wish.objective == "smallest":
        unit, size = memory_unit(own.worst)
        larger = own.worst / found.best.worst - 1
        verdict = f"{figures(own.worst / size, 3)} {unit} on the fullest stage ({larger:+.1%}), {verdict}"
    verdict += f", about number {rank:,} of {found.feasible:,}" if rank else ""
    if not own.fits:
        verdict = f"does not fit: {overfull(own)}"
    console.print(f"\nThe file's own plan, {in_words(own.plan)}: {verdict}.", soft_wrap=True)


def show_reasons(console: Console, reasons: Explanation) -> None:
    """Why this plan."""
    from heddle.cli.decide.simulate import TALL
    from heddle.trace.terminal import draw

    console.print("\n[bold]The plan[/bold]")
    for line in reasons.plan:
        console.print(f"  {line}", soft_wrap=True)
    if 1 < reasons.search.best.plan.pipeline <= TALL:
        console.print()
        console.print(draw(reasons.search.best.trace, console.width), soft_wrap=True)
    console.print("\n[bold]Why not[/bold]")
    width = max((len(each.change) for each in reasons.neighbours), default=0)
    for each in reasons.neighbours:
        console.print(f"  {each.change:<{width}}  {each.why}", soft_wrap=True)
    if reasons.helps:
        console.print("\n[bold]What would help[/bold]")
    for change, gain in reasons.helps:
        console.print(f"  {change}: {gain - 1:+.1%} tokens/s", soft_wrap=True)
    if reasons.takeaways:
        console.print("\n[bold]Published rules of thumb[/bold]")
    for line in reasons.takeaways:
        console.print(f"  {line}", soft_wrap=True)

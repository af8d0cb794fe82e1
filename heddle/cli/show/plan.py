"""What `heddle plan` prints: the ranked choices, where the best one's time and memory go, and the reasons."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from heddle.format import figures, short_figures
from heddle.schedule.registry import BY_DEFAULT

if TYPE_CHECKING:
    from rich.console import Console

    from heddle.planning.search.explain import Explanation
    from heddle.planning.search.search import Search
    from heddle.spec.plan import Plan


def _exchange(plan: Plan) -> str:
    short = " 2d" if plan.context_exchange == "2d" else plan.context_exchange[0]
    return short if plan.context > 1 else ""


def _pipeline(plan: Plan) -> str:
    """Stages, chunks per rank where there are several, and a schedule that is out of the ordinary."""
    several, unusual = plan.virtual > 1, plan.pipeline > 1 and plan.schedule not in BY_DEFAULT
    return f"{plan.pipeline}" + f"×{plan.virtual}" * several + f" {plan.schedule}" * unusual


def show_choices(console: Console, found: Search, top: int) -> None:
    """A ranked table."""
    from rich.table import Table

    from heddle.planning.search.describe import beyond_the_split
    from heddle.planning.search.ranking import ties_in_words
    from heddle.planning.search.search import summary

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
    sharing = any(each.plan.context > 1 for each in found.plans[:top])
    expert = any(each.plan.expert > 1 for each in found.plans[:top])
    degrees = ("tensor", *["context"] * sharing, "pipe", "data", *["expert"] * expert)
    for heading in ("#", *["devices"] * varying, *degrees, "zero", "micro", "recompute"):
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
            *[f"{plan.context}{_exchange(plan)}"] * sharing,
            _pipeline(plan),
            str(plan.data),
            *[str(plan.expert)] * expert,
            _zero(plan, job.model.layers),
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
        *["context 8r: ranks that share samples, by ring, gather, all-to-all or 2d"] * sharing,
        *["expert: ranks of data × context that share the experts of a layer"] * expert,
        *["pipe 4×2: interleaved, 2 chunks per rank"]
        * any(each.plan.virtual > 1 and each.plan.schedule in BY_DEFAULT for each in shown),
        *["recompute 2 of 8: full, in 2 of 8 layers"] * any(isinstance(p.plan.recompute, tuple) for p in shown),
        *["by layer: recompute, zero and offload are chosen for each layer"] * any(p.plan.layers for p in shown),
        *["zero 1–3: levels of the layers"] * any("–" in _zero(p.plan, job.model.layers) for p in shown),
        *["zero 3/8: shared within groups of 8 replicas"] * any(p.plan.zero_within for p in shown),
        "GiB: the fullest stage",
        *[f"variants: other plans with these degrees and microbatch, which differ in {differ}"] * bool(differ),
    ]
    console.print("; ".join(legend), style="dim", soft_wrap=True)
    if beyond := beyond_the_split(found.best.plan):
        console.print(f"plan 1: {', '.join(beyond)}", soft_wrap=True)
    if (error := found.best.error_bar) is not None:
        near = [each for each in found.plans if each.step_seconds <= (1 + error.share) * found.best.step_seconds]
        words = "" if len(near) < 2 else f"; {len(near)} of the {len(found.plans)} best plans are within that of plan 1"
        console.print(f"step s: {error}{words}", soft_wrap=True)
    if tied := ties_in_words(found.plans[:top], found.fastest, found.goal):
        console.print(tied, soft_wrap=True)
    if cluster.device.host:
        console.print(f"speed of this machine: {cluster.efficiency.source}", style="dim", soft_wrap=True)


def show_best(console: Console, found: Search) -> None:
    """Where the time and the memory of the first choice go, a bar each."""
    from heddle.cost.breakdown import STEP
    from heddle.format import memory_unit
    from heddle.trace.bars import bar, legend, memory_bar

    best = found.best
    width = max(20, min(console.width, 100) - 34)
    time = {name: float(value) for name, value in best.breakdown._asdict().items() if value or not STEP[name].seldom}
    breakdown = best.memory[best.fullest]
    unit, size = memory_unit(best.worst)
    held = {name: float(value) for name, value in breakdown._asdict().items()}
    console.print()
    for title, line, end, parts in (
        ("time of 1  ", bar(time, width), f"{figures(best.step_seconds)} s", time),
        ("memory of 1", memory_bar(held, best.limit, width), f"{figures(best.worst / size, 3)} {unit}", held),
    ):
        console.print(title, line, end, soft_wrap=True)
        console.print(f"            {legend(parts)}", style="dim", soft_wrap=True)


def show_training(console: Console, found: Search, price: float | None) -> None:
    """How long the first choice trains, and what that costs; and what was not searched, where that is faster."""
    from heddle.format import duration, tokens_in_words

    best, tokens = found.best, found.tokens
    words = f"training on {tokens_in_words(tokens)} tokens: {duration(86_400 * best.days(tokens))}"
    if price is not None:
        hours = 24 * best.days(tokens) * best.plan.world
        words += f", {short_figures(hours)} device-hours, ${short_figures(best.dollars(tokens, price))}"
    console.print(words, soft_wrap=True)
    if (other := found.faster_schedule) is not None:
        console.print(
            f"Not searched: with schedule = '{other.plan.schedule}' this split takes {figures(other.step_seconds)} s "
            f"({other.step_seconds / best.step_seconds - 1:+.1%}). --schedule all searches every schedule.",
            soft_wrap=True,
        )


def _zero(plan: Plan, layers: int) -> str:
    """The level of ZeRO of all layers, or the least and the most; and how many replicas share by themselves."""
    levels = {plan.memory_of(layer).zero for layer in range(layers)}
    within = f"/{plan.zero_within}" if plan.zero_within else ""
    return (f"{min(levels)}–{max(levels)}" if len(levels) > 1 else str(min(levels))) + within


def _gib(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:.1f}"


def show_rank(console: Console, found: Search, table: dict[str, Any]) -> None:
    """How good the file's own plan is."""
    from dataclasses import replace

    from heddle.format import memory_unit
    from heddle.planning.search.describe import in_words, overfull
    from heddle.simulating.simulation import simulate
    from heddle.spec.plan import Plan
    from heddle.spec.tables import build

    own = simulate(replace(found.job, plan=build(Plan, table, "plan")))
    rank = found.rank(own.plan)
    slower = own.step_seconds / found.best.step_seconds - 1
    verdict = f"{figures(own.step_seconds)} s per step ({slower:+z.1%})"
    if found.goal.objective == "smallest":
        unit, size = memory_unit(own.worst)
        larger = own.worst / found.best.worst - 1
        verdict = f"{figures(own.worst / size, 3)} {unit} on the fullest stage ({larger:+z.1%}), {verdict}"
    verdict += f", about number {rank:,} of {found.feasible:,}" if rank else ""
    if not own.fits:
        verdict = f"does not fit: {overfull(own)}"
    console.print(f"\nThe file's own plan, {in_words(own.plan)}: {verdict}.", soft_wrap=True)


def show_reasons(console: Console, reasons: Explanation) -> None:
    """Why this plan."""
    from heddle.cli.decide.simulate import TALL
    from heddle.trace.terminal import draw

    console.print("\nThe plan", style="bold")
    for line in reasons.plan:
        console.print(f"  {line}", soft_wrap=True)
    if 1 < reasons.search.best.plan.pipeline <= TALL:
        console.print()
        console.print(draw(reasons.search.best.trace, console.width), soft_wrap=True)
    console.print("\nWhy not", style="bold")
    console.print(_alternatives(reasons), soft_wrap=True)
    if reasons.helps:
        console.print("\nWhat would help", style="bold")
    for change, gain in reasons.helps:
        console.print(f"  {change}: {gain - 1:+.1%} tokens/s", soft_wrap=True)
    if reasons.takeaways:
        console.print("\nPublished rules of thumb", style="bold")
    for line in reasons.takeaways:
        console.print(f"  {line}", soft_wrap=True)
    console.print("\nIn short", style="bold")
    for line in reasons.in_short:
        console.print(f"  {line}", soft_wrap=True)


def _alternatives(reasons: Explanation) -> str:
    """A line for each other choice: what it takes and holds, and the verdict."""
    from heddle.format import GIB

    best = reasons.search.best
    rows = [("change", "step s", "", "GiB", "verdict")]
    for each in reasons.neighbors:
        found = each.simulation
        if found is None:
            rows.append((each.change, "–", "", "–", each.why))
        else:
            share = f"{found.step_seconds / best.step_seconds - 1:+z.1%}"
            rows.append((each.change, figures(found.step_seconds), share, _gib(found.worst / GIB), each.why))
    wide = [max(len(row[column]) for row in rows) for column in range(4)]
    lines = (
        f"  {change:<{wide[0]}}  {step:>{wide[1]}} {share:>{wide[2]}}  {held:>{wide[3]}}  {why}"
        for change, step, share, held, why in rows
    )
    return "\n".join(lines)

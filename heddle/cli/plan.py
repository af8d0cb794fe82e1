"""`heddle plan`: which plan, will it fit, how fast is it, and why not another."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heddle.cli.ranged import COUNT, POSITIVE, ranged
from heddle.errors import HeddleError

if TYPE_CHECKING:
    from rich.console import Console

    from heddle.plan.search.explain import Explanation
    from heddle.plan.search.search import Search

FIXED = "Fixed fields of the plan"
PLACEHOLDER = "corpus/*.txt"  # the text of a job that is given by options alone: planning reads none of it


def plan(
    job: Annotated[
        Path | None, typer.Argument(help="A job file; what its [plan] says is fixed.", metavar="[JOB.toml]")
    ] = None,
    top: Annotated[int, ranged(within=COUNT, help="How many plans to show.")] = 10,
    explain: Annotated[bool, typer.Option("--explain", help="Say why this plan, and why not others.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the job with its best plan.", metavar="PLAN.toml")
    ] = None,
    objective: Annotated[
        str, typer.Option(help="fastest step, cheapest step, fewest devices by --days, or smallest memory.")
    ] = "fastest",
    memory_gib: Annotated[float | None, ranged(within=POSITIVE, help="Use at most this much memory a device.")] = None,
    days: Annotated[float | None, ranged(within=POSITIVE, help="The deadline.")] = None,
    tokens: Annotated[
        float | None, ranged(within="[1, 1e18]", help="What to learn from by then; else the job's steps.")
    ] = None,
    devices: Annotated[int | None, ranged(within=COUNT, help="Use this many of the cluster's devices.")] = None,
    free: Annotated[
        bool, typer.Option("--free", help="Do not keep to the file's [plan]; say how good it is instead.")
    ] = False,
    model: Annotated[
        str | None, typer.Option(help="Without a job: a preset, or a config.json.", metavar="NAME|CONFIG.json")
    ] = None,
    cluster: Annotated[
        str | None, typer.Option(help="A preset, or a file; else the job's, or this machine.", metavar="NAME|FILE.toml")
    ] = None,
    nodes: Annotated[int | None, ranged(within="[1, 1e6]", help="How many nodes the cluster has.")] = None,
    global_batch: Annotated[int | None, ranged(within=COUNT, help="Samples a step.")] = None,
    sequence_length: Annotated[int | None, ranged(within=COUNT, help="Tokens a sample.")] = None,
    precision: Annotated[str | None, typer.Option(help="fp32, bf16 or fp16; without a job bf16 on GPUs.")] = None,
    tensor: Annotated[
        int | None, ranged(within="[1, 1e6]", help="Devices that each layer is split over.", rich_help_panel=FIXED)
    ] = None,
    sequence_parallel: Annotated[
        bool | None, typer.Option(help="Split the sequence over them, too.", rich_help_panel=FIXED)
    ] = None,
    pipeline: Annotated[int | None, ranged(within="[1, 1e6]", help="Stages.", rich_help_panel=FIXED)] = None,
    virtual: Annotated[
        int | None, ranged(within="[1, 1e6]", help="Chunks of the model a stage.", rich_help_panel=FIXED)
    ] = None,
    data: Annotated[int | None, ranged(within="[1, 1e6]", help="Replicas.", rich_help_panel=FIXED)] = None,
    zero: Annotated[
        int | None,
        ranged(
            within="[0, 3]",
            help="What replicas share: 0 nothing, 1 optimizer, 2 gradients, 3 parameters.",
            rich_help_panel=FIXED,
        ),
    ] = None,
    microbatch: Annotated[
        int | None, ranged(within="[1, 1e6]", help="Samples of a microbatch.", rich_help_panel=FIXED)
    ] = None,
    schedule: Annotated[str | None, typer.Option(help="1f1b, interleaved or gpipe.", rich_help_panel=FIXED)] = None,
    recompute: Annotated[str | None, typer.Option(help="none, selective or full.", rich_help_panel=FIXED)] = None,
    changes: Annotated[
        list[str] | None, typer.Option("--set", help="Change a key: --set train.steps=50.", metavar="TABLE.KEY=VALUE")
    ] = None,
) -> None:
    """Find the best plan for a model on a cluster, rank the others, and say why."""
    import json

    from rich.console import Console

    from heddle.cli.common import apply_change
    from heddle.plan.search.search import search
    from heddle.spec.job import check_tables, job_from_tables
    from heddle.spec.tables import read_toml

    document = read_toml(job) if job is not None else _without_job(model)
    trained = {"global_batch": global_batch, "sequence": sequence_length, "precision": precision}
    _override(document, model, cluster, nodes, {name: value for name, value in trained.items() if value is not None})
    for change in changes or []:
        apply_change(document, change)
    check_tables(document)
    in_file = document.pop("plan", {})
    document.pop("predicted", None)
    chosen = {
        "tensor": tensor,
        "sequence": sequence_parallel,
        "pipeline": pipeline,
        "virtual": virtual,
        "data": data,
        "zero": zero,
        "microbatch": microbatch,
        "schedule": schedule,
        "recompute": recompute,
    }
    fixed = ({} if free else in_file) | {name: value for name, value in chosen.items() if value is not None}
    folder = job.parent if job is not None else Path()
    found = search(
        job_from_tables(document, folder),
        objective=objective,  # type: ignore[arg-type]
        fixed=fixed,
        top=top,
        devices=devices,
        memory_gib=memory_gib,
        days=days,
        tokens=tokens,
    )
    given = document.get("train", {}).get("global_batch")
    assumed = {} if given is not None else {"global_batch": found.job.train.global_batch}
    reasons = None
    if explain:
        from heddle.plan.search.explain import explain as look_around

        reasons = look_around(found)
    if output is not None:
        _write(output, document, folder, found)
    console = Console(highlight=False)
    if as_json:
        facts = found.to_json() | {"assumed": assumed} | ({"explanation": reasons.to_json()} if reasons else {})
        console.out(json.dumps(facts))
        return
    show(console, found, top)
    if "global_batch" in assumed:
        console.print(
            f"Nothing says how many samples a step takes: planned for global_batch = {found.job.train.global_batch}. "
            "Another batch has another best plan: --global-batch.",
            style="bold",
            soft_wrap=True,
        )
    _show_best(console, found)
    if free and in_file:
        _show_rank(console, found, in_file)
    if reasons is not None:
        show_reasons(console, reasons)
    if output is not None:
        console.print(f"\nWritten to {output}: heddle train, prove and simulate take it as it is.", soft_wrap=True)
        if job is None:
            console.print(f"Training reads data.text = {PLACEHOLDER!r}: name your own text there.", soft_wrap=True)


def _without_job(model: str | None) -> dict[str, Any]:
    """The tables of a job that is given by options alone."""
    if model is None:
        raise HeddleError(
            "There is nothing to plan.",
            "A plan is for a model.",
            "Name a job file, or --model with a preset or a config.json.",
        )
    return {"data": {"text": PLACEHOLDER}}


def _override(
    document: dict[str, Any], model: str | None, cluster: str | None, nodes: int | None, trained: dict[str, Any]
) -> None:
    """Options beat the file."""
    if model is not None:
        document["model"] = {"config" if model.endswith(".json") else "preset": _here(model)}
    if cluster is not None:
        is_file = cluster.endswith(".toml")
        document["cluster"] = {"file" if is_file else "preset": _here(cluster)}
        if "train" not in document and not is_file and cluster != "this":
            trained = {"precision": "bf16"} | trained
    if nodes is not None:
        document.setdefault("cluster", {"preset": "this"})["nodes"] = nodes
    if trained:
        document["train"] = document.get("train", {}) | trained


def _here(name: str) -> str:
    """Files named on the command line lie where it is run, not beside the job."""
    return str(Path(name).absolute()) if Path(name).suffix in (".json", ".toml") else name


def _write(output: Path, document: dict[str, Any], folder: Path, found: Search) -> None:
    """The job as it was written, with the plan and what is predicted of it."""
    from heddle.cli.common import write_output
    from heddle.spec.job import moved
    from heddle.spec.tables import to_table, to_toml

    tables = moved(document, folder, output.parent)
    # the plan is for this batch: a default that changes would make it another job's
    tables["train"] = {"global_batch": found.job.train.global_batch} | tables.get("train", {})
    tables |= {"plan": to_table(found.best.plan), "predicted": to_table(found.best.predicted)}
    write_output(output, to_toml(tables))


def show(console: Console, found: Search, top: int) -> None:
    """A ranked table."""
    from rich.table import Table

    from heddle.plan.search.ranking import ties_in_words
    from heddle.plan.search.search import summary

    job, cluster = found.job, found.cluster
    console.print(
        f"{job.model.name}: {job.model.parameters:,} parameters on {found.best.plan.world:,} × {cluster.device.name}, "
        f"batch {job.train.global_batch} × {job.sequence:,} tokens, {job.train.precision}",
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
            plan.recompute
            if isinstance(plan.recompute, str)
            else f"{plan.recompute.count('full')} of {len(plan.recompute)}"
        )
        table.add_row(
            str(place),
            *[str(plan.world)] * varying,
            f"{plan.tensor}{'s' * plan.sequence}",
            str(plan.pipeline) + (f"×{plan.virtual}" if plan.virtual > 1 else ""),
            str(plan.data),
            str(plan.zero),
            str(plan.microbatch),
            words,
            f"{each.step_seconds:.4g}",
            _rate(each.tokens_per_second),
            f"{each.mfu:.1%}",
            _gib(facts["worst_stage_gib"]),
            _gib(facts["headroom_gib"]),
            f"{each.bubble:.1%}",
            f"+{choice.variants}" if choice.variants else "",
        )
    console.width = max(console.width, 90)  # rather wrapped by a narrow terminal than cut
    console.print(table)
    shown = found.plans[:top]
    names = dict.fromkeys(name for choice in found.choices[:top] for name in choice.fields)
    differ = " or ".join(", ".join(names).rsplit(", ", 1))
    legend = [
        *["tensor 8s: sequence parallel, too"] * any(each.plan.sequence for each in shown),
        *["pipe 4×2: interleaved, 2 chunks a rank"] * any(each.plan.virtual > 1 for each in shown),
        *["recompute 2 of 8: everything in so many layers"] * any(isinstance(p.plan.recompute, tuple) for p in shown),
        "GiB: the fullest stage",
        *[f"variants: other plans with these degrees and microbatch, which differ in {differ}"] * bool(differ),
    ]
    console.print("; ".join(legend), style="dim", soft_wrap=True)
    if tied := ties_in_words(found.plans[:top], found.fastest, found.wish):
        console.print(tied, soft_wrap=True)
    if cluster.device.host:
        console.print(f"speed of this machine: {cluster.efficiency.source}", style="dim", soft_wrap=True)


def _show_best(console: Console, found: Search) -> None:
    """Where the time and the memory of the first choice go, a bar each."""
    from heddle.spec.cluster import GIB
    from heddle.trace.bars import bar, legend, memory_bar

    best = found.best
    width = max(20, min(console.width, 100) - 34)
    time = {name: float(value) for name, value in best.breakdown._asdict().items()}
    bill = best.memory[best.fullest]
    held = {name: float(value) for name, value in bill._asdict().items()}
    console.print()
    for title, line, end, parts in (
        ("time of 1  ", bar(time, width), f"{best.step_seconds:.4g} s", time),
        ("memory of 1", memory_bar(held, best.limit, width), f"{sum(held.values()) / GIB:.3g} GiB", held),
    ):
        console.print(title, line, end, soft_wrap=True)
        console.print(f"            {legend(parts)}", style="dim", soft_wrap=True)


def _rate(value: float) -> str:
    return next(
        (f"{value / size:.4g}{unit}" for size, unit in ((1e6, "M"), (1e3, "k")) if value >= size), f"{value:.4g}"
    )


def _gib(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:.1f}"


def _show_rank(console: Console, found: Search, table: dict[str, Any]) -> None:
    """How good the file's own plan is."""
    from dataclasses import replace

    from heddle.plan.search.describe import in_words, overfull
    from heddle.simulate.simulation import simulate
    from heddle.spec.plan import Plan
    from heddle.spec.tables import build

    own = simulate(replace(found.job, plan=build(Plan, table, "plan")))
    rank = found.rank(own.plan)
    slower = own.step_seconds / found.best.step_seconds - 1
    verdict = f"{own.step_seconds:.4g} s per step ({slower:+.1%})"
    verdict += f", about number {rank:,} of {found.feasible:,}" if rank else ""
    if not own.fits:
        verdict = f"does not fit: {overfull(own)}"
    console.print(f"\nThe file's own plan, {in_words(own.plan)}: {verdict}.", soft_wrap=True)


def show_reasons(console: Console, reasons: Explanation) -> None:
    """Why this plan."""
    from heddle.cli.simulate import TALL
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
        console.print("\n[bold]What the field has learned[/bold]")
    for line in reasons.takeaways:
        console.print(f"  {line}", soft_wrap=True)

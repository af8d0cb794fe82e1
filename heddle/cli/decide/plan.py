"""`heddle plan`: which plan, will it fit, how fast is it, and why not another."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from heddle.cli.ranged import COUNT, POSITIVE, ranged
from heddle.errors import HeddleError
from heddle.schedule.registry import IN_WORDS
from heddle.schedule.written import SEARCHED

GIVEN = "What to plan, in place of a job file or of its keys"
SEARCH = "What to look for"
FIXED = "Fixed fields of the plan; the rest is searched"


def plan(
    job: Annotated[
        Path | None, typer.Argument(help="A job file; whatever its [plan] sets is kept.", metavar="[JOB.toml]")
    ] = None,
    top: Annotated[int, ranged(within=COUNT, help="How many plans to show.")] = 10,
    explain: Annotated[bool, typer.Option("--explain", help="Say why this plan, and why not others.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Write the job with the best plan to this file.", metavar="PLAN.toml"),
    ] = None,
    objective: Annotated[
        str,
        typer.Option(
            help="fastest step, cheapest step, fewest devices by --days, or smallest memory.", rich_help_panel=SEARCH
        ),
    ] = "fastest",
    memory_gib: Annotated[
        float | None, ranged(within=POSITIVE, help="Use at most this much memory per device.", rich_help_panel=SEARCH)
    ] = None,
    days: Annotated[
        float | None, ranged(within=POSITIVE, help="The deadline for --objective fewest.", rich_help_panel=SEARCH)
    ] = None,
    tokens: Annotated[
        float | None,
        ranged(
            within="[1, 1e18]",
            help="Tokens to train on by the deadline. Default: the job's steps.",
            rich_help_panel=SEARCH,
        ),
    ] = None,
    devices: Annotated[
        int | None, ranged(within=COUNT, help="Use this many of the cluster's devices.", rich_help_panel=SEARCH)
    ] = None,
    free: Annotated[
        bool,
        typer.Option(
            "--free", help="Search all plans, and say how the file's [plan] compares.", rich_help_panel=SEARCH
        ),
    ] = False,
    by_layer: Annotated[
        bool | None,
        typer.Option(
            "--by-layer/--no-by-layer",
            help="Choose recompute, zero and offload layer by layer. Default: where memory is short.",
            show_default=False,
            rich_help_panel=SEARCH,
        ),
    ] = None,
    allow_delay: Annotated[
        bool,
        typer.Option("--allow-delay", help="Also consider late updates; the loss may differ.", rich_help_panel=SEARCH),
    ] = False,
    allow_codes: Annotated[
        str | None,
        typer.Option(
            help="Over a network, also let links between groups carry bf16, int8 or int4, no narrower than this; the "
            "loss may differ.",
            metavar="CODE",
            rich_help_panel=SEARCH,
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="A preset, or a config.json from Hugging Face.", metavar="NAME|CONFIG.json", rich_help_panel=GIVEN
        ),
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option(
            help="A preset, or a file. Default: the job's, or this machine.",
            metavar="NAME|FILE.toml",
            rich_help_panel=GIVEN,
        ),
    ] = None,
    nodes: Annotated[
        int | None, ranged(within="[1, 1e6]", help="How many nodes the cluster has.", rich_help_panel=GIVEN)
    ] = None,
    global_batch: Annotated[int | None, ranged(within=COUNT, help="Samples per step.", rich_help_panel=GIVEN)] = None,
    sequence_length: Annotated[
        int | None, ranged(within=COUNT, help="Tokens per sample. Default: the model's longest.", rich_help_panel=GIVEN)
    ] = None,
    precision: Annotated[
        str | None, typer.Option(help="fp32, bf16 or fp16. Default: the best for the devices.", rich_help_panel=GIVEN)
    ] = None,
    tensor: Annotated[
        int | None, ranged(within="[1, 1e6]", help="Devices that each layer is split over.", rich_help_panel=FIXED)
    ] = None,
    sequence_parallel: Annotated[
        bool | None, typer.Option(help="Split the sequence over these devices, too.", rich_help_panel=FIXED)
    ] = None,
    pipeline: Annotated[int | None, ranged(within="[1, 1e6]", help="Pipeline stages.", rich_help_panel=FIXED)] = None,
    virtual: Annotated[
        int | None, ranged(within="[1, 1e6]", help="Chunks of the model per rank.", rich_help_panel=FIXED)
    ] = None,
    data: Annotated[
        int | None, ranged(within="[1, 1e6]", help="Data-parallel replicas.", rich_help_panel=FIXED)
    ] = None,
    zero: Annotated[
        int | None,
        ranged(
            within="[0, 3]",
            help="What replicas shard: 0 nothing, 1 optimizer, 2 + gradients, 3 + parameters.",
            rich_help_panel=FIXED,
        ),
    ] = None,
    microbatch: Annotated[
        int | None, ranged(within="[1, 1e6]", help="Samples per microbatch.", rich_help_panel=FIXED)
    ] = None,
    schedule: Annotated[
        str | None,
        typer.Option(help=f"{IN_WORDS}; all; or searched, an order found for this plan.", rich_help_panel=FIXED),
    ] = None,
    recompute: Annotated[str | None, typer.Option(help="none, selective or full.", rich_help_panel=FIXED)] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="Change a key: --set train.steps=50.", metavar="TABLE.KEY=VALUE", rich_help_panel=GIVEN
        ),
    ] = None,
) -> None:
    """Find the best plan for a model on a cluster, rank the others, and say why."""
    import json

    from rich.console import Console

    from heddle.cli.common import apply_change
    from heddle.cli.decide.planned_job import assumed_by, write_plan
    from heddle.cli.show.plan import show_best, show_choices, show_rank, show_reasons
    from heddle.plan.search.search import search, summary
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
    loaded = job_from_tables(document, folder)
    if loaded.network is not None:
        from heddle.cli.show.network import show_over_network

        refused = {"--objective": objective != "fastest", "--devices": devices, "--days": days, "--by-layer": by_layer}
        refused |= {"--memory-gib": memory_gib, "--allow-delay": allow_delay}
        show_over_network(
            loaded,
            fixed,
            top,
            as_json,
            explain,
            [name for name, given in refused.items() if given],
            None if output is None else lambda best: write_plan(output, document, folder, best.job, best),
            allow_codes,
        )
        return
    if allow_codes is not None:
        raise HeddleError(
            "--allow-codes needs a [network].",
            "It is for links that differ; those of a cluster are alike.",
            "Set compress_gradients or compress_activations in [plan], which hold for all links.",
        )
    found = search(
        loaded,
        objective=objective,  # type: ignore[arg-type]
        fixed=fixed,
        top=top,
        devices=devices,
        memory_gib=memory_gib,
        days=days,
        tokens=tokens,
        by_layer=by_layer,
    )
    assumed = assumed_by(document, found.job)
    reasons = None
    if explain:
        from heddle.plan.search.explain import explain as look_around

        reasons = look_around(found)
    searched = []
    if fixed.get("schedule") == SEARCHED:
        from heddle.plan.search.ordered import ordered_plans, searched_in_words

        searched = ordered_plans(found.plans)
    late = []
    if allow_delay:
        from heddle.plan.search.late import late_in_words, late_plans

        late = late_plans(found.plans)
    if output is not None:
        write_plan(output, document, folder, found.job, (late or searched or [found.best])[0])
    console = Console(highlight=False)
    if as_json:
        facts = found.to_json() | {"assumed": assumed} | ({"explanation": reasons.to_json()} if reasons else {})
        facts |= {"searched": [summary(one) for one in searched]} if fixed.get("schedule") == SEARCHED else {}
        facts |= {"late": [one.to_json() for one in late]} if allow_delay else {}
        console.out(json.dumps(facts))
        return
    show_choices(console, found, top)
    if "global_batch" in assumed:
        console.print(
            f"No batch size is given: planned for global_batch = {found.job.train.global_batch}. "
            "The best plan depends on it: set --global-batch.",
            style="bold",
            soft_wrap=True,
        )
    if job is None and sequence_length is None and str(model).endswith(".json"):
        console.print(
            f"No sequence length is given: planned for the model's longest, {found.job.sequence:,} tokens. "
            "Set --sequence-length for another.",
            soft_wrap=True,
        )
    show_best(console, found)
    if fixed.get("schedule") == SEARCHED:
        none = "No searched order would be faster than the best named schedule."
        console.print(searched_in_words(searched[0], found.best) if searched else none, soft_wrap=True)
    if allow_delay:
        words = late_in_words(late[0], found.best) if late else "No plan with late updates would be faster."
        console.print(words, soft_wrap=True)
    if free and in_file:
        show_rank(console, found, in_file)
    if reasons is not None:
        show_reasons(console, reasons)
    if output is not None:
        ready = (
            "heddle train, prove and simulate" if found.job.data else "heddle prove and simulate; add [data] to train"
        )
        console.print(f"\nWritten to {output}, ready for {ready}.", soft_wrap=True, markup=False)


def _without_job(model: str | None) -> dict[str, Any]:
    """The tables of a job that is given by options alone."""
    if model is None:
        raise HeddleError(
            "There is nothing to plan.",
            "A plan is for a model.",
            "Name a job file, or --model with a preset or a config.json.",
        )
    return {}


def _override(
    document: dict[str, Any], model: str | None, cluster: str | None, nodes: int | None, trained: dict[str, Any]
) -> None:
    """Options beat the file."""
    if model is not None:
        document["model"] = {"config" if model.endswith(".json") else "preset": _here(model)}
    if cluster is not None:
        is_file = cluster.endswith(".toml")
        document["cluster"] = {"file" if is_file else "preset": _here(cluster)}
    if nodes is not None:
        document.setdefault("cluster", {"preset": "this"})["nodes"] = nodes
    if trained:
        document["train"] = document.get("train", {}) | trained


def _here(name: str) -> str:
    """Files named on the command line lie where it is run, not beside the job."""
    return str(Path(name).absolute()) if Path(name).suffix in (".json", ".toml") else name

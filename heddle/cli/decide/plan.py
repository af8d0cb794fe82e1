"""`heddle plan`: which plan, will it fit, how fast is it, and why not another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from heddle.cli.decide import plan_options as options
from heddle.cli.decide.plan_options import fixed_of, takes_fixed_fields
from heddle.errors import HeddleError


@takes_fixed_fields
def plan(
    job: options.JobFile = None,
    top: options.Top = 10,
    explain: options.Explain = False,
    as_json: options.AsJson = False,
    output: options.Output = None,
    objective: options.Objective = "fastest",
    memory_gib: options.MemoryGib = None,
    days: options.Days = None,
    tokens: options.Tokens = None,
    price: options.Price = None,
    devices: options.Devices = None,
    free: options.Free = False,
    by_layer: options.ByLayer = None,
    allow_delay: options.AllowDelay = False,
    allow_compression: options.AllowCompression = None,
    model: options.Model = None,
    cluster: options.Cluster = None,
    nodes: options.Nodes = None,
    global_batch: options.GlobalBatch = None,
    sequence_length: options.SequenceLength = None,
    precision: options.Precision = None,
    network: options.Network = None,
    changes: options.Changes = None,
    **fixed: Any,
) -> None:
    """Find the best plan for a model on a cluster, rank the others, and say why."""
    from heddle.cli.decide.plan_file import assumed_by, write_plan
    from heddle.cli.show.methods import show_methods
    from heddle.cli.show.network import show_over_network
    from heddle.cli.show.search import Asked, show_search
    from heddle.console import plain_console
    from heddle.planning.best import best
    from heddle.planning.methods import fine_tunes, methods
    from heddle.planning.regions.network_search import NetworkSearch
    from heddle.planning.request import PlanRequest
    from heddle.spec.changes import apply_change, override
    from heddle.spec.job import check_tables, job_from_tables
    from heddle.spec.tables import read_toml

    document = read_toml(job) if job is not None else _without_job(model)
    trained = {"global_batch": global_batch, "sequence": sequence_length, "precision": precision}
    trained = {name: value for name, value in trained.items() if value is not None}
    override(document, model, cluster, nodes, trained, network)
    for change in changes or []:
        apply_change(document, change)
    check_tables(document)
    in_file = document.pop("plan", {})
    document.pop("predicted", None)
    folder = job.parent if job is not None else Path()
    loaded = job_from_tables(document, folder)
    if loaded.network is not None and price is not None:
        raise HeddleError(
            "--price does not go with a [network].",
            "Its devices differ, and so do their prices.",
            "Leave --price out; `heddle plan` says how long a step takes.",
        )
    request = PlanRequest(
        objective=objective,  # type: ignore[arg-type]
        fixed=({} if free else in_file) | fixed_of(fixed),
        top=top,
        devices=devices,
        memory_gib=memory_gib,
        days=days,
        tokens=tokens,
        by_layer=by_layer,
        allow_delay=allow_delay,
        allow_compression=allow_compression,
    )
    ways = methods(loaded, request) if explain and fine_tunes(loaded) and loaded.network is None else []
    try:
        found = best(loaded, request)
    except HeddleError:
        if ways and not as_json:
            show_methods(plain_console(), ways)
        raise
    if isinstance(found, NetworkSearch):
        if output is not None:
            write_plan(output, document, folder, found.best.job, found.best)
        show_over_network(found, as_json, explain, written=output is not None)
        return
    reasons = None
    if explain:
        from heddle.planning.search.explain import explain as look_around

        reasons = look_around(found)
    if output is not None:
        write_plan(output, document, folder, found.job, found.chosen)
    own = in_file if free else {}
    longest = job is None and sequence_length is None and str(model).endswith(".json")
    asked = Asked(own, assumed_by(document, found.job), longest, price, output, ways)
    show_search(found, request, asked, reasons, as_json)


def _without_job(model: str | None) -> dict[str, Any]:
    """The tables of a job that is given by options alone."""
    if model is None:
        raise HeddleError(
            "There is nothing to plan.",
            "A plan is for a model.",
            "Name a job file, or --model with a preset or a config.json.",
        )
    return {}

"""From Python: describe a job, plan it, predict it; describe the cluster it runs on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from heddle.api.given import cluster_of, job_of, path_of, paths_of

if TYPE_CHECKING:
    from heddle.calibrate.calibrate import Calibration
    from heddle.calibrate.validate import Validation
    from heddle.planning.regions.network_search import NetworkSearch
    from heddle.planning.search.search import Search
    from heddle.schedule.actions import Schedule
    from heddle.simulating.simulation import Simulation
    from heddle.spec.cluster import Cluster
    from heddle.spec.job import Job, Precision
    from heddle.spec.network import Network


def job(
    model: str | Path | Mapping[str, Any],
    *,
    cluster: str | Path | Mapping[str, Any] | None = None,
    nodes: int | None = None,
    network: str | Path | Mapping[str, Any] | None = None,
    global_batch: int | None = None,
    sequence_length: int | None = None,
    precision: Precision | None = None,
    data: Mapping[str, Any] | None = None,
    train: Mapping[str, Any] | None = None,
    plan: Mapping[str, Any] | None = None,
    tune: Mapping[str, Any] | None = None,
) -> Job:
    """Make a job without a file. A mapping has the keys of the table in a job file that has its name.

    Args:
        model: a preset, the path of a Hugging Face config.json, or keys of [model].
        cluster: a preset, the path of a cluster file, or keys of [cluster]; this machine if left out.
        nodes: how many nodes the cluster has.
        network: the path of a network file, or keys of [network].
        global_batch: samples per step.
        sequence_length: tokens per sample; the model's longest if left out.
        precision: what products are computed in; the best for the devices if left out.
        data: keys of [data]; a job without it can be planned and proven, but not trained.
        train: keys of [train].
        plan: keys of [plan]; a job without it is planned where a plan is needed.
        tune: keys of [tune]: adapters that learn beside a frozen model.

    >>> import heddle
    >>> job = heddle.job("llama-3-8b", cluster="dgx-h100", nodes=4, global_batch=64)
    >>> heddle.plan(job).best.plan.world
    32
    """
    from heddle.spec.changes import override
    from heddle.spec.job import job_from_tables

    tables = {"data": data, "train": train, "tune": tune, "plan": plan}
    document: dict[str, Any] = {name: dict(table) for name, table in tables.items() if table is not None}
    named: dict[str, str | None] = {}
    for name, value in (("model", model), ("cluster", cluster)):
        named[name] = str(value) if isinstance(value, str | Path) else None
        if value is not None and named[name] is None:
            document[name] = dict(value) if isinstance(value, Mapping) else value
    if isinstance(network, Mapping):
        document["network"] = dict(network)
    given = {"global_batch": global_batch, "sequence": sequence_length, "precision": precision}
    override(
        document,
        named["model"],
        named["cluster"],
        nodes,
        {key: value for key, value in given.items() if value is not None},
        None if isinstance(network, Mapping) else network,
    )
    return job_from_tables(document)


def load_job(path: str | Path, changes: Iterable[str] = ()) -> Job:
    """Read a job file.

    Args:
        path: the TOML file.
        changes: keys to change, as `--set` does: ["train.steps=50"].

    >>> import heddle
    >>> heddle.load_job("examples/tiny.toml", ["train.steps=5"]).train.steps
    5
    """
    from heddle.spec.changes import load_with_changes

    return load_with_changes(path_of(path, "a job file"), changes)


def plan(
    job: Job | str | Path,
    *,
    objective: Literal["fastest", "cheapest", "fewest", "smallest"] = "fastest",
    fixed: dict[str, Any] | None = None,
    top: int = 10,
    devices: int | None = None,
    memory_gib: float | None = None,
    days: float | None = None,
    tokens: float | None = None,
    by_layer: bool | None = None,
    allow_delay: bool = False,
    allow_compression: Literal["bf16", "int8", "int4"] | None = None,
) -> Search | NetworkSearch:
    """Find the best plan for a job's model and batch on its cluster; the job's own plan is ignored.

    Args:
        job: what is trained, and on what; without a cluster, on this machine.
        objective: "fastest" step; "cheapest", in device-seconds, and "fewest" devices that meet the deadline of
            `days`, both on at most all of the cluster's devices; "smallest" memory.
        fixed: fields of the plan that are already decided, such as {"tensor": 8}.
        top: how many plans to simulate exactly and return, best first.
        devices: use this many of the cluster's devices.
        memory_gib: use at most this much of a device's memory.
        days: the deadline.
        tokens: tokens to train on, by then or for the days that are predicted; the job's steps if left out.
        by_layer: let every layer recompute, shard and offload on its own: True, wherever that is faster; False, never;
            left out, where nothing else fits, or it is faster by more than the error of a prediction.
        allow_delay: also consider late updates, which are then in `late`; the loss may differ.
        allow_compression: over a network, let links between groups carry this code, or a wider one; the loss may
            differ.

    >>> import heddle
    >>> found = heddle.plan("examples/plans/gpt3-175b.toml")
    >>> found.best.plan.tensor
    8
    >>> found.best.fits
    True
    """
    from heddle.planning.best import best
    from heddle.planning.request import PlanRequest

    request = PlanRequest(
        objective=objective,
        fixed=fixed or {},
        top=top,
        devices=devices,
        memory_gib=memory_gib,
        days=days,
        tokens=tokens,
        by_layer=by_layer,
        allow_delay=allow_delay,
        allow_compression=allow_compression,
    )
    return best(job_of(job), request)


def simulate(job: Job | str | Path) -> Simulation:
    """Predict a training step of a job: how long it takes, where the time goes, what each stage holds.

    A job without a plan is planned first.
    The cluster must state how fast its devices multiply and how fast their memory is; presets do.

    >>> import heddle
    >>> prediction = heddle.simulate("examples/plans/gpt3-175b.toml")
    >>> prediction.fits
    True
    >>> 0.4 < prediction.mfu < 0.6
    True
    """
    from heddle.planning.best import with_best_plan
    from heddle.simulating.simulation import simulate as predict

    planned, found = with_best_plan(job_of(job))
    return predict(planned) if found is None else found.best


def build_schedule(
    name: str, pipeline: int, microbatches: int, *, virtual: int | None = None, extra_warmup: int | None = None
) -> Schedule:
    """The order of work of a named pipeline schedule, checked: nothing is missing, and it cannot deadlock.

    Args:
        name: such as "1f1b"; `heddle schedule --help` lists them. Orders that are searched are in `heddle.plan`.
        pipeline: pipeline ranks.
        microbatches: per step.
        virtual: chunks of the model per rank; what is usual for the schedule if left out.
        extra_warmup: of "deep-1f1b": microbatches that a rank starts early, per later rank.

    Returns:
        The schedule; `ranks` are the actions of each rank.

    >>> import heddle
    >>> [len(rank) for rank in heddle.build_schedule("1f1b", 2, 4).ranks]
    [8, 8]
    """
    from heddle.schedule import build, rule_of, verify

    usual = rule_of(name, extra_warmup).usual_virtual
    order = build(name, pipeline, microbatches, usual if virtual is None else virtual, extra_warmup)
    verify(order)
    return order


def profile(processes: int | None = None, *, quick: bool = False) -> Cluster:
    """Measure this machine: matrix products, memory, collectives, kernel launches, host and disk.

    Args:
        processes: how many measure at once; one per GPU or core if left out.
        quick: take seconds instead of most of a minute, and be far less accurate.
    """
    from heddle.spec.this_machine import this_machine
    from heddle.training.profile.profile import profile as measure

    return measure(this_machine().devices if processes is None else processes, quick)


def probe(processes: int = 2, *, quick: bool = False) -> Network | None:
    """Measure latency and bandwidth between all processes of a launch.

    Args:
        processes: how many to start on this machine, unless a launcher has started them.
        quick: shorter messages: a fifth of the time, less accurate.

    Returns:
        The network. None on all but the first rank of a launcher.
    """
    from heddle.training.probe.probe import probe as measure

    found = measure(processes, quick)
    return None if found is None else found.network


def fit_cluster(
    cluster: Cluster | str | Path,
    rows: str | Path | Sequence[str | Path],
    *,
    constants: Sequence[str] | None = None,
    loosen: float = 1.0,
) -> Calibration:
    """Fit a cluster's constants to measured runs, as `heddle calibrate` does.

    Args:
        cluster: where to start: a cluster, a preset or a file.
        rows: CSV files of measured runs, layer times or collectives.
        constants: which to fit; all if left out.
        loosen: let constants move this many times farther from the given ones.

    Returns:
        The `cluster` that was found, and the `fit`: its errors, on rows it has seen and on unseen ones.
    """
    from heddle.calibrate.calibrate import CONSTANTS, calibrate

    return calibrate(cluster_of(cluster), paths_of(rows), CONSTANTS if constants is None else constants, loosen)


def validate(rows: str | Path | Sequence[str | Path], cluster: Cluster | str | Path | None = None) -> Validation:
    """Compare predictions with measured runs: step seconds and, where given, memory.

    Args:
        rows: CSV files of measured runs.
        cluster: a cluster, a preset or a file; the preset of each row's GPU if left out.
    """
    from heddle.calibrate.validate import validate as compare

    return compare(paths_of(rows), None if cluster is None else cluster_of(cluster))

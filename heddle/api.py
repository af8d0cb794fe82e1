"""What users call from Python, as plain functions: `heddle.plan(job)`, `heddle.train("job.toml")`.

Each imports what it needs when it is called, so that `import heddle` stays light and works without PyTorch. A job is a
`heddle.Job`, or the path of its file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from torch import nn

    from heddle.capture.graph import CapturedGraph
    from heddle.capture.placed import Placed
    from heddle.plan.piper.result import PiperPlan
    from heddle.plan.piper.workload import Workload
    from heddle.plan.placement.operator_graph import OperatorGraph
    from heddle.plan.placement.result import Placement
    from heddle.plan.regions.network_search import NetworkSearch
    from heddle.plan.search.search import Search
    from heddle.simulate.simulation import Simulation
    from heddle.spec.cluster import Cluster
    from heddle.spec.job import Job
    from heddle.train.dry_run.dry_run import DryRun
    from heddle.train.loop import Result
    from heddle.train.prove.prove import Proof


def load_job(path: str | Path, changes: Iterable[str] = ()) -> Job:
    """Read a job file.

    Args:
        path: the TOML file.
        changes: keys to change, as `--set` does: ["train.steps=50"].

    >>> import heddle
    >>> heddle.load_job("examples/tiny.toml", ["train.steps=5"]).train.steps
    5
    """
    from heddle.cli.common import load_with_changes

    job: Job = load_with_changes(Path(path), list(changes))
    return job


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
        tokens: tokens to train on by then; the job's steps if left out.
        by_layer: let every layer recompute, shard and offload on its own: True, wherever that is faster; False, never;
            left out, if memory is short (nothing else fits, or `memory_gib` is given) and it is faster by more
            than the error of a prediction.

    >>> import heddle
    >>> found = heddle.plan("examples/plans/gpt3-175b.toml")
    >>> found.best.plan.tensor
    8
    >>> found.best.fits
    True
    """
    from heddle.plan.search.search import search

    given = _job(job)
    if given.network is not None:
        from heddle.plan.regions.network_search import search_network

        return search_network(given, fixed, top)
    return search(
        given,
        objective=objective,
        fixed=fixed,
        top=top,
        devices=devices,
        memory_gib=memory_gib,
        days=days,
        tokens=tokens,
        by_layer=by_layer,
    )


def simulate(job: Job | str | Path) -> Simulation:
    """Predict a training step of a job: how long it takes, where the time goes, what each stage holds.

    The cluster must state how fast its devices multiply and how fast their memory is; presets do.

    >>> import heddle
    >>> prediction = heddle.simulate("examples/plans/gpt3-175b.toml")
    >>> prediction.fits
    True
    >>> 0.4 < prediction.mfu < 0.6
    True
    """
    from heddle.simulate.simulation import simulate as predict

    return predict(_job(job))


def train(job: Job | str | Path, *, resume: bool = False, trace: bool = False) -> Result | None:
    """Train a job, on as many processes as its plan needs; a job without a plan is planned first.

    In a script that starts several processes, call it under `if __name__ == "__main__":`.

    Args:
        job: what to train.
        resume: continue from the newest checkpoint.
        trace: record what every rank does.

    Returns:
        How the run ended. None on all but the first rank of a launcher such as torchrun.
    """
    from heddle.train.loop import train as run
    from heddle.train.planned import with_plan

    return run(with_plan(_job(job), resume)[0], resume=resume, trace=trace)


def dry_run(job: Job | str | Path) -> DryRun:
    """Run one step of every kind of rank in a job's plan, with meta tensors: nothing is allocated.

    What would fail in training is a `HeddleError` here; the result says what each rank would hold, send and receive.
    """
    from heddle.train.dry_run.dry_run import dry_run as try_job
    from heddle.train.planned import with_plan

    return try_job(with_plan(_job(job), dry_run=True)[0])


def prove(job: Job | str | Path, steps: int = 20) -> Proof | None:
    """Check that a job's plan trains like one device: losses and every gradient, on a shrunken model.

    Args:
        job: a job with a plan.
        steps: how many steps to train.

    Returns:
        What was tried, and the result. None on all but the first rank of a launcher.
    """
    from heddle.train.prove.prove import prove as run_proof

    return run_proof(_job(job), steps)


def generate(
    run: str | Path,
    prompt: str = "",
    *,
    tokens: int = 200,
    temperature: float = 0.8,
    top_k: int = 0,
    top_p: float = 1.0,
    seed: int = 0,
    tiles: bool = False,
    int8: bool = False,
) -> str:
    """Let a trained model continue a text.

    Args:
        run: a run's folder, a checkpoint or a Hugging Face folder.
        prompt: the text.
        tokens: how many to add, at most.
        temperature: 0 always takes the likeliest token.
        top_k: sample from this many likeliest tokens; 0: from all.
        top_p: sample from the likeliest tokens that together reach this probability.
        seed: the same seed gives the same text.
        tiles: run on CPU cores tile by tile, where that is faster.
        int8: decode with weights rounded to int8, by tiles; `heddle.tiles.generate.int8_error` says how far off it is.

    Returns:
        The text that was added.
    """
    import warnings

    from heddle.checkpoint.load_model import load_for_inference
    from heddle.models.generate import generate as continue_text

    model, tokenizer = load_for_inference(Path(run), lambda words: warnings.warn(words, stacklevel=3))
    ids = [int(i) for i in tokenizer.encode(prompt)] or [tokenizer.end]
    engine = None
    if tiles or int8:
        from heddle.tiles.generate import TileEngine

        engine = TileEngine(model, int8=int8)
    stream = continue_text(model, ids, engine=engine, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed)
    added: list[int] = []
    for token, _ in zip(stream, range(tokens), strict=False):
        if token == tokenizer.end:
            break
        added.append(token)
    return tokenizer.decode(added)


def report(
    subject: str | Path,
    other: str | Path | None = None,
    *,
    output: str | Path = "report.html",
    step: int | None = None,
) -> Path:
    """Write one HTML page about a run or a plan: timeline, time, memory, loss, and the other plans.

    Args:
        subject: a run's folder, or a job file.
        other: another one, to show side by side.
        output: the file to write.
        step: which traced step to show; a typical one if not given.

    Returns:
        Where the page is.
    """
    from heddle.files import write_output
    from heddle.report.page import render
    from heddle.report.subject import read_subject

    found = [read_subject(Path(each), step) for each in (subject, other) if each is not None]
    write_output(Path(output), render(found))
    return Path(output)


def piper(
    workload: Workload | str | Path,
    *,
    devices: int | None = None,
    time_limit: float = 60.0,
) -> PiperPlan | None:
    """Find the pipeline with the best throughput for a graph of layers: stages, degrees, memory options.

    Args:
        workload: a file in the published format, or a `Workload` read from one.
        devices: how many; the workload's number if not given.
        time_limit: seconds, after which the best so far is the answer.

    Returns:
        The pipeline, or None if nothing fits.

    >>> import heddle
    >>> found = heddle.piper("examples/layers.json", devices=4)
    >>> found.optimal, found.devices <= 4
    (True, True)
    """
    from heddle.plan.piper.solve import plan_pipelines
    from heddle.plan.piper.workload import read_workload

    read = read_workload(Path(workload)) if isinstance(workload, str | Path) else workload
    read = read.replace(devices=devices)
    return plan_pipelines(read, time_limit=time_limit)[read.devices]


def capture(
    module: nn.Module,
    example_inputs: Sequence[Any],
    keywords: Mapping[str, Any] | None = None,
    *,
    training: bool = False,
    loss: Callable[[Any, Any], Any] | None = None,
    times: Literal["measured", "modelled"] = "measured",
    cluster: Cluster | None = None,
    devices: int = 2,
    memory: float | None = None,
) -> CapturedGraph:
    """Turn a module into a graph of operators, through `torch.export`.

    Args:
        module: any module whose control flow does not depend on the values of its inputs.
        example_inputs: a tuple of what the module is called with; it then runs for these shapes only.
        keywords: named inputs.
        training: backward operators as well. The module must then return its loss.
        loss: a function of the module's output and a target; the target is then the last of the example inputs.
        times: "measured", here, in as many processes at once as there are devices; or "modelled", from FLOPs and bytes
            alone: nothing is run, and the module may consist of fake tensors.
        cluster: whose devices and links to model; this machine if not given.
        devices: for how many devices.
        memory: bytes per device; the cluster's if not given.

    >>> import heddle, torch
    >>> mlp = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 64))
    >>> graph = heddle.capture(mlp, (torch.ones(8, 64),), times="modelled")
    >>> graph.names
    ['0.linear', '1.relu', '2.linear_1']
    >>> graph.size.astype(int).tolist()
    [66560, 0, 65792]
    """
    from heddle.capture.placed import captured

    return captured(
        module,
        example_inputs,
        keywords,
        training=training,
        loss=loss,
        times=times,
        cluster=cluster,
        devices=devices,
        memory=memory,
    )


def place(
    what: nn.Module | OperatorGraph | str | Path,
    example_inputs: Sequence[Any] | None = None,
    keywords: Mapping[str, Any] | None = None,
    *,
    devices: int | None = None,
    memory: float | None = None,
    training: bool = False,
    loss: Callable[[Any, Any], Any] | None = None,
    times: Literal["measured", "modelled"] = "measured",
    cluster: Cluster | None = None,
    objective: Literal["throughput", "latency"] = "throughput",
    method: Literal["auto", "dp", "dpl", "ip", "greedy", "local", "one"] = "auto",
    contiguous: bool = True,
    cpus: int | None = None,
    time_limit: float = 60.0,
    progress: Callable[[float, float], None] | None = None,
) -> Placed | Placement:
    """Place a module's operators on devices; or those of a graph, or of a graph's file.

    For a module it returns a `Placed`, which can `run`; for a graph, such as one from `capture`, a `Placement`.

    Args:
        what: a module, a graph, or a file in the published format.
        example_inputs: for a module, as for `capture`; so are `keywords`, `training`, `loss`, `times` and `cluster`.
        keywords: named inputs.
        devices: how many accelerators; for a module 2 if not given, for a graph its own number.
        memory: bytes per accelerator.
        training: whether the module is trained.
        loss: a function of its output and a target.
        times: "measured" or "modelled".
        cluster: whose devices to model.
        objective: "throughput" (the smallest maximum load) or "latency" (of a single sample).
        method: "auto" is exact where possible; docs/decide/placement.md describes the others.
        contiguous: require a pipeline. Other splits may be better, but cannot be run.
        cpus: how many CPUs in addition to the accelerators; a graph's own number if not given.
        time_limit: seconds, after which the best so far is the answer.
        progress: called with the best value and the lower bound when they change.

    >>> import heddle
    >>> found = heddle.place("examples/operators.json", devices=2)
    >>> found.optimal, len(found.devices)
    (True, 3)
    """
    from heddle.plan.placement.operator_graph import OperatorGraph, read_graph
    from heddle.plan.placement.place import place as place_graph

    search: dict[str, Any] = {
        "objective": objective,
        "method": method,
        "contiguous": contiguous,
        "cpus": cpus,
        "time_limit": time_limit,
        "progress": progress,
    }
    graph = read_graph(Path(what)) if isinstance(what, str | Path) else what
    if isinstance(graph, OperatorGraph):
        return place_graph(graph, devices=devices, memory=memory, **search)
    from heddle.capture.placed import Placed

    found = capture(
        graph,
        () if example_inputs is None else example_inputs,
        keywords,
        training=training,
        loss=loss,
        times=times,
        cluster=cluster,
        devices=2 if devices is None else devices,
        memory=memory,
    )
    return Placed(found, place_graph(found, **search))


def _job(job: Job | str | Path) -> Job:
    return load_job(job) if isinstance(job, str | Path) else job

"""From Python: any network as a graph, split over devices; and who holds what over links that differ."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from torch import nn

    from heddle.capturing.graph import CapturedGraph
    from heddle.capturing.placed import Placed
    from heddle.planning.piper.result import PiperPlan
    from heddle.planning.piper.workload import Workload
    from heddle.planning.placement.operator_graph import OperatorGraph
    from heddle.planning.placement.result import Placement
    from heddle.planning.regions.solve import Found
    from heddle.spec.cluster import Cluster


def piper(
    workload: Workload | str | Path,
    *,
    devices: int | None = None,
    memory_gib: float | None = None,
    bandwidth_gib: float | None = None,
    microbatches: int | None = None,
    uniform: bool = False,
    time_limit: float = 60.0,
) -> PiperPlan | None:
    """Find the pipeline with the best throughput for a graph of layers: stages, degrees, memory options.

    Args:
        workload: a file in the published format, or a `Workload` read from one.
        devices: how many; the workload's number if not given.
        memory_gib: of a device; the workload's if not given.
        bandwidth_gib: between devices, per second; the workload's if not given.
        microbatches: per step; the workload's if not given.
        uniform: the same degrees in all stages.
        time_limit: seconds, after which the best so far is the answer.

    Returns:
        The pipeline, or None if nothing fits.

    >>> import heddle
    >>> found = heddle.piper("examples/layers.json", devices=4)
    >>> found.optimal, found.devices <= 4
    (True, True)
    """
    from heddle.format import GIB
    from heddle.planning.piper.solve import plan_pipelines
    from heddle.planning.piper.workload import read_workload

    read = read_workload(Path(workload)) if isinstance(workload, str | Path) else workload
    read = read.replace(
        devices=devices,
        memory=None if memory_gib is None else memory_gib * GIB,
        bandwidth=None if bandwidth_gib is None else bandwidth_gib * GIB,
        microbatches=microbatches,
    )
    return plan_pipelines(read, time_limit=time_limit, uniform=uniform)[read.devices]


def capture(
    module: nn.Module,
    example_inputs: Sequence[Any],
    keywords: Mapping[str, Any] | None = None,
    *,
    training: bool = False,
    loss: Callable[[Any, Any], Any] | None = None,
    times: Literal["measured", "modeled"] = "measured",
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
        times: "measured", here, in as many processes at once as there are devices; or "modeled", from FLOPs and bytes
            alone: nothing is run, and the module may consist of fake tensors.
        cluster: whose devices and links to model; this machine if not given.
        devices: for how many devices.
        memory: bytes per device; the cluster's if not given.

    >>> import heddle, torch
    >>> mlp = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 64))
    >>> graph = heddle.capture(mlp, (torch.ones(8, 64),), times="modeled")
    >>> graph.names
    ['0.linear', '1.relu', '2.linear_1']
    >>> graph.size.astype(int).tolist()
    [66560, 0, 65792]
    """
    from heddle.capturing.placed import captured

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
    times: Literal["measured", "modeled"] = "measured",
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
        times: "measured" or "modeled".
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
    from heddle.planning.placement.operator_graph import OperatorGraph, read_graph
    from heddle.planning.placement.place import place as place_graph

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
    from heddle.capturing.placed import Placed

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


def regions(
    file: str | Path,
    *,
    case: str | None = None,
    pipeline: int | None = None,
    data: int | None = None,
    time_limit: float = 3.0,
    seed: int = 0,
) -> Found:
    """Choose which device holds which stage when links differ. To plan a job, give it a [network] and call `plan`.

    Args:
        file: networks and a workload, as JSON.
        case: which network of the file, if it has several.
        pipeline: stages; the file's if left out. Replicas follow from the devices.
        data: replicas per stage; the file's if left out.
        time_limit: CPU seconds, after which the best so far is the answer.
        seed: of the search.

    Returns:
        The `layout`, with its cost; `bound`, below which no layout costs; `seconds`.
    """
    from heddle.planning.regions import read_case, solve

    return solve(read_case(Path(file), case, pipeline, data).problem, time_limit, seed)

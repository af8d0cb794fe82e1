"""Any module as a graph of operators, placed on devices, and run there.

`heddle.capture` and `heddle.place` are what users call. Torch is imported when they are: graphs from files need none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heddle.callable import make_callable

if TYPE_CHECKING:
    from torch import nn

    from heddle.capture.graph import CapturedGraph
    from heddle.capture.placed import Placed
    from heddle.plan.placement_graph import OperatorGraph
    from heddle.plan.placement_result import Placement
    from heddle.spec.cluster import Cluster


def capture(
    module: nn.Module,
    example_inputs: Sequence[Any],
    keywords: Mapping[str, Any] | None = None,
    *,
    training: bool = False,
    loss: Callable[[Any, Any], Any] | None = None,
    times: str = "measured",
    cluster: Cluster | None = None,
    devices: int = 2,
    memory: float | None = None,
) -> CapturedGraph:
    """Turn a module into a graph of operators, through `torch.export`.

    Args:
        module: any module whose path does not depend on the numbers in its inputs.
        example_inputs: a tuple, as the module is called with; it runs for these shapes only.
        keywords: named inputs.
        training: backward operators as well. The module must then give its loss.
        loss: of the module's output and of a target; the target is then the last of the example inputs.
        times: "measured", here, in as many processes at once as there are devices; or "modelled", from FLOPs and bytes
            alone: nothing is run, and the module may be made of fake tensors.
        cluster: whose devices and links to model; this machine if not given.
        devices: for how many devices.
        memory: bytes of each; those of the cluster's if not given.

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
    times: str = "measured",
    cluster: Cluster | None = None,
    **search: Any,
) -> Placed | Placement:
    """Place a module's operators on devices; or those of a graph, or of a graph's file.

    A module gives a `Placed`, which can `run`; a graph gives a `Placement`, as a graph from `capture` does too.

    Args:
        what: a module, a graph, or a file of the published format.
        example_inputs: of a module, as for `capture`; so are `keywords`, `training`, `loss`, `times` and `cluster`.
        keywords: named inputs.
        devices: how many accelerators; for a module 2 if not given, for a graph its own number.
        memory: bytes of each.
        training: whether the module is trained.
        loss: of its output and a target.
        times: "measured" or "modelled".
        cluster: whose devices to model.
        search: as for `heddle.plan.placement.place`: objective, method, contiguous, cpus, time_limit, progress.

    >>> import heddle
    >>> found = heddle.place("examples/operators.json", devices=2)
    >>> found.optimal, len(found.devices)
    (True, 3)
    """
    from heddle.plan.placement import place as place_graph
    from heddle.plan.placement_graph import OperatorGraph, read_graph

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
        devices=devices or 2,
        memory=memory,
    )
    return Placed(found, place_graph(found, **search))


make_callable(__name__, __name__, "capture")

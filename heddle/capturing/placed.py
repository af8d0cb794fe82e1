"""A module on its devices: what was predicted, and how it runs."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from heddle.capturing.export import export
from heddle.capturing.files import save_stage
from heddle.capturing.graph import CapturedGraph, graph_of
from heddle.capturing.measure import measured_together
from heddle.capturing.program import Program
from heddle.capturing.run import MakeOptimizer, StageOptions, StageResult, run_stage, schedule_of
from heddle.capturing.split import CapturedStage, fake_values, real_values, split, whole
from heddle.capturing.times import Times, modeled, this_core
from heddle.errors import HeddleError, nearest
from heddle.format import GIB
from heddle.planning.placement.result import Placement
from heddle.planning.placement.text import draw
from heddle.runtime.scratch import scratch_folder
from heddle.simulating.replay import step_time
from heddle.spec.cluster import Cluster
from heddle.spec.plan import Plan
from heddle.spec.this_machine import this_machine

TIMES = ("measured", "modeled")


def captured(
    module: nn.Module,
    example_inputs: Sequence[Any],
    keywords: Mapping[str, Any] | None,
    *,
    training: bool,
    loss: Callable[[Any, Any], Any] | None,
    times: str,
    cluster: Cluster | None,
    devices: int,
    memory: float | None,
) -> CapturedGraph:
    """What `heddle.capture` does."""
    if times not in TIMES:
        raise HeddleError(
            f"Unknown times '{times}'.", "Times are either measured here or modeled.", nearest(times, TIMES)
        )
    if devices < 1:
        raise HeddleError(
            f"devices = {devices} leaves nothing to run on.", "There must be at least one.", "Try devices=2."
        )
    program = export(module, example_inputs, keywords, training, loss)
    if times == "measured":
        if cluster is not None:
            raise HeddleError(
                f"Times on cluster '{cluster.name}' cannot be measured here.",
                "Measured times are those of this machine.",
                "Use times='modeled', or leave the cluster out.",
            )
        inputs = pytree.tree_leaves((tuple(example_inputs), dict(keywords or {})))
        found = measured_together(whole(program, real_values(program)), inputs, training, devices)
    else:
        forward, backward = modeled(program, cluster or this_core())
        link = (cluster or this_machine()).links[-1]
        found = Times(forward, backward, link.latency_us * 1e-6, link.gbs * 1e9 * link.efficiency)
    room = (cluster or this_machine()).device.memory_gib * GIB
    return graph_of(program, found, devices, room if memory is None else memory)


@dataclass(frozen=True)
class PlacedRun:
    """What a run gave, and how fast it was beside what was predicted."""

    outputs: list[Any]  # of each batch, as the module gives them; in training, losses
    throughput: float  # batches per second, measured once all stages were at work
    predicted: float  # batches per second
    stages: int

    def __repr__(self) -> str:
        rates = f"{self.throughput:.4g} per second, predicted {self.predicted:.4g}"
        return f"<PlacedRun: {len(self.outputs)} batches over {self.stages} stages, {rates}>"


@dataclass(frozen=True, eq=False)
class Placed:
    """A module whose operators have been placed."""

    graph: CapturedGraph
    placement: Placement

    def __repr__(self) -> str:
        return f"<Placed: {self.placement!r}>"

    @property
    def throughput(self) -> float:
        """Batches per second that are predicted once all devices are at work."""
        return 1e3 / self.placement.value

    def __str__(self) -> str:
        return "\n".join(draw(self.graph, self.placement))

    @cached_property
    def stages(self) -> list[CapturedStage]:
        """The parts of a contiguous placement, as modules, in order."""
        return self._split(real_values(self.graph.program))

    def _split(self, values: dict[Any, Any]) -> list[CapturedStage]:
        if self.placement.objective != "throughput" or not self.placement.contiguous:
            raise HeddleError(
                "This placement is not a pipeline, and only pipelines can be run.",
                "Stages pass tensors on, and none may wait for a later one.",
                "Place with contiguous=True, for throughput.",
            )
        parts = self.graph.parts([device.operators for device in self.placement.devices])
        return split(self.graph.program, parts, values)

    def predicted(self, microbatches: int) -> float:
        """Batches per second: with all devices at work; in training those of a step, with its fill and drain."""
        if not self.graph.program.training:
            return self.throughput
        times, numbers = self.graph.times, {node.name: i for i, node in enumerate(self.graph.program.operators)}
        stages = self._split(fake_values(self.graph.program))
        parts = self.graph.parts([device.operators for device in self.placement.devices])
        sizes = {node.name: _bytes(node.meta["val"]) for node in self.graph.program.operators}
        forward, backward = [], []
        for stage, part in zip(stages, parts, strict=True):
            there = sum(times.move(sizes[name]) for way in (stage.received, stage.sent) for name in way.names)
            back = sum(times.move(sizes[name]) for way in (stage.received, stage.sent) for name in way.backward.names)
            forward.append(there + sum(times.forward[numbers[node.name]] for node in part))
            backward.append(back + sum(times.backward[numbers[node.name]] for node in part))
        schedule = schedule_of(len(stages), StageOptions(True, microbatches, None, 0, False), 0)
        return microbatches / step_time(schedule, forward, backward)

    def run(
        self,
        batches: Iterable[Any],
        *,
        optimizer: MakeOptimizer | None = None,
        microbatches: int | None = None,
        seed: int = 0,
    ) -> PlacedRun:
        """Run batches through the stages, each in its own process.

        In training, `microbatches` batches make a step (all of them if not given), run as 1F1B. Gradients are those of
        the mean loss. With an optimizer the module's weights are updated after every step; without, its gradients are
        there as after a backward pass. Buffers that the module updates are updated, too.

        Args:
            batches: each like the example inputs: a tuple; if there are keywords, a mapping or a pair.
            optimizer: makes one from parameters, such as `functools.partial(torch.optim.SGD, lr=0.1)`.
            microbatches: batches per step.
            seed: random seed for the stages, such as for dropout.
        """
        from heddle.runtime.launch import run_processes

        program = self.graph.program
        works = [flat_batch(program, batch, number) for number, batch in enumerate(batches)]
        options = StageOptions(program.training, microbatches or len(works), optimizer, seed, not program.mutated)
        _check_run(works, options)
        stages = self.stages
        with scratch_folder() as folder:
            for rank, stage in enumerate(stages):
                save_stage(stage, folder / f"stage-{rank}.pt")
                needed = set(stage.inputs)
                torch.save(
                    [[value if i in needed else None for i, value in enumerate(work)] for work in works],
                    folder / f"batches-{rank}.pt",
                )
            run_processes(Plan(pipeline=len(stages)), run_stage, folder, options, script=True)
            made: list[StageResult] = [
                torch.load(folder / f"made-{rank}.pt", map_location="cpu", weights_only=False)
                for rank in range(len(stages))
            ]
        if program.training:
            _take_over(program, made, optimizer is not None)
        return PlacedRun(
            self._outputs(made, len(works)),
            _throughput(made, options, len(works)),
            self.predicted(options.microbatches),
            len(stages),
        )

    def _outputs(self, made: list[StageResult], count: int) -> list[Any]:
        found = []
        for number in range(count):
            flat: list[Any] = [None] * len(self.graph.program.outputs)
            for stage, part in zip(self.stages, made, strict=True):
                for place, value in zip(stage.outputs, part.outputs[number] if part.outputs else (), strict=False):
                    flat[place] = value
            found.append(self.graph.program.restore(flat))
        return found


def _bytes(tensor: Any) -> int:
    return sum(t.numel() * t.element_size() for t in pytree.tree_leaves(tensor) if isinstance(t, Tensor))


def _throughput(made: list[StageResult], options: StageOptions, count: int) -> float:
    last = made[-1]
    if not options.training:
        return (count - 1) / (last.done[-1] - last.done[0]) if count > 1 else 1 / last.seconds[0]
    steps = last.seconds[1:] or last.seconds  # the first is to warm up
    return options.microbatches * len(steps) / sum(steps)


def _check_run(works: list[list[Any]], options: StageOptions) -> None:
    if not works:
        raise HeddleError(
            "There are no batches.", "Stages need something to run.", "Give at least one, like the example inputs."
        )
    if options.optimizer is not None and not options.training:
        raise HeddleError(
            "There is nothing to optimize in inference.", "It makes no gradients.", "Place with training=True."
        )
    if len(works) % options.microbatches:
        raise HeddleError(
            f"{len(works)} batches do not make whole steps of {options.microbatches}.",
            "Every step has the same number of microbatches.",
            f"Give {len(works) // options.microbatches * options.microbatches or options.microbatches} batches.",
        )
    try:
        pickle.dumps(options.optimizer)
    except Exception:
        raise HeddleError(
            "The optimizer cannot be sent to the processes.",
            "It is pickled for that, and a function without a name in a module cannot be pickled.",
            "Use functools.partial(torch.optim.SGD, lr=0.1) or the like.",
        ) from None


def flat_batch(program: Program, batch: Any, number: int) -> list[Any]:
    """A batch as flat inputs, checked against the shapes that were captured."""
    arguments, keywords = program.exported.example_inputs or ((), {})
    if isinstance(batch, Tensor):
        batch = (batch,)
    if isinstance(batch, Mapping):
        given: tuple[Any, Any] = ((), batch)
    elif keywords:
        given = (tuple(batch[0]), batch[1])
    else:
        given = (tuple(batch), {})
    if set(given[1]) != set(keywords):
        raise HeddleError(
            f"Batch {number} has the keywords {sorted(given[1])}.",
            "A module runs exactly as it was captured.",
            f"The example had {sorted(keywords)}.",
        )
    flat, spec = pytree.tree_flatten((given[0], {name: given[1][name] for name in keywords}))
    expected, like = pytree.tree_flatten((tuple(arguments), dict(keywords)))
    if len(flat) != len(expected) or spec != like:
        raise HeddleError(
            f"Batch {number} does not look like the example inputs.",
            f"It has {len(flat)} values; the example inputs have {len(expected)}.",
            "Give all inputs in the same order; in training with a loss, the target comes last.",
        )
    for node, value, example in zip(program.inputs, flat, expected, strict=True):
        if isinstance(example, Tensor):
            found = (list(value.shape), value.dtype) if isinstance(value, Tensor) else type(value).__name__
            if found != (list(example.shape), example.dtype):
                raise HeddleError(
                    f"Input {node.name} of batch {number} is {found}.",
                    f"The module was captured for {(list(example.shape), example.dtype)}.",
                    "Give batches of that shape, or capture it again.",
                )
        elif value != example:
            raise HeddleError(
                f"Input {node.name} of batch {number} is {value!r}; it was captured as {example!r}.",
                "Values that are not tensors became part of the graph.",
                "Capture the module again for other values.",
            )
    return flat


def _take_over(program: Program, made: list[StageResult], updated: bool) -> None:
    """Put new weights, buffers and gradients into the module."""
    with torch.no_grad():
        for part in made:
            for name, value in part.state.items():
                tensor = program.tensor(name)
                if updated or not isinstance(tensor, nn.Parameter):
                    tensor.copy_(value)
            for name, gradient in part.gradients.items():
                tensor = program.tensor(name)
                tensor.grad = gradient.to(tensor.device, copy=True)

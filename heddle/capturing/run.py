"""Running stages over processes: each one reads its stage from a file, and writes what it made to another."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from heddle.capturing.executor import StageExecutor
from heddle.capturing.files import load_stage
from heddle.capturing.split import CapturedStage
from heddle.parallel.mesh import Mesh
from heddle.parallel.pipeline.executor import forward_only
from heddle.runtime.device import pick_device, synchronize
from heddle.runtime.recorder import NoRecorder
from heddle.schedule import Schedule, build, verify
from heddle.schedule.registry import forwards_first, usual

MakeOptimizer = Callable[[Iterable[Tensor]], torch.optim.Optimizer]


@dataclass(frozen=True)
class StageOptions:
    """What the processes are to do, whichever stage they have."""

    training: bool
    microbatches: int  # of a step; in inference there is one step
    optimizer: MakeOptimizer | None
    seed: int
    warm_up: bool  # pass the first batch through before the clock runs


@dataclass
class StageResult:
    """What one stage made."""

    outputs: list[list[Any]]  # of each batch, those of the module's outputs that this stage makes
    done: list[float]  # when each batch was done
    seconds: list[float]  # of each step
    state: dict[str, Tensor]  # by names of the captured module
    gradients: dict[str, Tensor]


def schedule_of(stages: int, options: StageOptions, count: int) -> Schedule:
    """1F1B for training; in inference, one batch after the other."""
    if options.training:
        return build(usual(1), stages, options.microbatches)
    return forward_only(build(forwards_first(), stages, count))


def run_stage(mesh: Mesh, folder: Path, options: StageOptions) -> None:
    """One process: all steps of its stage."""
    rank, device = mesh.pipeline.rank, pick_device()
    stage = load_stage(folder / f"stage-{rank}.pt", device)
    batches: list[list[Any]] = torch.load(folder / f"batches-{rank}.pt", map_location=device, weights_only=False)
    torch.manual_seed(options.seed + rank)
    if options.training:
        verify(build(usual(1), mesh.pipeline.size, options.microbatches))
    with torch.set_grad_enabled(options.training):
        made = (_train if options.training else _infer)(mesh, stage, batches, options, device)
    named = dict(stage.module.named_parameters())
    gradients = {stage.state[name]: p.grad for name, p in named.items() if name in stage.state and p.grad is not None}
    if options.training:
        held = {**named, **dict(stage.module.named_buffers(recurse=False))}
        made.state = {target: held[name].detach() for name, target in stage.state.items()}
    made.gradients = {} if options.optimizer else gradients
    torch.save(made, folder / f"made-{rank}.pt")


def _infer(
    mesh: Mesh, stage: CapturedStage, batches: list[list[Any]], options: StageOptions, device: torch.device
) -> StageResult:
    if options.warm_up:
        StageExecutor(schedule_of(mesh.pipeline.size, options, 1), stage, mesh, device, NoRecorder()).run(batches[:1])
    executor = StageExecutor(schedule_of(mesh.pipeline.size, options, len(batches)), stage, mesh, device, NoRecorder())
    _meet(mesh)
    start = time.perf_counter()
    executor.run(batches)
    synchronize(device)
    return StageResult(executor.outputs, executor.done, [time.perf_counter() - start], {}, {})


def _train(
    mesh: Mesh, stage: CapturedStage, batches: list[list[Any]], options: StageOptions, device: torch.device
) -> StageResult:
    executor = StageExecutor(schedule_of(mesh.pipeline.size, options, 0), stage, mesh, device, NoRecorder())
    ties = _ties(mesh, stage)
    parameters = [p for p in stage.module.parameters() if p.requires_grad]
    optimizer = options.optimizer(parameters) if options.optimizer and parameters else None
    made = StageResult([], [], [], {}, {})
    for first in range(0, len(batches), options.microbatches):
        _meet(mesh)
        start = time.perf_counter()
        executor.run(batches[first : first + options.microbatches])
        synchronize(device)
        _meet(mesh)
        made.seconds.append(time.perf_counter() - start)
        made.outputs += executor.outputs
        for name, group in ties:
            parameter = stage.module.get_parameter(name)
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            dist.all_reduce(parameter.grad, group=group)
        if optimizer is not None:
            optimizer.step()
            optimizer.zero_grad()
    return made


def _ties(mesh: Mesh, stage: CapturedStage) -> list[tuple[str, dist.ProcessGroup]]:
    """Parameters of this stage that others hold too, in an order that all agree on, with a group for each."""
    everyone: list[dict[str, tuple[int, ...]]] = [{}] * mesh.pipeline.size
    if mesh.pipeline.size > 1:
        own = {stage.state[name]: holders for name, holders in stage.tied.items()}
        dist.all_gather_object(everyone, own, group=mesh.host.group)  # whose ranks are the stages
    found = []
    names = {target: name for name, target in stage.state.items()}
    groups: dict[tuple[int, ...], Any] = {}
    for target, holders in sorted({item for ties in everyone for item in ties.items()}):
        if holders not in groups:
            groups[holders] = dist.new_group([mesh.pipeline.ranks[rank] for rank in holders])
        if mesh.pipeline.rank in holders:
            found.append((names[target], groups[holders]))
    return found


def _meet(mesh: Mesh) -> None:
    if mesh.world.size > 1:
        dist.barrier(group=mesh.world.group)

"""Out of memory: the breakdown of the rank that failed, and the smallest change to the plan that would fit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from heddle.errors import HeddleError
from heddle.format import GIB
from heddle.parallel.mesh import Mesh
from heddle.runtime.device import memory_limit, memory_outside
from heddle.spec.job import Job, PlannedJob

if TYPE_CHECKING:
    from heddle.training.dry_run.dry_run import DryRun, KindOfRank

# How much of the memory a plan may take that is said to fit. The rest is for what no dry run sees: workspaces of
# kernels, buffers of collectives, what an allocator cannot give back.
MARGIN = 0.85


def ran_out(error: BaseException) -> bool:
    """Whether an exception says that memory ran out, in any of the ways in which torch says so."""
    words = ("can't allocate memory", "not enough memory", "out of memory")
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or any(part in str(error).lower() for part in words)


def short_of_memory(mesh: Mesh) -> HeddleError:
    """What is known at once."""
    return HeddleError(
        f"Rank {mesh.rank} ({mesh}) ran out of memory.",
        "The run ended before what it held could be counted.",
        "`heddle train --dry-run` counts it without a device; `heddle plan` finds plans that need less.",
    )


def out_of_memory(job: Job, mesh: Mesh, base: int) -> HeddleError:
    """What to tell of a rank that ran out of memory; `base` bytes were in use before training began.

    Everything is counted by dry runs of the job and of its neighbors, which take no memory to speak of.
    """
    job = job.planned
    outside = memory_outside()
    limit = max(0, memory_limit() - base - outside)
    kind = _kind_of(job, mesh)
    held = kind.held
    breakdown = (
        f"weights {_gib(held.parameter_bytes)}, gradients {_gib(kind.peak.gradients)}, "
        f"optimizer {_gib(held.optimizer_bytes)}, "
        + f"fetched weights {_gib(kind.peak.fetched)}, "
        * (kind.peak.fetched > 0)
        + f"activations {_gib(kind.peak.saved)} and temporary tensors "
        f"{_gib(max(0, kind.temporary))} at their peak: {_gib(kind.bytes)} GiB in all, plus what kernels take for "
        f"themselves; {_gib(limit)} GiB are available"
        + f", beside {_gib(outside)} GiB that CUDA and the groups of ranks take"
        * (outside > 0)
    )
    # What failed needed more than was there, whatever of it was counted: what is to fit must need clearly less.
    room = MARGIN * min(limit, kind.bytes)
    return HeddleError(f"Rank {mesh.rank} ({mesh}) ran out of memory.", f"{breakdown}.", _advice(job, mesh, room))


def _advice(job: PlannedJob, mesh: Mesh, limit: float) -> str:
    fallback: tuple[int, str] | None = None
    for words, change in changes(job):
        try:
            size = max(kind.bytes for kind in dry_run(change).kinds)
        except HeddleError:
            continue
        if size <= limit:
            return f"The smallest change that should fit: {words}, which needs {_gib(size)} GiB."
        if fallback is None or size < fallback[0]:
            fallback = size, words
    if fallback is None:
        return f"Use more devices than {mesh.world.size}, or a smaller model."
    return f"No single change fits; the best is {fallback[1]}, which needs {_gib(fallback[0])} GiB. Use more devices."


def changes(job: PlannedJob) -> Iterator[tuple[str, PlannedJob]]:
    """Neighboring plans that need less memory, from those that cost least speed to those that cost most."""
    plan = job.plan
    if plan.tensor > 1 and not plan.sequence:
        yield "plan.sequence = true", _with(job, sequence=True)
    if plan.replicas > 1 and plan.zero == 0:
        yield "plan.zero = 1", _with(job, zero=1)
    if plan.recompute == "none":
        yield 'plan.recompute = "selective"', _with(job, recompute="selective")
    if plan.recompute in ("none", "selective"):
        yield 'plan.recompute = "elementwise"', _with(job, recompute="elementwise")
    smaller = plan.microbatch
    while smaller % 2 == 0:
        smaller //= 2
        yield f"plan.microbatch = {smaller}", _with(job, microbatch=smaller)
    if plan.recompute != "full":
        yield 'plan.recompute = "full"', _with(job, recompute="full")
    if plan.replicas > 1 and plan.zero < 3 and 3 in plan.zero_levels:
        yield "plan.zero = 3", _with(job, zero=3)
    if plan.recompute != "full" and smaller < plan.microbatch:
        both = _with(job, recompute="full", microbatch=smaller)
        yield f'plan.recompute = "full" and plan.microbatch = {smaller}', both


def _with(job: PlannedJob, **fields: object) -> PlannedJob:
    return replace(job, plan=replace(job.plan, **fields))  # type: ignore[arg-type]


def dry_run(job: Job) -> DryRun:
    """Slow to import, and seldom needed."""
    from heddle.training.dry_run.dry_run import dry_run

    return dry_run(job)


def _kind_of(job: Job, mesh: Mesh) -> KindOfRank:
    kinds = dry_run(job).kinds
    return next(k for k in kinds if mesh.pipeline.rank in k.stages and mesh.tensor.rank in k.tensor)


def _gib(size: float) -> str:
    return f"{size / GIB:.2f}"

"""What a step takes beside kernels and messages: steps of a tiny model, by the trainer itself.

Python, autograd, hooks and the optimizer's bookkeeping; and where processes share cores, waking up and being kept off
them. Kernels of these steps take next to nothing, so what is left after the prediction of them is all the rest.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch.distributed as dist

from heddle.cost.measured.from_timings import StepTime
from heddle.parallel.mesh import Mesh, build_mesh
from heddle.runtime.device import on_gpu, pick_device
from heddle.simulating.simulation import simulate
from heddle.spec.cluster import Cluster
from heddle.spec.data import Data
from heddle.spec.job import Job, Train
from heddle.spec.model import ModelSpec
from heddle.spec.plan import Plan
from heddle.training.step.trainer import Trainer

FEW, MANY = 1, 5  # microbatches
CALLS = 4
MOST_STAGES = 8


def jobs(world: int) -> Iterator[tuple[str, Job]]:
    """Replicas with few microbatches and with many; stages with as many as fill them."""
    for microbatches in (FEW, MANY):
        yield "replicas", _job(world, Plan(data=world), microbatches)
    if 1 < world <= MOST_STAGES:
        yield "stages", _job(world, Plan(pipeline=world), 2 * world)


def _job(world: int, plan: Plan, microbatches: int) -> Job:
    model = ModelSpec(layers=max(2, world if plan.pipeline > 1 else 2), hidden=32, heads=2, vocab=64, sequence=16)
    train = Train(global_batch=plan.data * microbatches, precision="fp32")
    return Job(model=model, data=Data(text="-"), train=train, plan=plan)


def steps(mesh: Mesh, quick: bool) -> Iterator[StepTime]:
    """Seconds of tiny steps, of the slowest rank."""
    if on_gpu(pick_device()):  # its host runs ahead of it
        return
    tokens = np.arange(4096, dtype=np.int64) % 64
    for kind, job in jobs(mesh.world.size):
        assert job.plan is not None
        trainer = Trainer(job, tokens, build_mesh(job.plan, mesh.rank, mesh.world.size))
        taken = []
        for _ in range(2 if quick else CALLS + 1):
            if mesh.world.size > 1:
                dist.barrier(group=mesh.world.group)
            began = time.perf_counter()
            trainer.train_step()
            taken.append(time.perf_counter() - began)
        mean = float(np.mean(taken[1:]))
        if mesh.world.size > 1:
            every: list[float] = [0.0] * mesh.world.size
            dist.all_gather_object(every, mean, group=mesh.host.group)
            mean = max(every)
        yield StepTime(kind, job.plan.microbatches(job.train.global_batch), mean)


def with_steps(cluster: Cluster, found: Sequence[StepTime], world: int) -> Cluster:
    """The cluster with what tiny steps took beyond their prediction: per microbatch, per step, per message."""
    if not found:
        return cluster
    known = [job for _, job in jobs(world)]

    def beyond(place: int) -> float:  # seconds of one of them that the constants so far do not explain
        return max(0.0, found[place].seconds - simulate(replace(known[place], cluster=cluster)).step_seconds)

    few, many = beyond(0), beyond(1)
    each = max(0.0, (many - few) / (MANY - FEW))
    once = max(0.0, few - FEW * each)
    efficiency = replace(cluster.efficiency, microbatch_us=1e6 * each, step_us=1e6 * once)
    cluster = replace(cluster, efficiency=efficiency)
    if len(found) > 2:
        # what is sent is waited for once on each way down and up again, and at both ends of every microbatch
        passes = 2 * (found[2].microbatches + world - 1)
        cluster = replace(cluster, efficiency=replace(efficiency, message_us=1e6 * beyond(2) / passes / 2))
    return cluster

"""One rank of a world whose ranks are at different sites: takes steps of one job after the other, and times them."""

from __future__ import annotations

import json
import statistics
import sys
import time

import torch
import torch.distributed as dist

from heddle.parallel.mesh import Mesh, build_mesh
from heddle.runtime.environment import launched_place
from heddle.runtime.meeting import meet_at_address
from heddle.spec.job import Job, job_from_tables
from heddle.train.prove.prove import synthetic_tokens
from heddle.train.step.trainer import Trainer

WARM, TIMED = 1, 3


def timed(job: Job, mesh: Mesh) -> float:
    """The median seconds of a few steps."""
    taken = []
    trainer = Trainer(job, synthetic_tokens(job), mesh)
    for _ in range(WARM + TIMED):
        began = time.perf_counter()
        trainer.train_step()
        taken.append(time.perf_counter() - began)
    return statistics.median(taken[WARM:])


def main() -> None:
    torch.set_num_threads(1)
    place = launched_place()
    assert place is not None
    dist.init_process_group("gloo", store=meet_at_address(place), rank=place.rank, world_size=place.world)
    meshes: dict[tuple[int, int, int], Mesh] = {}  # over slow links groups take seconds to make
    for line in sys.argv[1:]:
        job = job_from_tables(json.loads(line))
        plan = job.planned.plan
        degrees = plan.tensor, plan.pipeline, plan.data
        if plan.world == 1:
            meshes[degrees] = Mesh()  # each by itself, all at once
        if degrees not in meshes:
            mesh = build_mesh(plan, place.rank, place.world)
            assert mesh is not None
            meshes[degrees] = mesh
        seconds = timed(job, meshes[degrees])
        if place.rank == 0:
            sys.stdout.write(f"{seconds}\n")
            sys.stdout.flush()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""One rank of a world whose ranks are at different sites: takes steps of one job after the other, and times them."""

from __future__ import annotations

import json
import statistics
import sys
import time

import torch
import torch.distributed as dist
from torch.distributed import PrefixStore

from heddle.parallel.mesh import Mesh, build_mesh
from heddle.runtime.environment import launched_place
from heddle.runtime.rendezvous import rendezvous_at_address
from heddle.spec import ranks
from heddle.spec.job import Job, job_from_tables
from heddle.training.prove.prove import synthetic_tokens
from heddle.training.step.trainer import Trainer

WARM, TIMED = 1, 3


def timed(job: Job, mesh: Mesh, steps: int) -> float:
    """The median seconds of a few steps; of a whole run, where it says how long."""
    taken = []
    trainer = Trainer(job, synthetic_tokens(job), mesh)
    for _ in range(steps):
        began = time.perf_counter()
        trainer.train_step()
        taken.append(time.perf_counter() - began)
    return statistics.median(taken[WARM:])


def main() -> None:
    torch.set_num_threads(1)
    place = launched_place()
    assert place is not None
    store = rendezvous_at_address(place)
    worlds, last = 0, None
    meshes: dict[tuple[int, ...], Mesh] = {}  # over slow links groups take seconds to make
    for line in sys.argv[1:]:
        tables = json.loads(line)
        whole = tables.pop("whole", False)
        job = job_from_tables(tables)
        plan = job.planned.plan
        if last is None or plan.devices != last:  # other ranks at the sites: they meet anew
            if last is not None:
                dist.destroy_process_group()
            last, worlds = plan.devices, worlds + 1
            rank = plan.devices.index(place.rank) if plan.devices else place.rank
            dist.init_process_group(
                "gloo", store=PrefixStore(f"world {worlds}", store), rank=rank, world_size=place.world
            )
            meshes.clear()
        degrees = *ranks.degrees(plan), plan.local_steps
        if plan.world == 1:
            meshes[degrees] = Mesh()  # each by itself, all at once
        if degrees not in meshes:
            mesh = build_mesh(plan, rank, place.world)
            assert mesh is not None
            meshes[degrees] = mesh
        seconds = timed(job, meshes[degrees], job.train.steps if whole else WARM + TIMED)
        if place.rank == 0:
            sys.stdout.write(f"{seconds}\n")
            sys.stdout.flush()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

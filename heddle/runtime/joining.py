"""Joining the processes that another launcher started, or that `heddle.runtime.launch` did, and leaving them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch.distributed as dist

from heddle.errors import HeddleError
from heddle.parallel.mesh import Mesh, build_mesh
from heddle.runtime.allotment import compare_devices
from heddle.runtime.connecting import connecting
from heddle.runtime.cuda import refuse_few_queues
from heddle.runtime.device import abandon, backend, on_gpu, pick_device
from heddle.runtime.environment import LaunchedRank
from heddle.runtime.refit import OVER, Refit, SpareError, agreed_plan, stand_by
from heddle.runtime.rendezvous import TIMEOUT, SharedError, rendezvous_at_address, rendezvous_in_file
from heddle.spec.plan import Plan
from heddle.spec.ranks import world_in_words

PATIENCE = 2.0  # seconds that a process stays which was not the first to fail, so that the first one is seen


def join(
    plan: Plan, place: LaunchedRank, file: Path | None = None, refit: Refit | None = None, tied: bool = True
) -> Mesh:
    """Meet the other processes of this launch, in a file or at its address, and find this one's place in the mesh.

    `tied`: whether both ends of a pipeline have to sum a gradient.
    """
    store: Any = None
    if place.world != plan.world:
        if refit is None or not refit.may():  # who has to start others need not wait for them first
            raise SharedError(
                f"{place.world} processes started, but the plan needs {world_in_words(plan)}.",
                "Every process takes one position in the mesh.",
                f"Start {plan.world} of them, or change the plan.",
            )
        store = refit.store = rendezvous_at_address(place) if place.world > 1 else None
        plan = agreed_plan(store, place, refit)
        if place.rank >= plan.world:
            raise SpareError(store)
        place = LaunchedRank(place.rank, plan.world)
    # a launcher's process number is a device of the network; which rank that device gets is the plan's to say
    rank = plan.devices.index(place.rank) if plan.devices else place.rank
    device = pick_device()  # what is wrong with it is told before anybody waits for anybody
    if place.world > 1:
        gpu = device if on_gpu(device) else None
        if gpu is not None:
            refuse_few_queues(plan)
        if store is None:
            store = rendezvous_at_address(place) if file is None else rendezvous_in_file(file, place)
        compare_devices(store, place, device)
        # With its device known, NCCL connects now, and its groups are split from this one.
        with connecting(store, place, backend(gpu is not None)):
            dist.init_process_group(
                backend(gpu is not None),
                store=store,
                rank=rank,
                world_size=place.world,
                timeout=TIMEOUT,
                device_id=gpu,
            )
            mesh = build_mesh(plan, rank, place.world, tied)
    else:
        mesh = build_mesh(plan, rank, place.world, tied)
    assert mesh is not None
    return mesh


def leave() -> None:
    """Destroy the process group."""
    if dist.is_initialized():
        dist.destroy_process_group()


def part_in_failure(rank: int) -> None:
    """Leave the process group because of an error, which this process reports and no other."""
    if dist.is_initialized():
        _claim(dist.distributed_c10d._get_default_store(), rank)
    abandon()


def _claim(store: Any, rank: int) -> bool:
    """Whether this process reports what went wrong: the first that claims it does, however often it asks."""
    return bool(store.compare_set("heddle/failed", "", str(rank)) == str(rank).encode())


def run_joined(
    plan: Plan, place: LaunchedRank, work: Callable[..., Any], *arguments: Any, refit: Refit | None = None
) -> Any:
    """Do this process's part, `work(mesh, *arguments)`, among those that another launcher started.

    Only one process tells what went wrong. The others wait for the launcher to end them. With `refit`, other processes
    than the plan takes may go on under another plan, and the arguments come from there.
    """
    store = None
    try:
        mesh = join(plan, place, refit=refit, tied=refit is None or refit.tied)
        store = dist.distributed_c10d._get_default_store() if dist.is_initialized() else None
        result = work(mesh, *(arguments if refit is None else refit.given()))
    except SpareError as spare:
        stand_by(spare.store)
        return None
    except Exception as error:
        if _is_first_to_fail(place, error, store):
            raise
        time.sleep(PATIENCE)
        os._exit(2 if isinstance(error, HeddleError) else 1)
    leave()
    if refit is not None and refit.store is not None:
        refit.store.set(OVER, "")
    return result


def _is_first_to_fail(place: LaunchedRank, error: Exception, store: Any) -> bool:
    if store is None:  # they have not met
        return place.rank == 0 or not isinstance(error, SharedError)
    try:
        return _claim(store, place.rank)
    except RuntimeError:  # whoever kept the store is gone
        return isinstance(error, HeddleError)

"""What ranks find out before and while they connect: unlike devices, and networks that do not carry."""

import json
import subprocess
import sys
import threading
from dataclasses import asdict
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

from heddle.errors import HeddleError
from heddle.format import GIB
from heddle.parallel.mesh import EVER
from heddle.runtime import allotment, device
from heddle.runtime.allotment import Allotted, compare_devices
from heddle.runtime.environment import LaunchedRank, launched_place, local_place
from heddle.runtime.rendezvous import SharedError
from heddle.spec import Plan
from tests.helpers.commands import REPOSITORY

GPU = Allotted("boot", "node1", True, "NVIDIA H100", 79 * GIB, "gpu-0", True, "")
CPU = Allotted("boot", "node1", False, "cpu", 4 * GIB, "", False, "")


@pytest.mark.parametrize(
    ("found", "says"),
    [((GPU, CPU), "Rank 1 sees no GPU"), ((GPU, GPU), "Ranks 0 and 1 have the same GPU"), ((CPU, CPU), None)],
)
def test_devices_are_compared_before_anybody_connects(monkeypatch, found, says):
    store, told = dist.HashStore(), {}
    own = threading.local()
    monkeypatch.setattr(allotment, "look", lambda _: own.device)

    def join(rank):
        own.device = found[rank]
        try:
            compare_devices(store, LaunchedRank(rank, 2), torch.device("cpu"))
        except SharedError as error:
            told[rank] = error.what

    threads = [threading.Thread(target=join, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert json.loads(store.get("device/1")) == asdict(found[1])
    if says is None:
        assert told == {}
    else:
        assert set(told) == {0, 1}
        assert all(says in what for what in told.values())


STUCK = """
import time
import torch.distributed as dist
from heddle.runtime import connecting
connecting.SOON = 0.05
store = dist.HashStore()
store.set("connected/1", "")
with connecting.connecting(store, connecting.LaunchedRank(0, 3), "nccl"):
    time.sleep(60)
"""


def test_a_network_that_does_not_carry_is_named_and_ends_the_wait():
    command = [sys.executable, "-c", STUCK]
    environment = {"HEDDLE_RENDEZVOUS_SECONDS": "1", "NCCL_SOCKET_IFNAME": "eth9", "PATH": ""}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=REPOSITORY, timeout=50)
    assert done.returncode == 2
    assert "Rank 0 is connecting to the others over nccl (NCCL_SOCKET_IFNAME=eth9)." in done.stderr
    assert "could not connect to the others over nccl" in done.stderr
    assert "Not connected yet: rank 0, 2." in done.stderr
    assert "NCCL_IB_HCA" in done.stderr


def test_gpus_that_torch_cannot_use_are_not_replaced_by_cpus_in_silence(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(device, "driver_version", lambda: "470.57")
    with pytest.raises(HeddleError) as error:
        device.pick_device()
    assert "the driver is 470.57" in error.value.why
    monkeypatch.setenv("HEDDLE_DEVICE", "cpu")
    assert device.pick_device() == torch.device("cpu")


@pytest.mark.parametrize(
    "names",
    [
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
        ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
        ("PMI_RANK", "PMI_SIZE", "PMI_LOCAL_RANK", "PMI_LOCAL_SIZE"),
        ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_SIZE"),
    ],
)
def test_mpirun_is_a_launcher(environment, names):
    environment(**dict(zip(names, ("0", "1", "0", "1"), strict=True)))
    assert launched_place() is None  # one process starts its own
    environment(**dict(zip(names, ("5", "16", "1", "8"), strict=True)))
    assert launched_place() == LaunchedRank(5, 16)
    assert local_place() == (1, 8)


def timeouts(mesh):
    """How long each group lets its members wait."""
    axes = [mesh.tensor, mesh.data, mesh.pipeline, mesh.saves]
    groups = [axis.group for axis in axes if axis.group is not None] + list(mesh.channels.values())
    return [group._get_backend(torch.device("cpu")).options._timeout for group in groups]


@pytest.mark.dist
def test_no_group_ends_a_wait_that_the_watchdog_allows(world):
    for found in world.run(timeouts, Plan(tensor=2, data=2, pipeline=2, microbatch=1)):
        assert len(found) > 4
        assert set(found) == {EVER}
    assert timedelta(days=1) < EVER

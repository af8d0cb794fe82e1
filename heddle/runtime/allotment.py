"""What a run was given: which devices, how they are joined, and whether its plan fits them.

All is asked before the first collective, through the store, for NCCL speaks of "invalid usage" where two processes have
the same GPU.
"""

from __future__ import annotations

import json
import socket
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from heddle.errors import HeddleError
from heddle.format import GIB
from heddle.runtime.cuda import settings
from heddle.runtime.device import backend, describe, on_gpu
from heddle.runtime.environment import LaunchedRank
from heddle.runtime.recorder import machine
from heddle.runtime.rendezvous import SharedError
from heddle.runtime.together import Together
from heddle.spec.cluster import Cluster
from heddle.spec.job import PlannedJob
from heddle.spec.plan import Plan
from heddle.spec.ranks import groups

SHORT = 0.9  # a device that has less than this share of the memory that the cluster's file states is another one


@dataclass(frozen=True)
class Allotted:
    """One process's device, and where it is."""

    host: str  # by what it is, which containers of one machine share
    node: str  # by its name
    gpu: bool
    name: str
    memory: int  # bytes
    identity: str
    peers: bool
    fabric: str  # the network adapters beside Ethernet, as the system names them


def look(device: torch.device) -> Allotted:
    """What this process has."""
    about = describe(device)
    adapters = sorted(path.name for path in Path("/sys/class/infiniband").glob("*"))
    fabric = ", ".join(f"{number} × {kind}" for kind, number in Counter(map(_kind, adapters)).items())
    return Allotted(
        machine(), socket.gethostname(), on_gpu(device), about.name, about.memory, about.identity, about.peers, fabric
    )


def _kind(adapter: str) -> str:
    return adapter.rstrip("0123456789").rstrip("_")


def check_allotment(job: PlannedJob, together: Together, device: torch.device) -> str:
    """Refuse a plan that does not fit what all its processes found; else what they found, in one line."""
    found = [Allotted(**words) for words in together.gather("devices", asdict(look(device)))]
    refuse(job.plan, job.cluster, found)
    refuse_mixed(together.gather("precision", job.precision))
    return in_words(found)


def refuse(plan: Plan, cluster: Cluster | None, found: Sequence[Allotted]) -> None:
    """Tell what does not fit; CPUs are shared, and fit whatever they are given."""
    refuse_devices(found)
    if not found[0].gpu:
        return
    _refuse_split(plan, cluster, found)
    if cluster is not None:
        stated = cluster.device.memory_gib
        rank, least = min(enumerate(found), key=lambda pair: pair[1].memory)
        if least.memory / GIB < SHORT * stated:
            raise HeddleError(
                f"The GPU of rank {rank}, a {least.name}, has {least.memory / GIB:.0f} GiB; [cluster] states "
                f"{stated:.0f}.",
                "A plan made for devices with more memory may run out of memory in the middle of a run.",
                f"Plan again with cluster.device.memory_gib = {least.memory / GIB:.0f}, or ask for other nodes.",
            )


def refuse_devices(found: Sequence[Allotted]) -> None:
    """Tell of ranks without a GPU among others, and of two on one, with which NCCL cannot even connect."""
    gpus = [each for each in found if each.gpu]
    if not gpus:
        return
    if len(gpus) < len(found):
        blind = [rank for rank, each in enumerate(found) if not each.gpu]
        raise HeddleError(
            f"Rank {blind[0]} sees no GPU, but rank {next(i for i, each in enumerate(found) if each.gpu)} does.",
            "All ranks of a run compute on the same kind of device.",
            "Ask for a GPU for every process: --gpus-per-node under Slurm; see also CUDA_VISIBLE_DEVICES.",
        )
    _refuse_shared(found)


def compare_devices(store: Any, place: LaunchedRank, device: torch.device) -> None:
    """Refuse devices that do not go together, through the store; the first rank decides for all.

    This comes before NCCL is touched: ranks that connect with unlike ideas of it wait for each other in silence.
    """
    store.set(f"device/{place.rank}", json.dumps(asdict(look(device))))
    if place.rank == 0:
        found = [Allotted(**json.loads(store.get(f"device/{rank}"))) for rank in range(place.world)]
        verdict: list[str] = []
        try:
            refuse_devices(found)
        except HeddleError as error:
            verdict = [error.what, error.why, error.hint]
        store.set("devices", json.dumps(verdict))
    if verdict := json.loads(store.get("devices")):
        raise SharedError(*verdict)


def refuse_mixed(found: Sequence[str]) -> None:
    """Tell of ranks that would compute in different precisions, each in what its own node is best at."""
    other = next((rank for rank, precision in enumerate(found) if precision != found[0]), None)
    if other is not None:
        raise HeddleError(
            f"Rank 0 would train in {found[0]}, but rank {other} in {found[other]}.",
            "[train] precision is not set, so each node chose the best for its devices.",
            'Set one that all of them support, such as precision = "fp32".',
        )


def _refuse_shared(found: Sequence[Allotted]) -> None:
    owners: dict[str, list[int]] = defaultdict(list)
    for rank, each in enumerate(found):
        owners[each.identity].append(rank)
    for ranks in owners.values():
        if len(ranks) > 1:
            host = found[ranks[0]].host
            here, gpus = [each for each in found if each.host == host], {e.identity for e in found if e.host == host}
            raise HeddleError(
                f"Ranks {' and '.join(map(str, ranks[:3]))} have the same GPU, {found[ranks[0]].name}.",
                f"Their node has {len(here)} processes and shows them {len(gpus)} "
                f"GPU{'s' * (len(gpus) > 1)}; every process needs its own.",
                "Ask for as many GPUs as processes: --gpus-per-node under Slurm, not --gpus-per-task with one task.",
            )


def _refuse_split(plan: Plan, cluster: Cluster | None, found: Sequence[Allotted]) -> None:
    """Tensor groups over slow links; where `[cluster]` says that more devices than a host's are close, it is right."""
    if cluster is not None and plan.tensor <= cluster.devices:
        return
    for ranks in groups(plan, "tensor"):
        hosts = {found[rank].host for rank in ranks}
        if len(hosts) > 1:
            most = max(Counter(each.host for each in found).values())
            fitting = max(n for n in range(1, most + 1) if plan.tensor % n == 0)
            raise HeddleError(
                f"tensor = {plan.tensor} splits every layer over {len(hosts)} nodes; a node has {most} processes.",
                "Tensor-parallel ranks exchange activations many times per layer, which needs the links within a node.",
                f"Use tensor = {fitting}, or state in [cluster] devices how many share fast links.",
            )


def in_words(found: Sequence[Allotted]) -> str:
    """One line: which devices, on how many nodes, how they are joined, and over what they talk."""
    kinds = Counter(each.name for each in found)
    nodes = len({each.host for each in found})
    devices = ", ".join(f"{number} × {name}" for name, number in kinds.items())
    words = [f"{devices} on {nodes} node{'s' * (nodes > 1)}", f"{min(e.memory for e in found) / GIB:.0f} GiB each"]
    if found[0].gpu:
        words.append("GPUs reach each other's memory" if all(e.peers for e in found) else "no peer access seen")
        words.append(f"network {found[0].fabric or 'Ethernet'}")
    if len(found) > 1:
        words.append(f"over {backend()}")
    return "; ".join(words)


def settings_in_words() -> str:
    """What the environment tells NCCL and PyTorch, in one line; empty where it says nothing."""
    return " ".join(f"{name}={value}" for name, value in settings().items())


def facts(found: Sequence[Allotted]) -> dict[str, Any]:
    """The same for a file."""
    return {"devices": [asdict(each) for each in found], "backend": backend(), "settings": settings()}

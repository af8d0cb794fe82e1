"""Measuring a network: every process with every other, and what each of them is.

Nothing is pickled: what processes tell each other are tensors. They meet, and listen, as for a training run.
"""

from __future__ import annotations

import socket
import time

import numpy as np
import torch
from torch import Tensor

from heddle.format import GIB
from heddle.parallel.collectives import gather
from heddle.parallel.mesh import Mesh
from heddle.runtime.device import describe, on_gpu, pick_device, synchronize
from heddle.runtime.environment import launched_place
from heddle.runtime.joining import run_joined
from heddle.runtime.launch import run_processes
from heddle.spec.cluster import Device, Peak
from heddle.spec.plan import Plan
from heddle.training.probe.groups import Probed, network_of
from heddle.training.probe.links import ENOUGH, QUICK, expected_seconds, measure_links

WORDS = 96  # bytes of a name that others are told
SIDES = 512, 4096  # of a square product that tells how fast a CPU and a GPU multiply


def probe(processes: int, quick: bool = False) -> Probed | None:
    """Measure with the processes of a launcher, or with so many on this machine; None on all but the first rank."""
    place = launched_place()
    plan = Plan(data=place.world if place else processes)
    if place is not None:
        found: Probed | None = run_joined(plan, place, measure, quick)
        return found if place.rank == 0 else None
    return run_processes(plan, measure, quick) if processes > 1 else measure(Mesh(), quick)


def seconds_to_expect(processes: int, quick: bool = False) -> float:
    """About what it will take."""
    place = launched_place()
    return expected_seconds(place.world if place else processes, QUICK if quick else ENOUGH)


def measure(mesh: Mesh, quick: bool = False) -> Probed:
    """One process's part; all of them learn the network."""
    device = pick_device()
    links = measure_links(mesh, device, QUICK if quick else ENOUGH)
    facts = describe(device)
    numbers = torch.tensor([*links.latency, *links.bandwidth, facts.memory / GIB, tflops(device)], dtype=torch.float64)
    table = gather(numbers[None].to(device), mesh.world).cpu().numpy()
    words = gather(torch.stack([_letters(socket.gethostname()), _letters(facts.name)])[None].to(device), mesh.world)
    names = [[_word(word) for word in pair] for pair in words.cpu()]
    n = mesh.world.size
    devices = [
        Device(
            name=name,
            memory_gib=float(f"{memory:.4g}"),
            tflops=Peak(fp32=float(f"{speed:.3g}")),
            host=device.type == "cpu",
        )
        for (_, name), (memory, speed) in zip(names, table[:, 2 * n :], strict=True)
    ]
    latency, bandwidth = table[:, :n], np.where(np.eye(n, dtype=bool), np.inf, table[:, n : 2 * n])
    return network_of(latency, bandwidth, [host for host, _ in names], devices)


def tflops(device: torch.device) -> float:
    """What a large product reaches in full precision."""
    side = SIDES[on_gpu(device)]
    a = torch.ones(side, side, device=device)
    taken = []
    for _ in range(6):
        synchronize(device)
        began = time.perf_counter()
        a @ a
        synchronize(device)
        taken.append(time.perf_counter() - began)
    return 2 * side**3 / min(taken) / 1e12


def _letters(word: str) -> Tensor:
    short = word.encode("utf-8")[:WORDS]
    return torch.tensor([*short, *[0] * (WORDS - len(short))], dtype=torch.uint8)


def _word(letters: Tensor) -> str:
    return bytes(letters.tolist()).rstrip(b"\0").decode("utf-8", errors="replace")

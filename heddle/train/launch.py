"""Starting the processes of a plan: our own by torch's elastic launcher, or joining those that another one started."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import tempfile
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist

from heddle.errors import HeddleError
from heddle.parallel.mesh import Mesh, build_mesh
from heddle.spec.plan import Plan
from heddle.train.device import pick_device

TIMEOUT = timedelta(minutes=30)


@dataclass(frozen=True)
class Place:
    """Which process of how many this is, by what a launcher says in the environment."""

    rank: int
    world: int


def launched_place() -> Place | None:
    """This process's place where torchrun, Slurm or another launcher that sets the usual variables started it."""
    if "RANK" in os.environ and "WORLD_SIZE" in os.environ:
        return Place(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
    if "SLURM_PROCID" in os.environ and "SLURM_NTASKS" in os.environ and int(os.environ["SLURM_NTASKS"]) > 1:
        # srun starts the tasks; `heddle launch --slurm` exports the address of the first node
        os.environ.setdefault("LOCAL_RANK", os.environ.get("SLURM_LOCALID", "0"))
        os.environ["RANK"], os.environ["WORLD_SIZE"] = os.environ["SLURM_PROCID"], os.environ["SLURM_NTASKS"]
        return Place(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
    return None


def join(plan: Plan, place: Place) -> Mesh:
    """Meet the other processes of this launch, and find this one's place in the mesh."""
    if place.world != plan.world:
        raise HeddleError(
            f"{place.world} processes started, but the plan needs tensor × pipeline × data = {plan.tensor} × "
            f"{plan.pipeline} × {plan.data} = {plan.world}.",
            "Every process holds one place of the mesh.",
            f"Start {plan.world} processes, or change the plan.",
        )
    for name in ("MASTER_ADDR", "MASTER_PORT"):
        if place.world > 1 and name not in os.environ:
            raise HeddleError(
                f"{name} is not set.",
                "The processes meet at that address.",
                "torchrun sets it; under Slurm use the script that `heddle launch --slurm` prints.",
            )
    if place.world > 1:
        device = pick_device()
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=TIMEOUT)
    mesh = build_mesh(plan, place.rank, place.world)
    assert mesh is not None
    return mesh


def leave() -> None:
    """Part from the other processes."""
    if dist.is_initialized():
        dist.destroy_process_group()


def run_processes(plan: Plan, work: Callable[..., Any], *arguments: Any) -> Any:
    """Start the plan's processes on this machine, let each do `work(mesh, *arguments)`, give rank 0's result.

    Ctrl-C and SIGTERM are passed on once, as a request to stop after the step; a second one ends everything.
    """
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    # One thread a rank: ranks share the cores of a CPU, and a GPU's rank needs no more.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory(prefix="heddle-") as folder:
        config = LaunchConfig(
            min_nodes=1,
            max_nodes=1,
            nproc_per_node=plan.world,
            run_id=uuid.uuid4().hex,
            rdzv_backend="c10d",
            rdzv_endpoint="127.0.0.1:0",
            max_restarts=0,
            monitor_interval=0.1,
            start_method="spawn",
            signals_to_handle="SIGHUP",
        )
        with _ForwardSignals():
            try:
                results = elastic_launch(config, _worker)(plan, Path(folder), work, arguments)
            except ChildFailedError as error:
                raise _told(Path(folder), error) from None
    return results[0]


def _worker(plan: Plan, folder: Path, work: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent hears Ctrl-C and passes it on as SIGTERM
    if not torch.cuda.is_available():
        torch.set_num_threads(1)
    place = launched_place()
    assert place is not None
    try:
        result = work(join(plan, place), *arguments)
    except HeddleError as error:
        # Written, not raised: an exception's way through the launcher ends in its own long report.
        note = {"what": error.what, "why": error.why, "hint": error.hint}
        (folder / f"{place.rank}.json").write_text(json.dumps(note))
        os._exit(2)
    leave()
    return result


def _told(folder: Path, error: Exception) -> Exception:
    """The error that a process told of, or what the launcher knows."""
    for path in sorted(folder.glob("*.json")):
        return HeddleError(**json.loads(path.read_text()))
    return error


class _ForwardSignals:
    """Passes the first request to stop on to the processes; the second one kills them."""

    def __init__(self) -> None:
        self.asked = False

    def __enter__(self) -> None:
        self.previous = {number: signal.signal(number, self._forward) for number in (signal.SIGINT, signal.SIGTERM)}

    def __exit__(self, *_: object) -> None:
        for number, handler in self.previous.items():
            signal.signal(number, handler)

    def _forward(self, _number: int, _frame: FrameType | None) -> None:
        again, self.asked = self.asked, True
        for process in multiprocessing.active_children():
            if process.pid is not None:
                os.kill(process.pid, signal.SIGKILL if again else signal.SIGTERM)
        if again:
            raise KeyboardInterrupt

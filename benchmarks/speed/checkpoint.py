"""Saving a checkpoint: how long training stands still for it, and how fast the bytes reach the disk.

* `stall`: time that training stands still for a save in the background / time of the same save when it is waited for.
  It stands still while the save is begun, and where the next step wants to change the state before that was copied.
  `step_while_saving` is what the save costs otherwise: a step during a save / a step by itself, on busy cores.
* `throughput`: ours against plain `torch.save` of the same tensors to the same disk. Both end with the data on disk
  (fsync); ours also has checksums, an index, the job and an atomic rename. Over two processes each saves its own part.

The state is that of a real trainer after a step: fp32 weights and both moments of AdamW. A time is that of the slowest
rank. `a_a` is the peer against itself: the noise of this disk. `--folder` says which disk.

    python -m benchmarks.speed.checkpoint [--hidden 512 --layers 4 --vocab 16384 --rounds 9 --folder /scratch]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from operator import truediv
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from benchmarks.lib.processes import run
from benchmarks.lib.rounds import alternate, report_cases, speedup
from heddle.checkpoint.checkpoint import Saver, state_of
from heddle.parallel.mesh import build_mesh
from heddle.spec import Data, Job, ModelSpec, Plan, Train
from heddle.training.step.trainer import Trainer

PLANS = {
    1: {"one process": Plan(microbatch=1)},
    2: {"data 2, zero 1": Plan(data=2, zero=1, microbatch=1), "tensor 2": Plan(tensor=2, microbatch=1)},
}


class WatchedSaver(Saver):
    """Notes how long a step waited until it might change the state."""

    waited = 0.0

    def copied(self) -> None:
        began = time.perf_counter()
        super().copied()
        self.waited += time.perf_counter() - began


def cases(rank: int, world: int, options: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    model = ModelSpec(layers=options.layers, hidden=options.hidden, heads=8, vocab=options.vocab, sequence=64)
    return [measure(rank, name, plan, model, options, folder) for name, plan in PLANS[world].items()]


def measure(
    rank: int, name: str, plan: Plan, model: ModelSpec, options: argparse.Namespace, folder: Path
) -> dict[str, Any]:
    """All ways to save one state, in turn."""
    job = Job(model=model, data=Data(text="-"), train=Train(global_batch=2), plan=plan)
    mesh = build_mesh(plan, rank, plan.world)
    assert mesh is not None
    trainer = Trainer(job, np.zeros(1024, np.uint16), mesh)
    trainer.train_step()
    optimizer = trainer.optimizer
    # what torch.save gets is what our files hold: the boxes that no other rank saves, and not, as it would with views,
    # all that lies behind them
    state = state_of(optimizer.pieces, optimizer.adam, owned=True)
    tensors = {name: [part.clone() for _, part in boxes.boxes] for name, boxes in state.items()}
    size = torch.tensor(sum(part.nbytes for parts in tensors.values() for part in parts))
    saver = WatchedSaver(folder / "ours", mesh)
    steps: dict[bool, list[float]] = {False: [], True: []}

    def timed_step(saving: bool) -> None:
        began = time.perf_counter()
        trainer.train_step()
        steps[saving].append(time.perf_counter() - began)

    def asynchronous() -> float:
        timed_step(saving=False)
        began, saver.waited = time.perf_counter(), 0.0
        trainer.save(saver)
        begun = time.perf_counter() - began
        timed_step(saving=True)
        saver.wait()
        return begun + saver.waited

    def synchronous() -> float:
        began = time.perf_counter()
        trainer.save(saver)
        saver.wait()
        return time.perf_counter() - began

    def torch_save() -> float:
        began = time.perf_counter()
        with (folder / f"torch-{rank}.pt").open("wb") as file:
            torch.save(tensors, file)
            file.flush()
            os.fsync(file.fileno())
        return time.perf_counter() - began

    def afresh(save: Callable[[], float]) -> float:
        """On a disk that nobody writes to, without the files of the last time."""
        dist.barrier()
        if rank == 0:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            os.sync()
        dist.barrier()
        return save()

    arms: dict[str, Callable[[], float]] = {
        "asynchronous": asynchronous,
        "synchronous": synchronous,
        "torch.save": torch_save,
        "torch.save again": torch_save,
    }
    own = alternate({name: partial(afresh, save) for name, save in arms.items()}, options.rounds, rank)
    ranks: list[dict[str, list[float]]] = [{}] * plan.world
    dist.all_gather_object(ranks, own)
    dist.all_reduce(size)
    seconds = {arm: [max(values) for values in zip(*(each[arm] for each in ranks), strict=True)] for arm in arms}
    case = {
        "plan": name,
        "megabytes": round(size.item() / 1e6, 1),
        "median_seconds": {arm: round(statistics.median(values), 4) for arm, values in seconds.items()},
        "step_while_saving": round(statistics.median(map(truediv, steps[True], steps[False])), 3),
        "stall": round(1 / speedup(seconds, "asynchronous", "synchronous"), 4),
        "throughput": round(speedup(seconds, "synchronous", "torch.save"), 3),
        "a_a": round(speedup(seconds, "torch.save again", "torch.save"), 3),
    }
    if rank == 0:
        print(json.dumps(case), file=sys.stderr)
    return case


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in {"hidden": 512, "layers": 4, "vocab": 16384, "rounds": 9}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument(
        "--folder", type=Path, default=Path(), help="on the disk to save to; the present one by default"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="checkpoint-", dir=options.folder) as folder:
        found = [case for world in PLANS for case in run(world, cases, world, options, Path(folder) / "saved")]
    report_cases("checkpoint", f"torch {torch.__version__} torch.save, with fsync", found)


if __name__ == "__main__":
    main()

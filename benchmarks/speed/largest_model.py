"""The largest model that trains under a hard limit of memory, by adding layers until the kernel refuses.

    python -m benchmarks.speed.largest_model [--limit-mib 900] [--hidden 384] [--arms searched fixed torch]

Every attempt is a process of its own under RLIMIT_DATA, which counts all private memory, Python and torch included, and
not the file that offload maps. Arms: Heddle's planner within what is left of the limit; the leanest plan without
offload, which recomputes everything; and torch's fully_shard with CPUOffloadPolicy and checkpointing, whose CPU offload
has nowhere to go on a CPU. The ratio is that of the parameters; `slower` is what a token takes, of both at the largest
model that the fixed plan can train.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.lib.rounds import report_cases
from heddle.format import GIB
from heddle.spec import Data, Job, ModelSpec, Plan, Train
from heddle.spec.cluster import Cluster, Device, Efficiency, Peak

ARMS = ("searched", "fixed", "torch")
STEPS = 3
MARGIN = 0.06  # of the limit that is left to Python's own objects and the allocator
TRIED = 600  # layers at most


def spec(options: dict[str, Any], layers: int) -> ModelSpec:
    hidden = options["hidden"]
    return ModelSpec(
        layers=layers, hidden=hidden, heads=max(1, hidden // 64), vocab=1024, sequence=options["sequence"], tied=False
    )


def held() -> int:
    """Bytes that count against the limit now."""
    line = next(row for row in Path("/proc/self/status").read_text().splitlines() if row.startswith("VmData"))
    return int(line.split()[1]) * 1024


def heddle_step(options: dict[str, Any], layers: int, limit: int) -> Callable[[], float]:
    from heddle.planning.layer_memory.solve import best_strategies
    from heddle.training.prove.prove import synthetic_tokens
    from heddle.training.step.trainer import Trainer

    room = (limit * (1 - MARGIN) - held()) / GIB
    core = Device(name="core", memory_gib=max(room, 1e-3), memory_gbs=5.0, tflops=Peak(fp32=0.05), host=True)
    cluster = Cluster(device=core, efficiency=Efficiency(slack=0.03))
    plan = Plan(recompute="full", offload=("optimizer:disk",) if options["arm"] == "searched" else ())
    train = Train(global_batch=options["microbatches"], steps=STEPS + 1, learning_rate=1e-4)
    job = Job(model=spec(options, layers), data=Data(text="-"), train=train, plan=plan, cluster=cluster)
    if options["arm"] == "searched":
        found = best_strategies(replace(job, plan=Plan(offload=("optimizer:disk",), prefetch=0)))
        if found is None:
            raise MemoryError("no plan fits")
        job = found.job
    trainer = Trainer(job, synthetic_tokens(job))
    return lambda: trainer.train_step().loss


def torch_step(options: dict[str, Any], layers: int, _limit: int) -> Callable[[], float]:
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import CPUOffloadPolicy, fully_shard
    from torch.utils.checkpoint import checkpoint

    from benchmarks.lib.gpt import GPT, loss_of

    store = dist.FileStore(str(Path(tempfile.mkdtemp()) / "store"), 1)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    model = GPT(spec(options, layers))
    mesh = init_device_mesh("cpu", (1,))
    for layer in model.layers.values():
        plain = layer.forward
        layer.forward = lambda x, plain=plain: checkpoint(plain, x, use_reentrant=False)
        fully_shard(layer, mesh=mesh, offload_policy=CPUOffloadPolicy(pin_memory=False))
    fully_shard(model, mesh=mesh, offload_policy=CPUOffloadPolicy(pin_memory=False))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=False)

    def step() -> float:
        total = 0.0
        for _ in range(options["microbatches"]):
            ids = torch.randint(0, 1024, (1, options["sequence"]))
            loss = loss_of(model(ids), ids)
            loss.backward()
            total += loss.item()
        optimizer.step()
        optimizer.zero_grad()
        return total

    return step


def attempt(options: dict[str, Any], layers: int) -> None:
    """In a process of its own: train a few steps under the limit, and print what they took."""
    import torch

    torch.set_num_threads(1)
    limit = options["limit_mib"] << 20
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    step = (torch_step if options["arm"] == "torch" else heddle_step)(options, layers, limit)
    step()
    seconds = []
    for _ in range(STEPS - 1):
        began = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - began)
    print(json.dumps({"seconds": statistics.median(seconds), "held": held()}), flush=True)
    os._exit(0)


def tried(options: dict[str, Any], arm: str, layers: int) -> dict[str, float] | None:
    """What so many layers take; None: they do not fit."""
    words = [
        f"--{name.replace('_', '-')}={options[name]}" for name in ("limit_mib", "hidden", "sequence", "microbatches")
    ]
    command = [sys.executable, "-m", "benchmarks.speed.largest_model", *words, "--attempt", arm, str(layers)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    fits = done.returncode == 0 and done.stdout.strip()
    print(f"{arm} {layers} layers: {'fits' if fits else 'does not fit'}", file=sys.stderr, flush=True)
    return json.loads(done.stdout.splitlines()[-1]) if fits else None


def largest(options: dict[str, Any], arm: str, start: int) -> tuple[int, dict[str, float]]:
    """The most layers, by doubling and halving, to an eighth."""
    low, found, step = 0, {}, start
    while (this := tried(options, arm, step)) is not None and step < TRIED:
        low, found, step = step, this, step * 2
    high = step
    while high - low > max(1, low // 8):
        middle = (low + high) // 2
        this = tried(options, arm, middle)
        low, high, found = (low, middle, found) if this is None else (middle, high, this)
    return low, found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("limit-mib", 900), ("hidden", 384), ("sequence", 64), ("microbatches", 4), ("start", 8)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS))
    parser.add_argument("--attempt", nargs=2, metavar=("ARM", "LAYERS"), help=argparse.SUPPRESS)
    options = vars(parser.parse_args())
    if options["attempt"]:
        arm, layers = options["attempt"]
        attempt(options | {"arm": arm}, int(layers))
        return
    cases: list[dict[str, Any]] = []
    most: dict[str, int] = {}
    for arm in options["arms"]:
        layers, found = largest(options, arm, options["start"])
        most[arm] = spec(options, max(1, layers)).parameters if layers else 0
        cases.append({"arm": arm, "layers": layers, "parameters": most[arm], **found})
    facts: dict[str, Any] = {}
    if most.get("fixed") and "searched" in most:
        facts["ratio"] = round(most["searched"] / most["fixed"], 3)
        layers = next(case["layers"] for case in cases if case["arm"] == "fixed")
        ours, theirs = (tried(options, arm, layers) for arm in ("searched", "fixed"))
        if ours and theirs:
            facts["slower"] = round(ours["seconds"] / theirs["seconds"], 3)
    sizes = {name: options[name] for name in ("limit_mib", "hidden", "sequence", "microbatches")}
    report_cases(
        "largest_model",
        "the leanest plan without offload; torch fully_shard with CPUOffloadPolicy",
        cases,
        **sizes,
        **facts,
    )


if __name__ == "__main__":
    main()

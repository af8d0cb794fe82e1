"""Data parallelism over 2 processes against torch's DistributedDataParallel, its sharding relatives and DeepSpeed.

* `zero = 0` against DistributedDataParallel, which sums gradients with the last microbatch only, as we do.
* `zero = 1` against DistributedDataParallel with ZeroRedundancyOptimizer, and against DeepSpeed's ZeRO-1.
* `zero = 3` against plain `fully_shard` of every layer and of the whole; both sum after every microbatch, so that
  whole gradients never have memory.

    python -m benchmarks.speed.data_parallel [--hidden 256 --layers 4 --microbatches 2 --rounds 15]
"""

from __future__ import annotations

import argparse
from contextlib import nullcontext

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from benchmarks.lib.deepspeed_peer import INSTALLED, SKIPPED, DeepSpeedZero
from benchmarks.lib.gpt import GPT, Batches, Heddle, Setting, loss_of
from benchmarks.lib.processes import measure, run
from benchmarks.lib.rounds import report_cases
from heddle.spec import ModelSpec, Plan

RANKS = 2


class TorchDataParallel:
    """The three kinds of data parallelism that torch has, each with the options its documentation advises."""

    def __init__(self, setting: Setting, rank: int, kind: str) -> None:
        model = setting.initialized(GPT(setting.model))
        self.kind = kind
        if kind == "fully_shard":
            mesh = init_device_mesh("cpu", (RANKS,))
            for layer in model.layers.values():
                fully_shard(layer, mesh=mesh)
            self.model = fully_shard(model, mesh=mesh)
        else:
            self.model = DistributedDataParallel(model, gradient_as_bucket_view=True)
        self.parameters = list(self.model.parameters())
        if kind == "ZeroRedundancyOptimizer":
            self.optimizer = ZeroRedundancyOptimizer(
                setting.groups(self.parameters),
                optimizer_class=torch.optim.AdamW,
                parameters_as_bucket_view=True,
                **setting.adamw,
            )
        else:
            self.optimizer = setting.optimizer(self.parameters)
        self.clip, self.microbatches, self.batches = (
            setting.job.train.clip,
            setting.microbatches,
            Batches(setting, rank),
        )

    def train_step(self) -> float:
        total = torch.zeros(())
        for number, (ids, targets) in enumerate(self.batches(), 1):
            last = number == self.microbatches
            with nullcontext() if last or self.kind == "fully_shard" else self.model.no_sync():
                loss = loss_of(self.model(ids), targets) / self.microbatches
                loss.backward()
            total += loss.detach()
        norm = torch.nn.utils.get_total_norm([p.grad for p in self.parameters])
        norm = norm.full_tensor() if isinstance(norm, DTensor) else norm
        torch.nn.utils.clip_grads_with_norm_(self.parameters, self.clip, norm)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return total.item()


def cases(rank: int, options: argparse.Namespace) -> list[dict[str, object]]:
    model = ModelSpec(
        layers=options.layers,
        hidden=options.hidden,
        heads=max(1, options.hidden // 64),
        vocab=options.vocab,
        sequence=options.sequence,
    )
    found = []
    for zero, peer in ((0, "DistributedDataParallel"), (1, "ZeroRedundancyOptimizer"), (3, "fully_shard")):
        plan = Plan(data=RANKS, zero=zero, microbatch=options.microbatch)
        setting = Setting(model, plan, options.microbatches)
        arms = {
            "heddle": Heddle(setting, rank, RANKS),
            peer: TorchDataParallel(setting, rank, peer),
            f"{peer} again": TorchDataParallel(setting, rank, peer),
        }
        ratios = {"ratio": ("heddle", peer), "a_a": (f"{peer} again", peer)}
        if INSTALLED and zero == 1:
            arms["deepspeed"] = DeepSpeedZero(setting, rank, stage=1)
            ratios["ratio_deepspeed"] = ("heddle", "deepspeed")
        found.append(measure(arms, ratios, options.rounds, options.steps, zero=zero, peer=peer))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    defaults = {"hidden": 256, "layers": 4, "sequence": 128, "vocab": 4096, "microbatch": 2, "microbatches": 2}
    for name, default in {**defaults, "rounds": 15, "steps": 1}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    found = run(RANKS, cases, options)
    shape = {name: getattr(options, name) for name in defaults}
    peer = f"torch {torch.__version__} DDP, ZeroRedundancyOptimizer, fully_shard; DeepSpeed ZeRO-1"
    report_cases("data_parallel", peer, found, **shape, deepspeed=SKIPPED or "measured")


if __name__ == "__main__":
    main()

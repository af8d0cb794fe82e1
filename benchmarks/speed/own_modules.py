"""A module of the user's own under our runtime, over 2 processes, against what torch gives for the same module.

* `zero = 0` against DistributedDataParallel, which sums gradients with the last microbatch only, as we do.
* `zero = 3` against `fully_shard` of every layer and of the whole.

All arms train the same `nn.Module`, written by hand, from the same weights on the same samples, with the same loss.

    python -m benchmarks.speed.own_modules [--hidden 256 --layers 4 --microbatches 2 --rounds 15]
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from torch import nn

from benchmarks.lib.gpt import Heddle, Setting
from benchmarks.lib.processes import measure, run
from benchmarks.lib.rounds import report_cases
from benchmarks.speed.data_parallel import RANKS, TorchDataParallel
from heddle.models.own.files import read_file
from heddle.models.random import key
from heddle.spec import Data, Job, ModelSpec, Plan, Train
from heddle.spec.own import own_model
from heddle.spec.tables import to_table

FILE = """
import torch.nn.functional as F
from benchmarks.lib.gpt import GPT
from heddle.spec import ModelSpec

def make():
    return GPT(ModelSpec(**{numbers}))

def loss(module, batch):
    logits, targets = module(batch.ids).flatten(0, 1), batch.targets.flatten()
    return F.cross_entropy(logits, targets, reduction="sum"), targets.numel()

plan = {{"blocks": "layers.*"}}
"""


@dataclass(frozen=True)
class OwnSetting(Setting):
    """The same of a module that a file makes."""

    address: str

    @cached_property
    def job(self) -> Job:
        batch = self.microbatches * self.plan.microbatch * self.plan.data
        train = Train(global_batch=batch, learning_rate=1e-3, schedule="constant")
        given = {"module": self.address, "vocab": self.model.vocab, "sequence": self.model.sequence}
        return Job(model=own_model(given), data=Data(text="-"), train=train, plan=self.plan)

    def initialized(self, model: nn.Module) -> nn.Module:
        """The same module with the weights that ours begins with."""
        torch.manual_seed(key("own", self.job.train.seed))
        model.load_state_dict(read_file(self.address).make().state_dict())
        return model


def cases(rank: int, address: str, options: argparse.Namespace) -> list[dict[str, object]]:
    found = []
    for zero, peer in ((0, "DistributedDataParallel"), (3, "fully_shard")):
        plan = Plan(data=RANKS, zero=zero, microbatch=options.microbatch)
        setting = OwnSetting(shape(options), plan, options.microbatches, address)
        arms = {
            "heddle": Heddle(setting, rank, RANKS),
            peer: TorchDataParallel(setting, rank, peer),
            f"{peer} again": TorchDataParallel(setting, rank, peer),
        }
        ratios = {"ratio": ("heddle", peer), "a_a": (f"{peer} again", peer)}
        found.append(measure(arms, ratios, options.rounds, options.steps, zero=zero, peer=peer))
    return found


def shape(options: argparse.Namespace) -> ModelSpec:
    return ModelSpec(
        layers=options.layers,
        hidden=options.hidden,
        heads=max(1, options.hidden // 64),
        vocab=options.vocab,
        sequence=options.sequence,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    defaults = {"hidden": 256, "layers": 4, "sequence": 128, "vocab": 4096, "microbatch": 2, "microbatches": 2}
    for name, default in {**defaults, "rounds": 15, "steps": 1}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="benchmark-") as folder:
        path = Path(folder) / "mine.py"
        path.write_text(FILE.format(numbers=to_table(shape(options))), encoding="utf-8")
        found = run(RANKS, cases, f"{path}:make", options)
    numbers = {name: getattr(options, name) for name in defaults}
    report_cases("own_modules", f"torch {torch.__version__} DDP and fully_shard", found, **numbers)


if __name__ == "__main__":
    main()

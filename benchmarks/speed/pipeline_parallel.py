"""Pipeline parallelism over 2 processes against torch.distributed.pipelining and DeepSpeed's PipelineModule.

1F1B, and interleaved 1F1B with 2 chunks per rank, for several numbers of microbatches. All have the same layers on the
same ranks, an untied head, fused AdamW and clipping by the norm over both stages. The second copy of torch's own
pipeline is the A/A arm.

    python -m benchmarks.speed.pipeline_parallel [--microbatches 4 8 16 --hidden 256 --layers 4 --rounds 11]
"""

from __future__ import annotations

import argparse

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleInterleaved1F1B

from benchmarks.lib.deepspeed_peer import INSTALLED, SKIPPED, DeepSpeedPipeline
from benchmarks.lib.gpt import GPT, Batches, Heddle, Setting, loss_of
from benchmarks.lib.processes import measure, run
from benchmarks.lib.rounds import report_cases
from heddle.spec import ModelSpec, Plan

RANKS = 2


class TorchPipeline:
    """torch.distributed.pipelining with stages made by hand."""

    def __init__(self, setting: Setting, rank: int) -> None:
        plan, model = setting.plan, setting.model
        numbers = range(rank, plan.chunks, plan.pipeline)
        self.chunks = [
            setting.initialized(GPT(model, plan.layers_of(c, model.layers), c == 0, c == plan.chunks - 1))
            for c in numbers
        ]
        stages = [
            PipelineStage(chunk, number, plan.chunks, torch.device("cpu"))
            for number, chunk in zip(numbers, self.chunks, strict=True)
        ]
        self.schedule = (
            Schedule1F1B(stages[0], setting.microbatches, loss_fn=loss_of)
            if plan.virtual == 1
            else ScheduleInterleaved1F1B(stages, setting.microbatches, loss_fn=loss_of)
        )
        self.first, self.last = rank == 0, rank == plan.pipeline - 1
        self.parameters = [parameter for chunk in self.chunks for parameter in chunk.parameters()]
        self.optimizer = setting.optimizer(self.parameters)
        self.clip, self.batches = setting.job.train.clip, Batches(setting)

    def train_step(self) -> float | None:
        ids, targets = (torch.cat(parts) for parts in zip(*self.batches(), strict=True))
        losses: list[Tensor] = []
        if self.first:
            self.schedule.step(ids)
        elif self.last:
            self.schedule.step(target=targets, losses=losses, return_outputs=False)
        squared = torch.nn.utils.get_total_norm([p.grad for p in self.parameters]) ** 2
        dist.all_reduce(squared)
        torch.nn.utils.clip_grads_with_norm_(self.parameters, self.clip, squared.sqrt())
        self.optimizer.step()
        self.optimizer.zero_grad()
        return torch.stack(losses).mean().item() if losses else None


def cases(rank: int, options: argparse.Namespace) -> list[dict[str, object]]:
    model = ModelSpec(
        layers=options.layers,
        hidden=options.hidden,
        heads=max(1, options.hidden // 64),
        vocab=options.vocab,
        sequence=options.sequence,
        tied=False,
    )
    found = []
    for schedule, virtual in (("1f1b", 1), ("interleaved", 2)):
        for microbatches in options.microbatches:
            plan = Plan(pipeline=RANKS, virtual=virtual, schedule=schedule, microbatch=options.microbatch)
            setting = Setting(model, plan, microbatches)
            arms = {
                "heddle": Heddle(setting, rank, RANKS),
                "torch": TorchPipeline(setting, rank),
                "torch again": TorchPipeline(setting, rank),
            }
            ratios = {"ratio": ("heddle", "torch"), "a_a": ("torch again", "torch")}
            if INSTALLED and virtual == 1:  # DeepSpeed has no interleaved schedule
                arms["deepspeed"] = DeepSpeedPipeline(setting)
                ratios["ratio_deepspeed"] = ("heddle", "deepspeed")
            facts = {"schedule": schedule, "microbatches": microbatches}
            found.append(measure(arms, ratios, options.rounds, options.steps, **facts))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--microbatches", type=int, nargs="+", default=[4, 8, 16])
    defaults = {"hidden": 256, "layers": 4, "sequence": 128, "vocab": 1024, "microbatch": 2, "rounds": 11, "steps": 1}
    for name, default in defaults.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    found = run(RANKS, cases, options)
    shape = {name: getattr(options, name) for name in ("hidden", "layers", "sequence", "vocab", "microbatch")}
    peer = f"torch {torch.__version__} distributed.pipelining, DeepSpeed PipelineModule"
    report_cases("pipeline_parallel", peer, found, **shape, deepspeed=SKIPPED or "measured")


if __name__ == "__main__":
    main()

"""Schedules that take backwards in two: their measured bubble against the replay, and their step against torch's.

With 4 ranks, made slow devices of a steady speed as in `benchmarks.speed.bubble`: measured over replayed, which is 1
where nothing but the order costs time; and ZB-H2 with updates that are checked after the fact, against waiting for the
norm. With 2 ranks, a core each: ZB-V and DualPipeV against the same schedules of
torch.distributed.pipelining and against its interleaved zero-bubble schedule, all with the same layers, an untied head,
fused AdamW and clipping by the norm over both ranks. The second copy of torch's ZBV is the A/A arm.

    python -m benchmarks.speed.bubbles [--microbatches 8 --hidden 256 --layers 4 --rounds 7 --slowdown 8]
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import (
    ScheduleDualPipeV,
    ScheduleInterleavedZeroBubble,
    ScheduleZBVZeroBubble,
)

from benchmarks.lib.gpt import GPT, Batches, Heddle, Setting, loss_of
from benchmarks.lib.processes import measure, run
from benchmarks.lib.rounds import alternate, report_cases
from benchmarks.speed.bubble import Bubble, PacedRecorder
from heddle.parallel.mesh import build_mesh
from heddle.schedule import ChunkPlacement, Kind, build
from heddle.simulating.replay import replay
from heddle.spec import ModelSpec, Plan
from heddle.training.step.choose import make_trainer

STEPS = 4  # in a row, where they may close up

SLOW = {"1f1b": 1, "zb-h1": 1, "zb-h2": 1, "zb-v": 2, "dualpipev": 2}
PEERS = {
    "zbv": (ScheduleZBVZeroBubble, ChunkPlacement.V),
    "dualpipev": (ScheduleDualPipeV, ChunkPlacement.V),
    "interleaved zero bubble": (ScheduleInterleavedZeroBubble, ChunkPlacement.LOOP),
}


class TorchPipeline:
    """torch.distributed.pipelining with two stages a rank, made by hand."""

    def __init__(self, setting: Setting, rank: int, peer: str) -> None:
        plan, model = setting.plan, setting.model
        make, placement = PEERS[peer]
        numbers = placement.chunks_of(rank, plan.pipeline, 2)
        self.chunks = [
            setting.initialized(GPT(model, plan.layers_of(c, model.layers), c == 0, c == plan.chunks - 1))
            for c in numbers
        ]
        stages = [
            PipelineStage(chunk, number, plan.chunks, torch.device("cpu"))
            for number, chunk in zip(numbers, self.chunks, strict=True)
        ]
        self.schedule = make(stages, setting.microbatches, loss_fn=loss_of)
        self.first, self.last = 0 in numbers, plan.chunks - 1 in numbers
        self.parameters = [parameter for chunk in self.chunks for parameter in chunk.parameters()]
        self.optimizer = setting.optimizer(self.parameters)
        self.clip, self.batches = setting.job.train.clip, Batches(setting)

    def train_step(self) -> float | None:
        ids, targets = (torch.cat(parts) for parts in zip(*self.batches(), strict=True))
        losses: list[Tensor] = []
        inputs = (ids,) if self.first else ()
        wanted = {"target": targets, "losses": losses} if self.last else {}
        self.schedule.step(*inputs, **wanted, return_outputs=False)
        squared = torch.nn.utils.get_total_norm([p.grad for p in self.parameters]) ** 2
        dist.all_reduce(squared)
        torch.nn.utils.clip_grads_with_norm_(self.parameters, self.clip, squared.sqrt())
        self.optimizer.step()
        self.optimizer.zero_grad()
        return torch.stack(losses).mean().item() if losses else None


def model_of(options: argparse.Namespace, layers: int) -> ModelSpec:
    return ModelSpec(
        layers=layers,
        hidden=options.hidden,
        heads=max(1, options.hidden // 64),
        vocab=128,
        sequence=options.sequence,
        tied=False,
    )


def slow_stages(rank: int, options: argparse.Namespace) -> list[dict[str, object]]:
    """Four slow devices."""
    bubbles = {}
    for schedule, virtual in SLOW.items():
        plan = Plan(pipeline=4, virtual=virtual, schedule=schedule, microbatch=options.microbatch)
        bubbles[schedule] = Bubble(Setting(model_of(options, 8), plan, options.microbatches), rank, options.slowdown)
    alternate({name: bubble.step for name, bubble in bubbles.items()}, options.rounds, rank)
    found = [bubble.case() for bubble in bubbles.values()]
    found.append(without_barrier(rank, options, bubbles["zb-h2"].recorder.pace))
    if rank == 0:
        for case in found:
            print(json.dumps(case), file=sys.stderr)
    return found


class Unfenced:
    """Steps one after another on a slow device, checked before or after the update; nothing is clipped."""

    def __init__(self, setting: Setting, rank: int, pace: dict[str, float]) -> None:
        recorder = PacedRecorder(rank)
        recorder.pace = pace
        job = replace(setting.job, train=replace(setting.job.train, clip=1e3))
        self.trainer = make_trainer(job, setting.tokens, build_mesh(setting.plan, rank, 4), recorder)

    def train_step(self) -> float | None:
        handed = [self.trainer.steps.start_step() for _ in range(STEPS)]
        self.trainer.steps.drain()
        return handed[-1].read().loss


def without_barrier(rank: int, options: argparse.Namespace, pace: dict[str, float]) -> dict[str, object]:
    """ZB-H2, whose steps close up where no stage waits for all others; `expected`: what the replay gains."""
    arms = {}
    for name in ("before", "after", "before again"):
        plan = Plan(pipeline=4, schedule="zb-h2", microbatch=options.microbatch, check_step=name.split()[0])
        arms[name] = Unfenced(Setting(model_of(options, 8), plan, options.microbatches), rank, pace)
    forward, halves = pace[Kind.FORWARD], (pace[Kind.BACKWARD_INPUT], pace[Kind.BACKWARD_WEIGHT])
    trace = replay(build("zb-h2", 4, options.microbatches), forward, sum(halves), weight=halves[1])
    expected = STEPS * trace.duration / ((STEPS - 1) * trace.period + trace.duration)
    ratios = {"ratio": ("after", "before"), "a_a": ("before again", "before")}
    return measure(arms, ratios, options.rounds, 1, schedule="zb-h2, checked after", expected=round(expected, 3))


def against_torch(rank: int, options: argparse.Namespace) -> list[dict[str, object]]:
    """Two real ones."""
    found = []
    for schedule, peers in {"zb-v": ("zbv", "interleaved zero bubble"), "dualpipev": ("dualpipev",)}.items():
        plan = Plan(pipeline=2, virtual=2, schedule=schedule, microbatch=options.microbatch)
        setting = Setting(model_of(options, options.layers), plan, options.microbatches)
        arms = {"heddle": Heddle(setting, rank, 2)} | {name: TorchPipeline(setting, rank, name) for name in peers}
        arms[f"{peers[0]} again"] = TorchPipeline(setting, rank, peers[0])
        ratios = {f"ratio {name}": ("heddle", name) for name in peers} | {"a_a": (f"{peers[0]} again", peers[0])}
        found.append(measure(arms, ratios, options.rounds, 1, schedule=schedule, microbatches=options.microbatches))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    defaults = {"microbatches": 8, "hidden": 256, "layers": 4, "sequence": 128, "microbatch": 1, "rounds": 7}
    for name, default in defaults.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--slowdown", type=float, default=8.0, help="of the 4 devices, against a core")
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    options = parser.parse_args()
    parts = {2: against_torch, 4: slow_stages}
    found = [case for ranks in options.ranks for case in run(ranks, parts[ranks], options)]
    shape = {name: getattr(options, name) for name in ("hidden", "layers", "sequence", "microbatch")}
    report_cases("bubbles", f"the replay; torch {torch.__version__} distributed.pipelining", found, **shape)


if __name__ == "__main__":
    main()

"""Captured modules over 2 processes: measured against predicted throughput, and against torch.distributed.pipelining.

A ResNet-50 in inference and an encoder-decoder in training with 1F1B, both from tests/capture. Heddle splits them where
its placement says; torch's own tracer where its users are told to: in the middle of the blocks, and between encoder and
decoder. Both run the same microbatches, forward and backward, without an update. The second copy of torch's pipeline is
the A/A arm. `predicted` is made before anything runs in the processes that are timed, from operators that were measured
one by one; `measured` over `predicted` is `accuracy`, the median over rounds.

    python -m benchmarks.speed.capture [--microbatches 16 --rounds 7 --width 32 --hidden 128]
"""

from __future__ import annotations

import argparse
import copy
import statistics
import sys
import tempfile
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.distributed.pipelining import Schedule1F1B, ScheduleGPipe, SplitPoint, pipeline

import heddle
from benchmarks.lib.processes import measure, run
from benchmarks.lib.rounds import report_cases
from heddle.capturing.executor import StageExecutor
from heddle.capturing.files import load_stage, save_stage
from heddle.capturing.run import StageOptions, schedule_of
from heddle.parallel.mesh import Mesh, build_mesh
from heddle.runtime.recorder import NoRecorder
from heddle.spec import Plan
from tests.helpers.small_modules import ResNet50, Seq2Seq

MODELS = ("resnet50", "vit", "seq2seq")
RANKS, CPU = 2, torch.device("cpu")


class Logits(Seq2Seq):
    """Only what the loss is made of."""

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        return super().forward(source, target)["logits"]


class Vision(nn.Module):
    """A Hugging Face ViT, built from its config, from images to their last hidden states.

    Its layers are called one by one: the model itself would make a mask of ones for them, expanded, and torch's
    pipeline hands over contiguous tensors only.
    """

    def __init__(self, hidden: int, layers: int, image: int) -> None:
        super().__init__()
        from transformers import ViTConfig, ViTModel

        config = ViTConfig(
            hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=hidden // 64,
            intermediate_size=4 * hidden, image_size=image, patch_size=8,
        )  # fmt: skip
        self.vit = ViTModel(config, add_pooling_layer=False)

    def forward(self, images: Tensor) -> Tensor:
        hidden = self.vit.embeddings(images)
        for layer in self.vit.layers:
            hidden = layer(hidden)
        return self.vit.layernorm(hidden)


def squares(output: Tensor, _: Tensor) -> Tensor:
    return (output**2).mean()


class Case:
    """A model, its microbatches, and where torch splits it."""

    def __init__(self, name: str, options: argparse.Namespace) -> None:
        torch.manual_seed(0)
        self.name, self.training = name, name == "seq2seq"
        self.module: nn.Module
        if self.training:
            self.module, self.split = Logits(1000, options.hidden, 3), "decoder.0"
            shape, draw = (4, options.length), lambda size: torch.randint(0, 1000, size)
            self.batches = [(draw(shape), draw(shape)) for _ in range(options.microbatches)]
        elif name == "vit":
            self.module, self.split = Vision(options.hidden, 6, options.image).eval(), "vit.layers.3"
            self.batches = [(torch.randn(2, 3, options.image, options.image),) for _ in range(options.microbatches)]
        else:
            self.module, self.split = ResNet50(options.width).eval(), "layers.8"
            shape = (2, 3, options.image, options.image)
            self.batches = [(torch.randn(shape),) for _ in range(options.microbatches)]


class Ours:
    """Stages from files, through the executor that `run` uses."""

    def __init__(self, case: Case, mesh: Mesh, folder: Path) -> None:
        stage = load_stage(folder / f"{case.name}-{mesh.pipeline.rank}.pt", CPU)
        orders = StageOptions(case.training, len(case.batches), None, 0, False)
        self.executor = StageExecutor(schedule_of(RANKS, orders, len(case.batches)), stage, mesh, CPU, NoRecorder())
        self.case, self.last = case, mesh.pipeline.rank == RANKS - 1
        self.works = [(*batch, torch.zeros(())) for batch in case.batches]
        self.throughput: list[float] = []

    def train_step(self) -> float | None:
        with torch.set_grad_enabled(self.case.training):
            loss = self.executor.run(self.works)
        self.executor.stage.module.zero_grad()
        if self.case.training:
            return float(loss) if self.last else None
        done = self.executor.done
        self.throughput.append((len(done) - 1) / (done[-1] - done[0]))
        return statistics.fmean(float(made[0].abs().mean()) for made in self.executor.outputs) if self.last else None


class Torchs:
    """torch.distributed.pipelining's tracer and schedules."""

    def __init__(self, case: Case, rank: int) -> None:
        module = copy.deepcopy(case.module)  # which it changes
        pipe = pipeline(module, mb_args=case.batches[0], split_spec={case.split: SplitPoint.BEGINNING})
        self.stage = pipe.build_stage(rank, torch.device("cpu"))
        count = len(case.batches)
        self.schedule = (
            Schedule1F1B(self.stage, count, loss_fn=squares) if case.training else ScheduleGPipe(self.stage, count)
        )
        self.case, self.rank = case, rank
        self.inputs = [torch.cat(tensors) for tensors in zip(*case.batches, strict=True)]
        self.targets = torch.zeros(len(self.inputs[0]))

    def train_step(self) -> float | None:
        losses: list[Tensor] = []
        if not self.case.training:
            with torch.no_grad():
                made = self.schedule.step(*self.inputs) if self.rank == 0 else self.schedule.step()
            return float(made.abs().mean()) if made is not None else None
        if self.rank == 0:
            self.schedule.step(*self.inputs)
        else:
            self.schedule.step(target=self.targets, losses=losses, return_outputs=False)
        self.stage.submod.zero_grad()
        return float(torch.stack(losses).mean()) if losses else None


def cases(rank: int, options: argparse.Namespace, folder: Path, predicted: dict[str, float]) -> list[dict[str, object]]:
    mesh = build_mesh(Plan(pipeline=RANKS), rank, RANKS)
    assert mesh is not None
    found = []
    for name, throughput in predicted.items():
        case = Case(name, options)
        ours = Ours(case, mesh, folder)
        arms = {"heddle": ours, "torch": Torchs(case, rank), "torch again": Torchs(case, rank)}
        ratios = {"ratio": ("heddle", "torch"), "a_a": ("torch again", "torch")}
        result = measure(arms, ratios, options.rounds, 1, model=name, training=case.training)
        step = len(case.batches) / result["median_seconds"]["heddle"]
        # In inference, once all stages are at work, as predicted; the last stage knows, and both get the same answer.
        rates: list[float | None] = [None] * RANKS
        torch.distributed.all_gather_object(rates, statistics.median(ours.throughput[-options.rounds :] or [step]))
        reached = step if case.training else rates[-1]
        assert reached is not None
        result |= {"predicted": round(throughput, 3), "measured": round(reached, 3)}
        found.append({**result, "accuracy": round(reached / throughput, 3)})
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in {
        "microbatches": 16, "rounds": 7, "width": 32, "image": 96, "hidden": 256, "length": 128
    }.items():  # fmt: skip
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS)
    options = parser.parse_args()
    predicted = {}
    with tempfile.TemporaryDirectory(prefix="benchmark-") as folder:
        for name in options.models:
            case = Case(name, options)
            extra = (torch.zeros(()),) if case.training else ()
            loss = squares if case.training else None
            inputs = (*case.batches[0], *extra)
            placed = heddle.place(case.module, inputs, devices=RANKS, training=case.training, loss=loss)
            print(placed, file=sys.stderr)
            assert len(placed.stages) == RANKS, "all on one device: there is no pipeline to measure"
            for rank, stage in enumerate(placed.stages):
                save_stage(stage, Path(folder) / f"{name}-{rank}.pt")
            predicted[name] = placed.predicted(options.microbatches)
        found = run(RANKS, cases, options, Path(folder), predicted)
    report_cases("capture", f"torch {torch.__version__} distributed.pipelining, its own split", found)


if __name__ == "__main__":
    main()

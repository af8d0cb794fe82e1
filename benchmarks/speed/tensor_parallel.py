"""Tensor parallelism over 2 processes against torch's DTensor: `parallelize_module` by its usual recipe.

The peer's weights are DTensors: columns of QKV and of the MLP's first product, rows of the second ones and of the
embedding, columns of the head with `loss_parallel` or with logits that every rank has whole, whichever is faster
for it in a short trial. With sequence parallelism norms are `SequenceParallel` and activations between the products
are sharded over the tokens. Its optimizer is fused AdamW and its clipping `clip_grad_norm_`'s two halves.

    python -m benchmarks.speed.tensor_parallel [--hidden 256 512 1024 --layers 2 --sequence 128 --rounds 7]
"""

from __future__ import annotations

import argparse
from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)

from benchmarks.lib.gpt import GPT, Batches, Embedding, Heddle, Setting, loss_of
from benchmarks.lib.processes import compare, measure, run
from benchmarks.lib.rounds import report_cases, speedup
from heddle.spec import ModelSpec, Plan

RANKS = 2


class ShardedEmbedding(Embedding):
    """Of this rank's tokens: its slice of the positions is its shard of their weight."""

    def forward(self, ids: Tensor) -> Tensor:
        return self.tokens(ids) + self.positions.weight.to_local()


class DTensorLoop:
    """Tensor parallelism as torch's own tutorial applies it."""

    def __init__(self, setting: Setting, whole_logits: bool) -> None:
        sequence = setting.plan.sequence
        mesh = init_device_mesh("cpu", (RANKS,))
        model = setting.initialized(GPT(setting.model))
        assert model.embed is not None
        between = Shard(1) if sequence else Replicate()
        styles = {
            "embed.tokens": RowwiseParallel(input_layouts=Replicate(), output_layouts=between),
            "head": ColwiseParallel(
                input_layouts=between,
                output_layouts=Replicate() if whole_logits else Shard(-1),
                use_local_output=whole_logits,
            ),
        }
        for layer in (f"layers.{index}" for index in model.layers):
            for name in ("attention.qkv", "mlp.up"):
                styles[f"{layer}.{name}"] = ColwiseParallel(input_layouts=between)
            for name in ("attention.out", "mlp.down"):
                styles[f"{layer}.{name}"] = RowwiseParallel(output_layouts=between)
            if sequence:
                styles |= {f"{layer}.{name}": SequenceParallel() for name in ("attention_norm", "mlp_norm")}
        if sequence:
            styles["norm"] = SequenceParallel()
        self.model = parallelize_module(model, mesh, styles)
        if sequence:
            positions = model.embed.positions
            positions.weight = nn.Parameter(distribute_tensor(positions.weight.data, mesh, [Shard(0)]))
            model.embed.__class__ = ShardedEmbedding
        self.context = nullcontext if whole_logits else loss_parallel
        # fused AdamW takes DTensors or plain tensors, not both at once
        sharded = [p for p in self.model.parameters() if isinstance(p, DTensor)]
        plain = [p for p in self.model.parameters() if not isinstance(p, DTensor)]
        self.parts = [part for part in (sharded, plain) if part]
        self.optimizers = [setting.optimizer(part) for part in self.parts]
        self.clip = setting.job.train.clip
        self.batches, self.microbatches = Batches(setting), setting.microbatches

    def train_step(self) -> float:
        total = torch.zeros(())
        with self.context():
            for ids, targets in self.batches():
                loss = loss_of(self.model(ids), targets) / self.microbatches
                loss.backward()
                total += loss.detach().full_tensor() if isinstance(loss, DTensor) else loss.detach()
        norms = [torch.nn.utils.get_total_norm([p.grad for p in part]) for part in self.parts]
        norm = torch.stack([n.full_tensor() if isinstance(n, DTensor) else n for n in norms]).norm()
        for part, optimizer in zip(self.parts, self.optimizers, strict=True):
            torch.nn.utils.clip_grads_with_norm_(part, self.clip, norm)
            optimizer.step()
            optimizer.zero_grad()
        return total.item()


def cases(rank: int, options: argparse.Namespace) -> list[dict[str, object]]:
    found = []
    for hidden in options.hidden:
        for sequence in (False, True):
            model = ModelSpec(
                layers=options.layers,
                hidden=hidden,
                heads=hidden // 64,
                vocab=options.vocab,
                sequence=options.sequence,
                tied=False,
            )
            plan = Plan(tensor=RANKS, sequence=sequence, microbatch=options.microbatch)
            setting = Setting(model, plan, options.microbatches)
            trial, _ = compare(
                {"loss_parallel": DTensorLoop(setting, False), "whole": DTensorLoop(setting, True)}, 3, 1
            )
            whole_logits = speedup(trial, "whole", "loss_parallel") > 1
            arms = {
                "heddle": Heddle(setting, rank, RANKS),
                "DTensor": DTensorLoop(setting, whole_logits),
                "DTensor again": DTensorLoop(setting, whole_logits),
            }
            ratios = {"ratio": ("heddle", "DTensor"), "a_a": ("DTensor again", "DTensor")}
            found.append(
                measure(
                    arms,
                    ratios,
                    options.rounds,
                    options.steps,
                    hidden=hidden,
                    sequence_parallel=sequence,
                    peer_head="whole logits" if whole_logits else "loss_parallel",
                )
            )
            dist.barrier()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hidden", type=int, nargs="+", default=[256, 512, 1024])
    defaults = {"layers": 2, "sequence": 128, "vocab": 4096, "microbatch": 2, "microbatches": 2, "rounds": 7}
    for name, default in defaults.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--steps", type=int, default=1, help="steps in each timing")
    options = parser.parse_args()
    found = run(RANKS, cases, options)
    shape = {name: getattr(options, name) for name in ("layers", "sequence", "vocab", "microbatch", "microbatches")}
    report_cases("tensor_parallel", f"torch {torch.__version__} DTensor parallelize_module", found, **shape)


if __name__ == "__main__":
    main()

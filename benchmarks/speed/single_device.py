"""Heddle's training step on one device against a plain hand-written PyTorch loop of the same model.

The peer is what a careful person writes by hand: eager PyTorch, fused QKV, scaled_dot_product_attention, fused
AdamW, clip_grad_norm_. Both learn from the same tokens. The second copy of the peer is the A/A arm: its ratio to
the first is the noise of this machine.

    python -m benchmarks.speed.single_device [--layers 4 --hidden 256 --rounds 15] [--compile]
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.lib.rounds import alternate, report, speedup
from heddle.spec import Data, Job, ModelSpec, Plan, Train
from heddle.training.loop import Trainer


class PlainBlock(nn.Module):
    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.qkv, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, x: Tensor) -> Tensor:
        b, s, h = x.shape
        q, k, v = (part.view(b, s, self.heads, -1).transpose(1, 2) for part in self.qkv(self.norm1(x)).split(h, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, s, h)
        x = x + self.out(y)
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class PlainGPT(nn.Module):
    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.tokens = nn.Embedding(spec.vocab, spec.hidden)
        self.positions = nn.Embedding(spec.sequence, spec.hidden)
        self.blocks = nn.ModuleList(PlainBlock(spec.hidden, spec.heads) for _ in range(spec.layers))
        self.norm = nn.LayerNorm(spec.hidden)

    def forward(self, ids: Tensor, targets: Tensor) -> Tensor:
        x = self.tokens(ids) + self.positions.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.norm(x), self.tokens.weight)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))


class PlainLoop:
    """The loop of a tutorial, without a mistake in it."""

    def __init__(self, job: Job, tokens: np.ndarray, compiled: bool) -> None:
        self.job, self.tokens, self.step = job, tokens, 0
        self.model = PlainGPT(job.model)
        if compiled:
            self.model.compile()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3, weight_decay=0.1, fused=True)

    def train_step(self) -> None:
        s, microbatch = self.job.sequence, self.job.plan.microbatch
        microbatches = self.job.plan.microbatches(self.job.train.global_batch)
        for _ in range(microbatches):
            starts = np.random.randint(0, len(self.tokens) - s - 1, microbatch)
            rows = torch.from_numpy(np.stack([self.tokens[i : i + s + 1] for i in starts]).astype(np.int64))
            (self.model(rows[:, :-1], rows[:, 1:].contiguous()) / microbatches).backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.step += 1


def timed(loop: object, steps: int) -> float:
    start = time.perf_counter()
    for _ in range(steps):
        loop.train_step()
    return (time.perf_counter() - start) / steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in {"layers": 4, "hidden": 256, "sequence": 256, "microbatch": 4, "rounds": 15}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--steps", type=int, default=2, help="steps in each timing")
    parser.add_argument("--compile", action="store_true", help="also time both with torch.compile")
    options = parser.parse_args()
    model = ModelSpec(
        layers=options.layers,
        hidden=options.hidden,
        heads=options.hidden // 64,
        vocab=8192,
        sequence=options.sequence,
    )
    tokens = np.random.default_rng(0).integers(0, model.vocab, 1 << 20).astype("<u2")

    def job(compiled: bool) -> Job:
        train = Train(global_batch=2 * options.microbatch, learning_rate=1e-3, compile=compiled)
        return Job(model=model, data=Data(text="-"), train=train, plan=Plan(microbatch=options.microbatch))

    eager = job(compiled=False)
    loops = {
        "heddle": Trainer(eager, tokens),
        "plain": PlainLoop(eager, tokens, compiled=False),
        "plain again": PlainLoop(eager, tokens, compiled=False),
    }
    if options.compile:
        loops["heddle compiled"] = Trainer(job(compiled=True), tokens)
        loops["plain compiled"] = PlainLoop(eager, tokens, compiled=True)
    seconds = alternate(
        {name: lambda loop=loop: timed(loop, options.steps) for name, loop in loops.items()}, options.rounds
    )
    ratios = {"ratio": speedup(seconds, "heddle", "plain"), "a_a": speedup(seconds, "plain again", "plain")}
    if options.compile:
        ratios["compile_gain"] = speedup(seconds, "heddle compiled", "heddle")
        ratios["ratio_compiled"] = speedup(seconds, "heddle compiled", "plain compiled")
    report(
        "single_device",
        f"plain PyTorch {torch.__version__} loop",
        seconds,
        layers=options.layers,
        hidden=options.hidden,
        threads=torch.get_num_threads(),
        **ratios,
    )


if __name__ == "__main__":
    main()

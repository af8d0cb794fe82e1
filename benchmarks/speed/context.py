"""Attention of a long sample, forward and backward, shared by 2 processes with one thread each.

Against PyTorch's scaled_dot_product_attention of the whole sample: in one process with one thread, which at most half
of the time is possible, and in one process with two threads, which have the same cores and no message between them. All
arms compute the same; the mean of the output and of the gradients is compared first. `saved` are the bytes that a rank
keeps for the backward pass, over those of the whole sample: half, if sharing costs no memory.

    python -m benchmarks.speed.context [--sequence 1024 8192 --heads 4 --kv-heads 2 --size 64 --rounds 5]
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor

from benchmarks.lib.processes import measure, run
from benchmarks.lib.rounds import report_cases
from heddle.parallel.context.attention import EXCHANGES, Shared
from heddle.parallel.context.cut import as_held
from heddle.parallel.mesh import build_mesh
from heddle.spec import Plan

RANKS = 2


class Attention:
    """One arm: what is attended to, and the sum of what comes of it."""

    def __init__(self, inputs: list[Tensor]) -> None:
        *leaves, self.gradient = inputs
        self.leaves = [x.clone().requires_grad_() for x in leaves]

    def attend(self) -> Tensor:
        raise NotImplementedError

    def train_step(self) -> float | None:
        y = self.attend()
        y.backward(self.gradient)
        parts = [y.detach(), *(x.grad for x in self.leaves if x.grad is not None)]
        total = sum(float(part.double().square().sum()) for part in parts)
        for x in self.leaves:
            x.grad = None
        return total

    def saved(self) -> int:
        kept: dict[int, int] = {}

        def keep(x: Tensor) -> Tensor:
            kept[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
            return x

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
            y = self.attend()
        del y
        return sum(kept.values())


class Together(Attention):
    """A rank's share of the tokens."""

    def __init__(self, inputs: list[Tensor], shared: Shared, exchange: str) -> None:
        axis = shared.axis
        super().__init__([as_held(x, 2, axis.size)[axis.rank].contiguous() for x in inputs])
        self.shared, self.exchange = shared, EXCHANGES[exchange]

    def attend(self) -> Tensor:
        return self.exchange(*self.leaves, self.shared)

    def train_step(self) -> float | None:
        total = torch.tensor(super().train_step(), dtype=torch.float64)
        dist.all_reduce(total, group=self.shared.axis.group)
        return float(total)


class Alone(Attention):
    """All of it on the first rank, with so many threads; the others wait."""

    def __init__(self, inputs: list[Tensor], rank: int, threads: int) -> None:
        super().__init__(inputs)
        self.rank, self.threads = rank, threads

    def attend(self) -> Tensor:
        return F.scaled_dot_product_attention(*self.leaves, is_causal=True, enable_gqa=True)

    def train_step(self) -> float | None:
        if self.rank:
            return None
        torch.set_num_threads(self.threads)
        total = super().train_step()
        torch.set_num_threads(1)
        return total


def cases(rank: int, options: argparse.Namespace) -> list[dict[str, object]]:
    mesh = build_mesh(Plan(context=RANKS), rank, RANKS)
    assert mesh is not None
    found = []
    for sequence in options.sequence:
        generator = torch.Generator().manual_seed(0)
        heads = (options.heads, options.kv_heads, options.kv_heads, options.heads)
        inputs = [torch.randn(1, each, sequence, options.size, generator=generator) for each in heads]
        shared = Shared(mesh.context, sequence, None)
        arms: dict[str, Any] = {name: Together(inputs, shared, name) for name in EXCHANGES}
        arms |= {"one thread": Alone(inputs, rank, 1), "two threads": Alone(inputs, rank, 2)}
        arms["one thread again"] = Alone(inputs, rank, 1)
        ratios = {f"{name}_speedup": (name, "one thread") for name in EXCHANGES}
        ratios |= {f"{name}_ratio": (name, "two threads") for name in EXCHANGES}
        ratios["a_a"] = ("one thread again", "one thread")
        whole = arms["one thread"].saved()
        saved = {name: round(arms[name].saved() / whole, 3) for name in EXCHANGES}
        found.append(measure(arms, ratios, options.rounds, 1, sequence=sequence, saved=saved))
        dist.barrier()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sequence", type=int, nargs="+", default=[1024, 8192])
    for name, default in {"heads": 4, "kv-heads": 2, "size": 64, "rounds": 5}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    found = run(RANKS, cases, options)
    shape = {name: getattr(options, name) for name in ("heads", "kv_heads", "size")}
    report_cases("context", f"torch {torch.__version__} scaled_dot_product_attention", found, **shape)


if __name__ == "__main__":
    main()

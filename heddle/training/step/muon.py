"""Muon: the matrices of layers move by their momentum, made orthogonal (kellerjordan.github.io/posts/muon).

As `torch.optim.Muon` with adjust_lr_fn = "match_rms_adamw", with which learning rate and weight decay are those of
AdamW. What is orthogonal is a whole matrix: half of one comes out otherwise, and so do queries, keys and values
together. So matrices are put together wherever ranks hold parts of them (`heddle.parallel.replicas.matrices`), and
split into those that the model means. Everything else is AdamW's: embeddings, output layer, norms, biases, routers.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from heddle.checkpoint.checkpoint import MUON
from heddle.models.lora import QkvRows
from heddle.parallel.mesh import Axis
from heddle.parallel.replicas.matrices import HeldParameter, WholeMatrices
from heddle.parallel.shards import Piece
from heddle.spec.job import Job

COEFFICIENTS = 3.4445, -4.7750, 2.0315  # of the quintic iteration
ITERATIONS = 5
EPSILON = 1e-7
RMS = 0.2  # of an update, as AdamW's are (arXiv 2502.16982 §2.2)
MOMENTUM = MUON[0]  # what a checkpoint calls it
MATRIX = re.compile(
    r"layers\.\d+\.(attention\.(qkv|out)\.weight|mlp\.(shared\.)?(gate|up|down)\.weight|mlp\.experts\.(gate|up|down)"
    r"|.*\.lora_[ab])"
)


def by_muon(name: str) -> bool:
    """Whether a parameter of the whole model is a matrix that Muon updates."""
    return MATRIX.fullmatch(name) is not None


def orthogonal(x: Tensor) -> Tensor:
    """The matrix, or each of a stack, with all its singular values near one, in its own precision.

    Step by step as `torch.optim.Muon` does it, so that in bf16 the bits are the same.
    """
    a, b, c = COEFFICIENTS
    tall = x.shape[-2] > x.shape[-1]
    x = x.mT if tall else x
    norm = x.norm() if x.dim() == 2 else x.flatten(1).norm(dim=1)[:, None, None]
    x = x / norm.clamp(min=EPSILON)
    add = torch.addmm if x.dim() == 2 else torch.baddbmm
    for _ in range(ITERATIONS):
        gram = x @ x.mT
        x = add(x, add(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if tall else x


def rate_factor(rows: int, columns: int) -> float:
    """What the learning rate of a matrix is multiplied by, so that its updates are as large as AdamW's."""
    return RMS * math.sqrt(max(rows, columns))


class RateFactors(NamedTuple):
    """What the learning rate of a piece is multiplied by."""

    factor: float
    others: float = 0.0  # the same of what is none of the queries, where that differs
    queries: Tensor | None = None  # which of the piece's numbers are the queries'


class Muon:
    """The update of this rank's pieces of matrices."""

    def __init__(self, pieces: Sequence[Piece], held: Iterable[HeldParameter], tensor: Axis, job: Job) -> None:
        """`held`: every parameter of this stage, whoever has which part of it."""
        self.train, self.model = job.train, job.model
        self.dtype = torch.float32 if job.precision == "fp32" else torch.bfloat16
        self.pieces = {piece.name: piece for piece in pieces if by_muon(piece.name)}
        self.matrices = WholeMatrices([each for each in held if by_muon(each.name)], tensor)
        self.state = {piece.master: {MOMENTUM: torch.zeros_like(piece.master)} for piece in self.pieces.values()}
        self.factors = {name: self._factors(piece) for name, piece in self.pieces.items()}

    @torch.no_grad()
    def step(self, rate: float, divisor: Tensor, skip: Tensor) -> None:
        """Update, given what gradients are divided by, and 1 where nothing may change because they are not finite."""
        keep, dtype = 1 - skip, self.dtype
        for round_ in self.matrices.rounds:
            names = [each.held.name for each in round_ if each.held.name in self.pieces]
            directions = {name: self._direction(self.pieces[name], divisor, keep).to(dtype) for name in names}
            nothing = {"": torch.empty(0, dtype=dtype, device=divisor.device)}  # of ranks that hold no part
            made = self.matrices.changed(round_, directions or nothing, self._orthogonal)
            for name in names:
                self._move(self.pieces[name], made[name], rate, keep)

    def _direction(self, piece: Piece, divisor: Tensor, keep: Tensor) -> Tensor:
        """Nesterov's, after the momentum has taken in the gradient."""
        momentum, gradient = self.state[piece.master][MOMENTUM], piece.master.grad
        if gradient is None:  # what the loss does not depend on
            gradient = torch.zeros_like(momentum)
        gradient = torch.where(keep > 0, gradient / divisor, 0.0)
        momentum.lerp_(gradient, (1 - self.train.momentum) * keep)
        return gradient.lerp(momentum, self.train.momentum)

    def _orthogonal(self, name: str, whole: Tensor) -> Tensor:
        if not name.endswith("attention.qkv.weight"):
            return orthogonal(whole)
        rows = self._rows(name)
        return rows.together({target: orthogonal(x) for target, x in rows.apart(whole).items()})

    def _move(self, piece: Piece, update: Tensor, rate: float, keep: Tensor) -> None:
        factors, update = self.factors[piece.name], update * keep.to(update.dtype)
        piece.master.mul_(torch.where(keep > 0, 1 - rate * self.train.weight_decay, 1.0))
        if factors.queries is not None:
            others = piece.master.add(update, alpha=-rate * factors.others)
        piece.master.add_(update, alpha=-rate * factors.factor)
        if factors.queries is not None:
            torch.where(factors.queries, piece.master, others, out=piece.master)

    def _rows(self, name: str) -> QkvRows:
        layer = self.model.layer(int(name.split(".")[1]))
        return QkvRows(layer.group, layer.head_size)

    def _factors(self, piece: Piece) -> RateFactors:
        """Queries may be more than keys and values, and then their rate is another."""
        rows, columns = piece.place.shape[-2:]
        if not piece.name.endswith("attention.qkv.weight"):
            return RateFactors(rate_factor(rows, columns))
        layer = self.model.layer(int(piece.name.split(".")[1]))
        queries, others = layer.heads * layer.head_size, layer.kv_heads * layer.head_size
        both = rate_factor(queries, columns), rate_factor(others, columns)
        if both[0] == both[1]:
            return RateFactors(both[0])
        marks = {"q": torch.ones(queries, dtype=torch.bool)} | dict.fromkeys(
            "kv", torch.zeros(others, dtype=torch.bool)
        )
        first = piece.place.offset[0]
        own = self._rows(piece.name).together(marks)[first : first + piece.local[0]].to(piece.master.device)
        flat = own[:, None].expand(piece.local).flatten()
        return RateFactors(*both, flat[piece.start : piece.start + piece.master.numel()].clone())

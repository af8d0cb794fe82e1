"""AdamW over the pieces of parameters that this rank updates, with clipping and loss scaling."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from heddle.parallel.pieces import Piece
from heddle.spec.job import Train


class LossScale:
    """Dynamic loss scaling for fp16: halve when a gradient overflows, double after a long quiet stretch."""

    GROWTH_INTERVAL = 2000

    def __init__(self, enabled: bool) -> None:
        self.enabled = enabled
        self.value = 2.0**16 if enabled else 1.0
        self.quiet = 0  # steps since the last overflow or growth

    def update(self, overflow: bool) -> None:
        """Learn from one step."""
        if not self.enabled:
            return
        self.quiet = 0 if overflow else self.quiet + 1
        if overflow:
            self.value = max(1.0, self.value / 2)
        elif self.quiet == self.GROWTH_INTERVAL:
            self.value, self.quiet = self.value * 2, 0


class Optimizer:
    """AdamW in full precision, fused."""

    def __init__(self, pieces: list[Piece], train: Train) -> None:
        self.pieces, self.train = pieces, train
        self.updates = 0  # steps that changed the weights
        self.scale = LossScale(train.precision == "fp16")
        self.adam = torch.optim.AdamW(
            [
                {"params": [p.master for p in pieces if p.decay], "weight_decay": train.weight_decay},
                {"params": [p.master for p in pieces if not p.decay], "weight_decay": 0.0},
            ],
            lr=train.learning_rate,
            betas=(train.beta1, train.beta2),
            eps=train.epsilon,
            fused=True,
        )

    def squared_norm(self) -> Tensor:
        """The square of the norm of the gradients that this rank counts; summed over all ranks it is the whole."""
        gradients = [piece.master.grad for piece in self.pieces if piece.counted and piece.master.grad is not None]
        if not gradients:
            return torch.zeros(())
        norms = torch.stack(torch._foreach_norm(gradients))
        return (norms.double() ** 2).sum()

    def step(self, rate: float, squared_norm: float) -> float:
        """Clip and update, given the square of the norm over all ranks; gives the norm before clipping.

        A norm that is not finite changes no weight: under fp16 the loss scale is lowered, otherwise the caller
        sees the norm and decides.
        """
        norm = math.sqrt(squared_norm) / self.scale.value if math.isfinite(squared_norm) else math.nan
        if math.isfinite(norm):
            factor = 1 / self.scale.value
            if self.train.clip and norm > self.train.clip:
                factor *= self.train.clip / norm
            if factor != 1:
                torch._foreach_mul_([p.master.grad for p in self.pieces if p.master.grad is not None], factor)
            for group in self.adam.param_groups:
                group["lr"] = rate
            self.adam.step()
            self.updates += 1
            for piece in self.pieces:
                if piece.target is not None:
                    piece.target.copy_(piece.master)
        self.scale.update(overflow=not math.isfinite(norm))
        return norm

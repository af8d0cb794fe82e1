"""AdamW over the pieces of parameters that this rank updates, with clipping and loss scaling; Muon for matrices."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor

from heddle.parallel.shards import Piece
from heddle.runtime.device import host_threads
from heddle.spec.job import Train
from heddle.training.step.correction import Mending
from heddle.training.step.eight_bits import EightBitAdamW, blocks_of
from heddle.training.step.muon import Muon

MOMENTS = ("exp_avg", "exp_avg_sq")
CHOICE = ".router.choice_bias"  # whose gradient is the use of experts


def turns_of(pieces: Sequence[Piece], delay_of: Callable[[Piece], int]) -> list[list[Piece]]:
    """Pieces that are updated together: all whose state is on the device, then layer by layer those elsewhere."""
    turns: dict[object, list[Piece]] = {}
    for piece in pieces:
        layer = piece.name.split(".")[:2] if piece.tier is not None else ()
        turns.setdefault((id(piece.tier), *layer, delay_of(piece), by_use(piece)), []).append(piece)
    return list(turns.values()) or [[]]


def by_use(piece: Piece) -> bool:
    """Whether it is a bias that experts are chosen by: it follows their use, not the loss."""
    return piece.name.endswith(CHOICE)


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
    """AdamW in full precision, fused, of all that is not Muon's."""

    def __init__(
        self,
        pieces: list[Piece],
        train: Train,
        delay_of: Callable[[Piece], int] = lambda _piece: 0,
        muon: Muon | None = None,
        balance_rate: float = 0.0,
    ) -> None:
        """`delay_of` says how many steps late a piece's gradients come; `muon` updates matrices, where it is asked.

        `balance_rate`: what biases that experts are chosen by move by.
        """
        self.balance_rate = balance_rate
        self.pieces, self.train, self.muon = pieces, train, muon
        self.updates = 0  # steps that changed the weights
        self.divisor: Tensor | None = None  # of gradients, besides their scale, where it is known only now
        self.scale = LossScale(train.precision == "fp16")
        others = pieces if muon is None else [piece for piece in pieces if piece.name not in muon.pieces]
        self.turns = turns_of(others, delay_of)
        self.mending = Mending(train)
        self.adam = self._made(
            [
                {
                    "params": [p.master for p in turn if p.decay == decay],
                    "weight_decay": train.weight_decay * decay,
                    "share": 0.0 if turn and by_use(turn[0]) else 1.0,  # of the learning rate
                    "delay": delay_of(turn[0]) if turn else 0,
                    "late": 0,  # the same while updates are late
                }
                for turn in self.turns
                for decay in (True, False)
            ],
        )
        self.adam.state.update({} if muon is None else muon.state)  # which a checkpoint finds here
        for piece in pieces:
            if piece.tier is not None:
                self.adam.state[piece.master] = {
                    "step": torch.zeros((), dtype=torch.float32),
                    **{kind: piece.tier.reserve(piece.master.numel()) for kind in MOMENTS},
                }

    def _made(self, groups: list[dict[str, Any]]) -> torch.optim.AdamW:
        train = self.train
        options: dict[str, Any] = {
            "lr": train.learning_rate,
            "betas": (train.beta1, train.beta2),
            "eps": train.epsilon,
            "fused": True,
        }
        if train.optimizer == "adamw8bit":
            return EightBitAdamW(groups, {piece.master: blocks_of(piece) for piece in self.pieces}, **options)
        return torch.optim.AdamW(groups, **options)

    def squared_norm(self) -> Tensor:
        """The square of the norm of the gradients that this rank counts; summed over all ranks it is the whole."""
        counted = [piece for piece in self.pieces if piece.counted and not by_use(piece)]
        gradients = [piece.master.grad for piece in counted if piece.master.grad is not None]
        if not gradients:
            return torch.zeros((), device=self.pieces[0].master.device if self.pieces else None)
        # those of a tier are the host's: one kernel takes those of one memory, and one number goes to the device
        host = [x for x in gradients if x.device.type == "cpu"]
        device = [x for x in gradients if x.device.type != "cpu"]
        sums = [(torch.stack(torch._foreach_norm(some)).double() ** 2).sum() for some in (device, host) if some]
        return sums[0] if len(sums) == 1 else sums[0] + sums[1].to(sums[0].device)

    @torch.no_grad()
    def step(self, rate: float, squared_norm: Tensor) -> Tensor:
        """Clip and update, given the square of the norm over all ranks; returns the norm before clipping.

        A norm that is not finite changes no weight. All of it happens on the device, in the update's own pass over the
        gradients; nobody has waited for a number yet. Who reads the norm tells `settle`.
        """
        norm = squared_norm.double().sqrt() / self.scale.value
        divisor = torch.full_like(norm, self.scale.value)
        if self.divisor is not None:
            divisor *= self.divisor
        if self.train.clip:
            divisor *= (norm / self.train.clip).clamp(min=1)
        scaling, at_home = (divisor.float(), (~norm.isfinite()).float()), None
        for group in self.adam.param_groups:
            group["lr"] = rate * group["share"]
        groups = self.adam.param_groups
        for number, turn in enumerate(self.turns):
            for piece, home in self._homes(self.turns[number + 1] if number + 1 < len(self.turns) else ()):
                piece.tier.expect(home)
            self.adam.param_groups = groups[2 * number : 2 * number + 2]
            away = turn[0].tier if turn else None
            if away is not None and at_home is None:
                # The host's kernel reads them at once. Torch would bring them by a copy that nobody waits for.
                at_home = scaling[0].cpu(), scaling[1].cpu()
            # what torch.amp's gradient scaler would set, and the fused kernel reads
            given = scaling if away is None or at_home is None else at_home
            self.adam.grad_scale, self.adam.found_inf = given  # type: ignore[attr-defined]
            with host_threads(norm.device) if away is not None else nullcontext():
                self.mending.step(self.adam)
                if turn and by_use(turn[0]):
                    self._balance(turn, scaling[1])
                _round(turn)
            for piece, home in self._homes(turn):
                piece.tier.leave(home)
        self.adam.param_groups = groups
        if self.muon is not None:
            self.muon.step(rate, *scaling)
            _round(self.muon.pieces.values())
        return norm

    def _balance(self, turn: Sequence[Piece], skip: Tensor) -> None:
        """Let experts be chosen more that had less than the mean, and the others less (arXiv 2408.15664 §3)."""
        for piece in turn:
            if piece.master.grad is not None:
                by = self.balance_rate * (1 - skip.to(piece.master.device))
                piece.master.sub_(piece.master.grad.sign() * by)

    def leaves_alone(self, norm: float) -> bool:
        """Whether a step with that norm updates as one with a norm of nothing would: finite, and nothing is clipped."""
        return math.isfinite(norm) and not (self.train.clip and norm / self.train.clip > 1)

    def _homes(self, turn: Sequence[Piece]) -> Iterator[tuple[Piece, Tensor]]:
        """What of a turn's state has its home on a tier."""
        for piece in turn:
            if piece.tier is not None:
                yield from ((piece, self.adam.state[piece.master][kind]) for kind in MOMENTS)
                yield piece, piece.master

    def settle(self, norm: float) -> None:
        """Learn what came of a step: under fp16 a norm that is not finite lowers the loss scale; else the caller
        sees it and decides.
        """
        self.updates += math.isfinite(norm)
        self.scale.update(overflow=not math.isfinite(norm))


def _round(pieces: Iterable[Piece]) -> None:
    """Give what computes in less precision the new values of its masters."""
    rounded = []
    for piece in pieces:
        if piece.target is not None and piece.tier is not None:
            piece.tier.give(piece.target, piece.master)
        elif piece.target is not None:
            rounded.append((piece.target, piece.master))
    if rounded:
        targets, masters = zip(*rounded, strict=True)
        torch._foreach_copy_(targets, masters)

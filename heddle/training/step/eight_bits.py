"""AdamW whose moments are kept in eight bits (arXiv 2110.02861): a code for each number, a scale for each 256.

Codes are those of the dynamic map: few values near the largest of a block, and more and more digits towards zero. An
update makes some of the moments anew in full precision, lets the same kernel update them as ever, and keeps codes of
what came out.

Blocks are cut from the whole parameter, in the order of its rows. A rank that holds whole blocks therefore keeps the
very codes that one device would. Where a cut between ranks goes through a block, each part of it has a scale of its
own: then moments, and after some steps losses, differ in their last digits from those of another plan.

The map has -1, which bitsandbytes' has not: what is made of codes gives the same codes again. So a checkpoint, which
holds moments in full precision, brings back what was saved, to the bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import unset_fake_temporarily

from heddle.parallel.shards import Piece
from heddle.spec.rules.optimizer import MOMENT_BLOCK, SMALL

AT_ONCE = 1 << 22  # numbers whose moments exist in full precision at a time
SIGNED = {"exp_avg": True, "exp_avg_sq": False}
EXPONENTS = 7
NEGATIVE = 127  # of the signed values: the next one is zero


@cache
def codebook(signed: bool, device: torch.device) -> Tensor:
    """The 256 values of the dynamic map, sorted."""
    with unset_fake_temporarily():
        values = [0.0, 1.0]
        for exponent in range(EXPONENTS):
            bounds = torch.linspace(0.1, 1, 2 ** (exponent + (0 if signed else 1)) + 1, dtype=torch.float32)
            means = (bounds[:-1] + bounds[1:]) / 2.0
            scaled = (10.0 ** (exponent - EXPONENTS + 1) * means).tolist()
            values += scaled + ([-value for value in scaled] if signed else [])
        values.sort()
        if signed:
            values[0] = -1.0
        return torch.tensor(values, dtype=torch.float32, device=device)


@cache
def _bounds(signed: bool, device: torch.device) -> Tensor:
    with unset_fake_temporarily():
        values = codebook(signed, device)
        return (values[:-1] + values[1:]) / 2


class Blocks:
    """How the numbers of a piece fall into blocks of the whole parameter."""

    def __init__(self, lengths: np.ndarray) -> None:
        self.starts = np.concatenate([[0], np.cumsum(lengths)])
        self.even = bool((lengths == MOMENT_BLOCK).all())
        self.lengths: dict[torch.device, Tensor] = {}  # on the devices that ask: the host would wait in every step

    def __len__(self) -> int:
        return len(self.starts) - 1

    def turns(self) -> Iterator[tuple[slice, slice]]:
        """Blocks that are updated together, and their numbers."""
        step = AT_ONCE // MOMENT_BLOCK
        for first in range(0, len(self), step):
            last = min(first + step, len(self))
            yield slice(first, last), slice(int(self.starts[first]), int(self.starts[last]))

    def places(self, blocks: slice, device: torch.device) -> Tensor:
        """The block of each number, counted from the first of a turn."""
        with unset_fake_temporarily():
            if device not in self.lengths:
                self.lengths[device] = torch.from_numpy(np.diff(self.starts)).to(device)
            some, numbers = self.lengths[device][blocks], int(self.starts[blocks.stop] - self.starts[blocks.start])
            return torch.arange(len(some), device=device).repeat_interleave(some, output_size=numbers)


def blocks_of(piece: Piece) -> Blocks | None:
    """Those of a piece; None where a parameter is so small that its moments stay as they are."""
    shape, local = tuple(piece.place.shape), tuple(piece.local)
    if piece.place.shape.numel() < SMALL:
        return None
    begin, end = piece.start, piece.start + piece.master.numel()
    if local[1:] == shape[1:]:  # rows are whole: all of it follows each other
        starts = np.array([piece.place.offset[0] * int(np.prod(shape[1:])) + begin])
        return Blocks(_lengths(starts, np.array([end - begin])))
    width = local[-1]
    rows = np.arange(begin // width, -(-end // width))
    corner = np.unravel_index(rows, local[:-1])
    places = [np.asarray(at) + offset for at, offset in zip(corner, piece.place.offset, strict=False)]
    first = np.maximum(begin - rows * width, 0)
    last = np.minimum(end - rows * width, width)
    starts = np.ravel_multi_index(places, shape[:-1]) * shape[-1] + piece.place.offset[-1] + first
    return Blocks(_lengths(starts, last - first))


def _lengths(starts: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Runs of numbers of the whole parameter, cut where its blocks begin: the length of each part."""
    apart = np.flatnonzero(np.append(True, starts[1:] != (starts + sizes)[:-1]))  # others go on where one ends
    starts, sizes = starts[apart], np.add.reduceat(sizes, apart)
    counts = -(-(starts + sizes) // MOMENT_BLOCK) - starts // MOMENT_BLOCK
    run = np.repeat(np.arange(len(starts)), counts)
    number = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    low = (starts[run] // MOMENT_BLOCK + number) * MOMENT_BLOCK
    return np.minimum(low + MOMENT_BLOCK, (starts + sizes)[run]) - np.maximum(low, starts[run])


class EightBitAdamW(torch.optim.AdamW):
    """AdamW with moments in codes; those of small parameters stay in full precision."""

    def __init__(self, groups: list[dict[str, Any]], blocks: Mapping[Tensor, Blocks | None], **options: Any) -> None:
        super().__init__(groups, **options)
        self.blocks = blocks

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update everything that has a gradient."""
        assert closure is None
        scaling = {name: getattr(self, name, None) for name in ("grad_scale", "found_inf")}
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    self._update(p, group, scaling)

    def _update(self, p: Tensor, group: dict[str, Any], scaling: dict[str, Tensor | None]) -> None:
        state, blocks = self._begun(p), self.blocks[p]
        state["step"] += 1
        beta1, beta2 = group["betas"]
        whole = slice(0, p.numel())
        assert p.grad is not None
        for some, part in [(whole, whole)] if blocks is None else blocks.turns():
            moments = [
                state[kind] if blocks is None else self._wide(state, kind, blocks, some, part) for kind in SIGNED
            ]
            torch._fused_adamw_(
                [p[part]],
                [p.grad[part]],
                [moments[0]],
                [moments[1]],
                [],
                [state["step"]],
                lr=group["lr"],
                beta1=beta1,
                beta2=beta2,
                weight_decay=group["weight_decay"],
                eps=group["eps"],
                amsgrad=False,
                maximize=False,
                **scaling,
            )
            if blocks is not None:
                for kind, values in zip(SIGNED, moments, strict=True):
                    self._keep(state, kind, values, blocks, some, part)
        if scaling["found_inf"] is not None:
            state["step"] -= scaling["found_inf"]

    def _begun(self, p: Tensor) -> dict[str, Tensor]:
        """A parameter's state, made where there is none yet."""
        state: dict[str, Tensor] = self.state[p]
        if "step" not in state:
            state["step"] = torch.zeros((), dtype=torch.float32, device=p.device)
        blocks = self.blocks[p]
        for kind, signed in SIGNED.items():
            if kind in state:
                continue
            if blocks is None:
                state[kind] = torch.zeros_like(p)
                continue
            nothing = NEGATIVE if signed else 0
            state[kind] = torch.full((p.numel(),), nothing, dtype=torch.uint8, device=p.device)
            state[f"{kind}_scale"] = torch.zeros(len(blocks), device=p.device)
        return state

    def moments(self, p: Tensor) -> dict[str, Tensor]:
        """Both in full precision, in host memory: for a checkpoint."""
        state, blocks, host = self._begun(p), self.blocks[p], torch.device("cpu")
        if blocks is None:
            return {kind: state[kind] for kind in SIGNED}
        kept = {name: values.to(host) for name, values in state.items()}
        made = {kind: torch.empty(p.numel()) for kind in SIGNED}
        for some, part in blocks.turns():
            for kind, values in made.items():
                values[part] = self._wide(kept, kind, blocks, some, part)
        return made

    def take_moments(self, p: Tensor, moments: Mapping[str, Tensor]) -> None:
        """Go on with moments of a checkpoint."""
        state, blocks = self._begun(p), self.blocks[p]
        if blocks is None:
            return  # they were read into their place
        for some, part in blocks.turns():
            for kind, values in moments.items():
                self._keep(state, kind, values[part].to(p.device), blocks, some, part)

    @staticmethod
    def _wide(state: Mapping[str, Tensor], kind: str, blocks: Blocks, some: slice, part: slice) -> Tensor:
        codes, scales = state[kind][part], state[f"{kind}_scale"][some]
        shares = codebook(SIGNED[kind], codes.device)[codes.int()]
        if blocks.even:
            return (shares.view(-1, MOMENT_BLOCK) * scales[:, None]).view(-1)
        return shares * scales[blocks.places(some, codes.device)]

    @staticmethod
    def _keep(state: Mapping[str, Tensor], kind: str, values: Tensor, blocks: Blocks, some: slice, part: slice) -> None:
        scales = state[f"{kind}_scale"][some]
        if blocks.even:
            torch.amax(values.view(-1, MOMENT_BLOCK).abs(), dim=1, out=scales)
            shares = (values.view(-1, MOMENT_BLOCK) / scales.clamp(min=1e-38)[:, None]).view(-1)
        else:
            places = blocks.places(some, values.device)
            scales.zero_().scatter_reduce_(0, places, values.abs(), "amax")
            shares = values / scales.clamp(min=1e-38)[places]
        state[kind][part] = torch.bucketize(shares, _bounds(SIGNED[kind], values.device), out_int32=True)

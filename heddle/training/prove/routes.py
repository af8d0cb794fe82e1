"""Which experts every token of a step went to, and how nearly it would have gone elsewhere.

Two runs that round differently may choose differently where two experts are almost as probable. That is no mistake, but
from there on everything differs: a proof has to know.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from heddle.models.experts import ExpertMLP, Router
from heddle.parallel.mesh import Mesh
from heddle.runtime.recorder import NoRecorder
from heddle.training.prove.collect import Array
from heddle.training.step.trainer import Trainer


class LayerRoutes(NamedTuple):
    """Of some tokens of a step in one layer."""

    tokens: Array  # their numbers: sample × sequence + position
    chosen: Array  # [tokens, top_k], in ascending order
    margins: Array  # how much more probable the last chosen expert was than the first that was not, relative to it
    experts: int = 0  # that they could choose from; 0: as many as the last that was chosen says


Routes = Mapping[int, LayerRoutes]  # by layer


@dataclass(frozen=True)
class RouteComparison:
    """Whether two runs chose the same experts in their first step."""

    choices: int  # that were compared: tokens × layers
    smallest: float  # margin of all
    flips: tuple[float, ...]  # margins where they did not
    uneven: float  # tokens of the most used expert of a layer over their mean

    @property
    def words(self) -> str:
        """In one line."""
        same = "the same experts" if not self.flips else f"other experts for {len(self.flips)}"
        least = f"; the margins there are up to {max(self.flips):.1e}" if self.flips else ""
        return (
            f"experts of {self.choices:,} choices, step 1: {same}{least}; the smallest margin of all is "
            f"{self.smallest:.1e}, the most used expert has {self.uneven:.2f} times the mean"
        )


class RouteRecorder(NoRecorder):
    """Notes what routers choose in a trainer's first step."""

    def __init__(self) -> None:
        self.found: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}  # by layer and microbatch
        self.microbatch = 0

    @contextmanager
    def span(self, _lane: str, _name: str, _chunk: int = -1, microbatch: int = -1, _size: int = 0) -> Iterator[None]:
        """What is at work, so that tokens can be told apart."""
        self.microbatch = microbatch
        yield

    def watch(self, trainer: Trainer) -> list[Any]:
        """Hooks to remove when enough was seen; none for a model without experts."""
        if not trainer.job.model.experts:
            return []
        layers = [item for chunk in trainer.parallel.chunks.values() for item in chunk.layers.items()]
        found = [(int(index), layer.mlp.router) for index, layer in layers if isinstance(layer.mlp, ExpertMLP)]
        return [router.register_forward_hook(partial(self._note, index)) for index, router in found]

    def _note(self, layer: int, router: Router, inputs: tuple[Any, ...], outputs: tuple[Tensor, Tensor]) -> None:
        x, chosen = inputs[0].detach(), outputs[1]
        with torch.no_grad():
            wide = torch.promote_types(x.dtype, torch.float32)
            probabilities = router.probabilities(router.scores(x.to(wide)))
            margins = _margins(router.ranked(probabilities), router.top_k)
            if router.groups:
                groups = router.of_groups(router.biased(probabilities))
                margins = torch.minimum(margins, _margins(groups, router.top_groups))
        self.found[layer, self.microbatch] = chosen.sort(dim=-1).values.cpu(), margins.cpu()

    def routes(self, trainer: Trainer) -> Routes:
        """Of this rank, with the tokens' numbers in the global batch."""
        plan, sequence = trainer.plan, trainer.job.sequence
        parts: dict[int, list[LayerRoutes]] = {}
        for (layer, microbatch), (chosen, margins) in sorted(self.found.items(), key=lambda each: each[0]):
            first = trainer.feed.own.start + microbatch * plan.microbatch
            numbers = torch.arange(first * sequence, (first + plan.microbatch) * sequence).view(-1, sequence)
            tokens = trainer.feed.held.cut(numbers)
            if plan.whole_experts:  # each tensor rank routes its own
                tokens = tokens.chunk(plan.tensor)[trainer.mesh.tensor.rank]
            experts = trainer.job.model.layer(layer).experts
            parts.setdefault(layer, []).append(LayerRoutes(tokens.numpy(), chosen.numpy(), margins.numpy(), experts))
        return {layer: _joined(some) for layer, some in parts.items()}


def _margins(ranked: Tensor, chosen: int) -> Tensor:
    """How much more the last chosen one has than the first that is not, relative to it."""
    ranked = ranked.sort(dim=-1, descending=True).values
    if chosen >= ranked.shape[1]:
        return torch.ones_like(ranked[:, 0])
    last, first = ranked[:, chosen - 1], ranked[:, chosen]
    margins: Tensor = (last - first) / last.abs()
    return margins.nan_to_num(1.0, 1.0, 1.0)  # nothing is left where all others are in other groups


def _joined(parts: Iterable[LayerRoutes]) -> LayerRoutes:
    tokens, chosen, margins, experts = zip(*parts, strict=True)
    return LayerRoutes(np.concatenate(tokens), np.concatenate(chosen), np.concatenate(margins), max(experts))


def gather_routes(own: Routes, mesh: Mesh) -> Routes:
    """On the first rank, those of all ranks; what several hold occurs several times. All ranks call it."""
    if mesh.world.size == 1:
        return own
    every: list[Any] | None = [None for _ in mesh.world.ranks] if mesh.world.rank == 0 else None
    dist.gather_object(own, every, dst=mesh.world.ranks[0], group=mesh.host.group)
    layers = sorted({layer for each in every or () for layer in each})
    return {layer: _joined([each[layer] for each in every or () if layer in each]) for layer in layers}


def compare_routes(parallel: Routes, serial: Routes) -> RouteComparison | None:
    """Lay the choices of a parallel run beside those of a serial one; None where there are none."""
    flips, margins, uneven, choices = [np.zeros(0)], [np.ones(1)], 1.0, 0
    for layer, whole in serial.items():
        place = np.empty(int(whole.tokens.max()) + 1, dtype=np.int64)
        place[whole.tokens] = np.arange(len(whole.tokens))
        mine = parallel[layer]
        at = place[mine.tokens]
        differ = (whole.chosen[at] != mine.chosen).any(axis=1)
        flips.append(np.unique(whole.margins[at][differ]))
        margins.append(whole.margins)
        used = np.unique(whole.chosen, return_counts=True)[1]
        experts = whole.experts or int(whole.chosen.max()) + 1
        uneven = max(uneven, float(used.max() * experts / used.sum()))
        choices += len(whole.tokens)
    if not choices:
        return None
    every = np.concatenate(flips)
    return RouteComparison(choices, float(np.concatenate(margins).min()), tuple(map(float, every)), uneven)

"""What one layer does to need less memory: recompute, shard over the replicas, or keep things on another tier.

A plan says it once for all layers, and in runs for those that differ: `{ layers = "0-5", recompute = "full" }`. The
embedding and the output layer follow the plan's own words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import groupby
from typing import Literal, NamedTuple

from heddle.errors import HeddleError, nearest

# nothing; the attention core; all but products and attention; everything
Recompute = Literal["none", "selective", "elementwise", "full"]
Zero = Literal[0, 1, 2, 3]

# what of a layer may leave the device, and what stays on it then
OFFLOADED = {
    "input": "the layer's input, which is all that full recomputation keeps",
    "activations": "all that the backward pass needs of the forward pass",
    "weights": "the weights, which are fetched whenever the layer computes",
    "optimizer": "the optimizer state, which is updated where it is stored",
}
TIERS = ("host", "disk")
OFFLOAD_WORDS = {"words": tuple(f"{kind}:{tier}" for kind in OFFLOADED for tier in TIERS)}  # of a field


class LayerMemory(NamedTuple):
    """The strategy of one layer, all words resolved."""

    recompute: Recompute = "none"
    zero: Zero = 0
    offload: tuple[str, ...] = ()

    def tier(self, kind: str) -> str | None:
        """Where that kind of memory goes; None: it stays on the device."""
        return _tiers(self.offload).get(kind)


@cache
def _tiers(offload: tuple[str, ...]) -> dict[str, str]:
    """The tier of each kind of memory that leaves; asked for millions of times in a search."""
    return {kind: tier for kind, _, tier in (word.partition(":") for word in offload)}


@dataclass(frozen=True, kw_only=True)
class LayerRun:
    """Layers that follow each other and do the same; what is left out is as the plan says for all."""

    layers: str  # "7", or "0-5" with both ends
    recompute: Recompute | None = None
    zero: Zero | None = None
    # "input", "activations", "weights" and "optimizer", each with its tier: "optimizer:disk"
    offload: tuple[str, ...] | None = field(default=None, metadata=OFFLOAD_WORDS)

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[0-9]{1,5}(-[0-9]{1,5})?", self.layers) or not self.numbers:
            raise HeddleError(
                f"plan.layers names the layers {self.layers!r}.",
                "A range is one layer, or the first and the last of several, counting from 0.",
                'For example layers = "0-5".',
            )
        check_offload(self.offload or (), "plan.layers.offload")

    @property
    def numbers(self) -> range:
        """The layers, counted over the whole model."""
        first, _, last = self.layers.partition("-")
        return range(int(first), int(last or first) + 1)


def check_offload(words: Sequence[str], where: str) -> None:
    """Every word is a kind of memory and a tier, and no kind goes to two."""
    known = OFFLOAD_WORDS["words"]
    for word in words:
        if word not in known:
            raise HeddleError(
                f"{where} = {word!r} is not known.",
                f"It is one of {', '.join(OFFLOADED)}, a colon, and a tier: {' or '.join(TIERS)}.",
                nearest(word, known),
            )
    kinds = [word.partition(":")[0] for word in words]
    for kind in kinds:
        if kinds.count(kind) > 1:
            raise HeddleError(
                f"{where} names {kind} {kinds.count(kind)} times.",
                "Each kind can be offloaded to one tier only.",
                f'Use "{kind}:host" or "{kind}:disk".',
            )


def check_strategy(memory: LayerMemory, replicas: int, layer: int | None) -> None:
    """Refuse what does not go together in one layer; None: what the plan says for all."""
    who = "The plan" if layer is None else f"Layer {layer}"
    if memory.tier("input") and memory.recompute != "full":
        raise HeddleError(
            f'{who} offloads its input but has recompute = "{memory.recompute}".',
            "Only full recomputation keeps nothing but the input.",
            f'Use recompute = "full", or offload "activations:{memory.tier("input")}".',
        )
    if memory.tier("activations") and memory.recompute == "full":
        raise HeddleError(
            f'{who} offloads its activations but has recompute = "full".',
            "Full recomputation keeps nothing but the input.",
            f'Offload "input:{memory.tier("activations")}", or use recompute = "none".',
        )
    if memory.tier("weights") and not memory.tier("optimizer"):
        raise HeddleError(
            f"{who} offloads its weights but keeps the optimizer state on the device.",
            "Weights are updated where they are stored, together with the state.",
            f'Offload "optimizer:{memory.tier("weights")}" as well.',
        )
    if memory.tier("weights") and replicas > 1 and memory.zero != 3:
        raise HeddleError(
            f"{who} offloads its weights and has zero = {memory.zero}, with {replicas} replicas.",
            "Offloaded weights must be sharded as well: each replica fetches only its share.",
            "Use zero = 3, or leave the weights on the device.",
        )


def check_runs(runs: Sequence[LayerRun]) -> None:
    """Runs follow each other, so that a layer is in one of them at most."""
    at = 0
    for run in runs:
        if run.numbers.start < at:
            raise HeddleError(
                f"plan.layers has the range {run.layers!r} after layer {at - 1}.",
                "Ranges follow the order of the model, and a layer is in at most one of them.",
                f"Start it at layer {at}, or move it up.",
            )
        at = run.numbers.stop


def runs_of(layers: Iterable[LayerMemory], usual: LayerMemory) -> tuple[LayerRun, ...]:
    """The shortest runs that say what each layer does, where it differs from what the plan says for all."""
    runs = []
    for memory, group in groupby(enumerate(layers), key=lambda pair: pair[1]):
        numbers = [number for number, _ in group]
        if memory == usual:
            continue
        runs.append(
            LayerRun(
                layers=str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]}-{numbers[-1]}",
                recompute=None if memory.recompute == usual.recompute else memory.recompute,
                zero=None if memory.zero == usual.zero else memory.zero,
                offload=None if memory.offload == usual.offload else memory.offload,
            )
        )
    return tuple(runs)

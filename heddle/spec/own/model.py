"""A model that is code, in numbers: what was found in the module that a Python file of the user's gives."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from math import gcd
from pathlib import Path
from typing import Annotated, Any

from heddle.errors import divisors
from heddle.spec.model import LayerSpec, ModelSpec
from heddle.spec.ranges import Count, Range
from heddle.spec.tables import WHERE_SAID

Large = Annotated[int, Range("[0, 1e24]")]


@dataclass(frozen=True, kw_only=True)
class OwnModel(ModelSpec):
    """What plans, costs and checkpoints must know of a module: its blocks are the layers."""

    module: str  # FILE:FUNCTION that makes it
    blocks: str = field(default="", metadata=WHERE_SAID)  # what their names begin with; empty: the module is one block
    source: str = field(default="", metadata=WHERE_SAID)  # of the file: a run that goes on has the same
    small: bool = field(default=False, metadata=WHERE_SAID)  # as the function makes it for a proof
    block_parameters: tuple[Large, ...] = field(default=(), metadata=WHERE_SAID)
    block_flops: tuple[Large, ...] = field(default=(), metadata=WHERE_SAID)  # forward, of one sample
    block_saved: tuple[Large, ...] = field(default=(), metadata=WHERE_SAID)  # bytes that one sample leaves in fp32
    first_parameters: Large = field(default=0, metadata=WHERE_SAID)  # used before the first block
    last_parameters: Large = field(default=0, metadata=WHERE_SAID)  # behind the last one, and not before
    end_flops: Large = field(default=0, metadata=WHERE_SAID)  # forward, of one sample, outside the blocks
    split: Count = field(default=1, metadata=WHERE_SAID)  # tensor ranks divide this; 1: there are no patterns
    bypass: str = field(default="", metadata=WHERE_SAID)  # a block past which more goes than through it

    @property
    def own(self) -> bool:
        """Whether the model is code."""
        return True

    @property
    def file(self) -> Path:
        """Whose code it is."""
        return Path(self.module.rpartition(":")[0])

    def unit_of(self, name: str) -> str:
        """The number of the block that a parameter is of; "outside" of all blocks."""
        first, found, rest = name.partition(f"{self.blocks}.")
        return rest.partition(".")[0] if self.blocks and found and not first else "outside"

    @property
    def most_stages(self) -> int:
        """A module is cut between its blocks, where nothing else goes past them."""
        return 1 if self.bypass else self.layers

    @property
    def tensor_degrees(self) -> list[int]:
        """The degrees that divide everything that patterns split."""
        return divisors(self.split)

    @cached_property
    def _shapes(self) -> tuple[tuple[LayerSpec, ...], tuple[int, ...]]:
        pairs = list(zip(self.block_parameters, self.block_flops, self.block_saved, strict=True))
        kinds = list(dict.fromkeys(pairs))
        values = {each: getattr(self, each) for each in _USUAL}
        return tuple(OwnBlock.made(self, *kind, values) for kind in kinds), tuple(map(kinds.index, pairs))

    @property
    def embedding_parameters(self) -> int:
        """What is used before the first block."""
        return self.first_parameters

    @property
    def head_parameters(self) -> int:
        """What is used only behind the last one."""
        return self.last_parameters

    def flops(self, samples: int, sequence: int | None = None, recompute: bool = False, causal: bool = False) -> float:  # noqa: ARG002
        """Of one training step: what the captured forward has, three times; blocks once more where recomputed."""
        share = (sequence or self.sequence) / self.sequence
        return float(samples) * share * ((4 if recompute else 3) * sum(self.block_flops) + 3 * self.end_flops)


_USUAL = ("name", "hidden", "vocab", "sequence", "tied", "dropout")


@dataclass(frozen=True, kw_only=True)
class OwnBlock(LayerSpec):
    """One block, priced as the layer of a transformer of its width that has as many products."""

    parameters_in: Large = 0
    flops_in: Large = 0
    saved_in: Large = 0

    @staticmethod
    def made(model: OwnModel, parameters: int, flops: int, saved: int, values: dict[str, Any]) -> OwnBlock:
        """The block with so many parameters and FLOPs."""
        hidden, sequence = model.hidden, model.sequence
        attention = 2 * sequence * 4 * hidden * hidden + 4 * sequence * sequence * hidden
        width = max(1, round((flops - attention) / (4 * sequence * hidden)))
        ffn = model.split * max(1, round(width / model.split))
        shape: dict[str, Any] = {name: getattr(model, name) for name in ("heads", "kv_heads", "head_size")}
        return OwnBlock(**values, **shape, layers=1, ffn=ffn, parameters_in=parameters, flops_in=flops, saved_in=saved)

    @property
    def layer_parameters(self) -> int:
        """As counted."""
        return self.parameters_in

    @property
    def captured_bytes(self) -> float:
        """As captured."""
        return self.saved_in / self.sequence

    def forward_flops(self, sequence: int, causal: bool = False) -> int:  # noqa: ARG002
        """As captured."""
        return round(self.flops_in * sequence / self.sequence)


def common_divisor(sizes: list[int]) -> int:
    """What every tensor degree divides."""
    return gcd(*sizes) if sizes else 1

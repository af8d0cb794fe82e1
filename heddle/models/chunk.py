"""What all chunks of a model have in common, whoever wrote it: what parallelism is applied to."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import NamedTuple

from torch import nn


class ChunkPart(NamedTuple):
    """What a chunk uses at one time: a layer, or what comes before or behind all layers."""

    name: str  # as `ModelSpec.unit_of` says of its parameters
    first: nn.Module  # before which its weights are needed
    last: nn.Module  # behind which they are not
    backward: bool  # whether the backward pass needs them again
    parameters: list[nn.Parameter]


class Chunk(nn.Module):
    """Some layers of a model, with its beginning or its end or neither."""

    layers: nn.ModuleDict | dict[str, nn.Module]  # by their numbers in the whole model

    @abstractmethod
    def named_weights(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Its parameters by their names in the whole model, each once."""

    @abstractmethod
    def parts(self) -> list[ChunkPart]:
        """In the order in which they are used."""

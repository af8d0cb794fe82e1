"""What all chunks of a model have in common, whoever wrote it: what parallelism is applied to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple, Protocol

from torch import Tensor, nn


class Part(NamedTuple):
    """What a chunk uses at one time: a layer, or what comes before or behind all layers."""

    name: str  # as `ModelSpec.unit_of` says of its parameters
    first: nn.Module  # before which its weights are needed
    last: nn.Module  # behind which they are not
    backward: bool  # whether the backward pass needs them again
    parameters: list[nn.Parameter]


class Chunk(Protocol):
    """Some layers of a model, with its beginning or its end or neither."""

    @property
    def layers(self) -> Mapping[str, nn.Module]:
        """By their numbers in the whole model."""
        ...

    def named_weights(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Its parameters by their names in the whole model, each once."""
        ...

    def parts(self) -> list[Part]:
        """In the order in which they are used."""
        ...

    def __call__(self, x: Tensor, batch: object) -> Tensor: ...

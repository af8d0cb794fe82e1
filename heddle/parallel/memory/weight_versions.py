"""Old weights, kept for as long as a microbatch is under way that met them.

A parameter's memory is where the optimizer writes. Before it does, the numbers that somebody still needs are copied
aside. A microbatch comes back at the weights it went out with: the parameter is pointed at them, and autograd, which
remembers the parameter and not its memory, finds what it saw.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn


class WeightVersions:
    """The versions of some parameters, numbered by how many updates they have seen."""

    def __init__(self, parameters: Iterable[nn.Parameter]) -> None:
        self.parameters = list(parameters)
        self.newest = 0
        self.home = [parameter.data for parameter in self.parameters]
        self.kept: dict[int, list[Tensor]] = {}
        self.free: list[list[Tensor]] = []  # memory of versions that nobody needs any more

    @property
    def copies(self) -> int:
        """How many versions lie beside the newest, memory that will be used again included."""
        return len(self.kept) + len(self.free)

    def use(self, version: int) -> None:
        """Point the parameters at a version."""
        memory = self.home if version >= self.newest else self.kept[version]
        for parameter, values in zip(self.parameters, memory, strict=True):
            parameter.data = values

    @torch.no_grad()
    def before_update(self, oldest: int) -> None:
        """The newest version is about to change; `oldest` is the oldest that is still needed."""
        for version in [version for version in self.kept if version < oldest]:
            self.free.append(self.kept.pop(version))
        if oldest <= self.newest:
            copy = self.free.pop() if self.free else [torch.empty_like(values) for values in self.home]
            torch._foreach_copy_(copy, self.home)
            self.kept[self.newest] = copy
        self.newest += 1
        self.use(self.newest)

    def forget(self) -> None:
        """Nothing is under way: only the newest is needed, and is the first of a new count."""
        self.free += self.kept.values()
        self.kept.clear()
        self.newest = 0
        self.use(0)

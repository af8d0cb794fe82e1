"""Old weights, kept for as long as a microbatch is under way that met them.

The optimizer writes where a parameter's memory has always been. What computes uses copies, one for each version, which
never change: autograd remembers views into the very memory that a forward read. A microbatch comes back at the weights
it went out with because the parameter is pointed at them again.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn


class WeightVersions:
    """The versions of some parameters, numbered by how many updates they have seen."""

    def __init__(self, parameters: Iterable[nn.Parameter]) -> None:
        self.parameters = list(parameters)
        self.home = [parameter.data for parameter in self.parameters]  # where updates are written
        self.newest = 0
        self.kept: dict[int, list[Tensor]] = {}
        self.free: list[list[Tensor]] = []  # memory of versions that nobody needs any more

    def use(self, version: int) -> None:
        """Point the parameters at a version."""
        if version not in self.kept:
            assert version == self.newest, f"version {version} of the weights is gone; the newest is {self.newest}"
            self.kept[version] = self._copied()
        self._point(self.kept[version])

    def use_newest(self) -> None:
        """Point the parameters at what updates are written to, for work that ends before the next one."""
        self._point(self.home)

    def before_update(self, oldest: int) -> None:
        """The newest version is about to be overwritten; `oldest` is the oldest that is still needed."""
        for version in [version for version in self.kept if version < oldest]:
            self.free.append(self.kept.pop(version))
        if self.newest >= oldest and self.newest not in self.kept:
            self.kept[self.newest] = self._copied()
        self.newest += 1

    def forget(self) -> None:
        """Nothing is under way: everybody sees what is written, and counting begins anew."""
        self.free += self.kept.values()
        self.kept.clear()
        self.newest = 0
        self.use_newest()

    @torch.no_grad()
    def _copied(self) -> list[Tensor]:
        copy = self.free.pop() if self.free else [torch.empty_like(values) for values in self.home]
        torch._foreach_copy_(copy, self.home)
        return copy

    def _point(self, memory: list[Tensor]) -> None:
        for parameter, values in zip(self.parameters, memory, strict=True):
            parameter.data = values

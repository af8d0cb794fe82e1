"""The tiers of one process."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from heddle.runtime.tiers.disk import Disk
from heddle.runtime.tiers.host import Host
from heddle.runtime.tiers.tier import Tier


class Tiers:
    """The tiers by name, each made when it is first asked for."""

    def __init__(self, folder: Path | str | None = None) -> None:
        """`folder` is where files lie on disk; by default where temporary files do."""
        self.kinds: dict[str, Callable[[], Tier]] = {"host": Host, "disk": partial(Disk, folder)}
        self.made: dict[str, Tier] = {}

    def __call__(self, name: str) -> Tier:
        if name not in self.made:
            self.made[name] = self.kinds[name]()
        return self.made[name]

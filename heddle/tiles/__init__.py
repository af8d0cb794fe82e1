"""A captured network on CPU cores, tile by tile and without barriers: `heddle.tiles.compile`."""

from heddle.tiles.compiled import Compiled, compile  # noqa: A004 - as torch.compile
from heddle.tiles.group import Group

__all__ = ["Compiled", "Group", "compile"]

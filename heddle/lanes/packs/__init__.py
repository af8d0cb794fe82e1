"""Everything that could be made in a region: the graph of items and productions, and how it is thought of."""

from heddle.lanes.packs.build import build
from heddle.lanes.packs.graph import Graph, Item, Need, Production

__all__ = ["Graph", "Item", "Need", "Production", "build"]

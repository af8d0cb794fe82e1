"""Loads of an earlier block whose memory still holds: side by side, they are loaded again as one vector.

Compilers move what a loop does not change out of it one by one; to put that together again costs more than to load it.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

from heddle.lanes.dependence.addresses import Address, Addresses
from heddle.lanes.ir import MEMORY_BYTES, BasicBlock, Statement


@dataclass(frozen=True)
class Standing:
    """Loads by the value they made, with their addresses."""

    loads: dict[str, tuple[Statement, Address]] = field(default_factory=dict)

    def together(self, lanes: Sequence[str]) -> Statement | None:
        """The first of some loads that lie one behind the other, if these values do."""
        first = self.loads.get(lanes[0])
        if first is None or len(lanes) < 2:
            return None
        found = [self.loads.get(v) for v in lanes]
        size = MEMORY_BYTES.get(first[0].type, 0)
        for one, two in itertools.pairwise(found):
            if one is None or two is None or two[0].type != one[0].type or two[1].line != one[1].line:
                return None
            if two[1].offset - one[1].offset != size:
                return None
        return first[0]


def standing(block: BasicBlock, addresses: Addresses) -> Standing:
    """The loads of a block that nothing after them in it may overwrite."""
    if not block.statements[-1].text.startswith(("br ", "switch ")):
        return Standing()  # a call that may throw ends it, and may write anything
    loads: dict[str, tuple[Statement, Address]] = {}
    for s in block.statements[:-1]:
        if s.op == "load" and s.name:
            loads[s.name] = s, addresses.address(s.pointer)
        elif s.op == "store":
            loads = {v: (one, at) for v, (one, at) in loads.items() if not addresses.may_alias(one, s)}
        elif not s.pure and s.op != "phi":
            loads = {}
    return Standing(loads)

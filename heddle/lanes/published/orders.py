"""In which order the lanes of each pack lie: the published dynamic program.

    cost(v, p) = Σ over operands u of v: min over orders q of u [cost(u, q) + shuffle if q is not what p asks for]

Loads and stores have one order, that of their addresses. Exact where every pack is read by one other; where several
read it, the first of them decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations

from heddle.lanes.cost import Table
from heddle.lanes.dependence import Region
from heddle.lanes.published.units import Lanes, Unit, operand_type

ALL = 4  # lanes up to which all orders are tried; wider packs take theirs from what they read and who reads them
MOST = 24  # orders of a pack

Order = tuple[int, ...]  # lane → which member


class LaneOrders:
    """The orders of some packs, no two of which share a statement."""

    def __init__(self, region: Region, table: Table, packs: Sequence[Unit]) -> None:
        self.region, self.table, self.packs = region, table, list(packs)
        made = {frozenset(self._name(m) for m in pack.members): n for n, pack in enumerate(self.packs)}
        # For each operand of a pack, the pack that makes it.
        self.reads = [[made.get(frozenset(c)) if len({*c}) == len(c) else None for c in p.columns] for p in self.packs]
        self.known: dict[tuple[int, Order], int] = {}
        self.orders = self._possible()

    def _name(self, member: int) -> str:
        return self.region.statements[member].name or f"store {member}"

    def lanes(self, pack: int, order: Order) -> Lanes:
        return tuple(self._name(self.packs[pack].members[k]) for k in order)

    def _possible(self) -> list[list[Order]]:
        found: list[dict[Order, None]] = []
        for pack in self.packs:
            width = len(pack.members)
            here = tuple(range(width))
            free = width <= ALL and not self.region.statements[pack.members[0]].memory
            found.append(dict.fromkeys(permutations(here) if free else [here]))
        wide = [n for n, p in enumerate(self.packs) if len(p.members) > ALL]
        for turn in (wide, wide[::-1]):  # once in each direction is enough for most: statements are in order
            for n in turn:
                for column, child in zip(self.packs[n].columns, self.reads[n], strict=True):
                    if child is not None:
                        self._inherit(found, n, column, child)
        return [list(orders)[:MOST] for orders in found]

    def _inherit(self, found: list[dict[Order, None]], n: int, column: Lanes, child: int) -> None:
        """Orders of a pack in which what it reads need not be shuffled, and the other way round."""
        if not self.region.statements[self.packs[n].members[0]].memory:
            for q in list(found[child]):
                found[n].setdefault(tuple(column.index(v) for v in self.lanes(child, q)))
        if not self.region.statements[self.packs[child].members[0]].memory:
            names = self.lanes(child, tuple(range(len(column))))
            for p in list(found[n]):
                found[child].setdefault(tuple(names.index(column[k]) for k in p))

    def cost(self, pack: int, order: Order) -> int:
        """Of the shuffles above a pack that lies in an order."""
        if (pack, order) not in self.known:
            self.known[pack, order] = sum(
                self._operand(pack, k, order)[0] for k, child in enumerate(self.reads[pack]) if child is not None
            )
        return self.known[pack, order]

    def _operand(self, pack: int, k: int, order: Order) -> tuple[int, Order]:
        """The cheapest order of an operand for a pack that lies in an order, and what that costs."""
        child = self.reads[pack][k]
        assert child is not None
        wanted = tuple(self.packs[pack].columns[k][lane] for lane in order)
        return min((self.cost(child, q) + self.shuffle(pack, k, child, q, wanted), q) for q in self.orders[child])

    def shuffle(self, pack: int, k: int, child: int, order: Order, wanted: Lanes) -> int:
        has = self.lanes(child, order)
        if has == wanted:
            return 0
        kind = operand_type(self.region.statements[self.packs[pack].members[0]], k)
        return self.table.shuffle(kind, len(has), [has.index(v) for v in wanted])

    def best(self) -> list[tuple[int, ...]]:
        """The packs in their orders, as statements by lane."""
        read = {child for children in self.reads for child in children if child is not None}
        decided: dict[int, Order] = {}
        stack = [
            (n, min((self.cost(n, p), p) for p in self.orders[n])[1]) for n in range(len(self.packs)) if n not in read
        ]
        while stack:
            n, order = stack.pop()
            if n in decided:
                continue
            decided[n] = order
            stack += [
                (child, self._operand(n, k, order)[1]) for k, child in enumerate(self.reads[n]) if child is not None
            ]
        return [tuple(pack.members[k] for k in decided[n]) for n, pack in enumerate(self.packs)]

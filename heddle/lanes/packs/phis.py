"""Values that go round a loop of one block, or out of it, as lanes of a vector: nothing is taken apart in the loop."""

from __future__ import annotations

from heddle.lanes.packs.builder import Builder
from heddle.lanes.packs.graph import Item, Need, Production
from heddle.lanes.packs.reductions import in_order


def carries(w: Builder) -> None:
    """Every phi as it is: a scalar that needs a scalar."""
    for name, phi in w.region.carried.items():
        w.add(Production("carry", w.scalar(name)[0], 0, w.needs([phi.following])))


def phis(w: Builder) -> list[tuple[str, ...]]:
    """Phis whose next values are made alike, side by side: as they stand, and in the order of what they load."""
    alike: dict[tuple[str, int | None], list[str]] = {}
    for name, phi in w.region.carried.items():
        i = w.region.position.get(phi.following)
        kind = w.region.function.types[name]
        alike.setdefault((kind, None if i is None else w.signature[i]), []).append(name)
    found: dict[tuple[str, ...], None] = {}
    for (kind, _), names in alike.items():
        following = {w.region.carried[name].following: name for name in names}
        for order in (names, [following[v] for v in in_order(w, list(following))]):
            found |= dict.fromkeys(w.windows(order, kind))
    return list(found)


def phi(w: Builder, n: int, item: Item) -> None:
    """Phis as one: it needs the vector of what they are in the next turn."""
    following = w.vector([w.region.carried[v].following for v in item.lanes], item.type)
    if following is not None:
        before = w.build(item.type, [w.region.carried[v].first for v in item.lanes])
        # Done once, it counts half of what is done in every turn: enough not to be done for nothing.
        w.add(Production("phi", n, (before + 1) // 2, (Need((following,)),), operands=(following,)))


def leave(w: Builder) -> None:
    """What is read only behind the loop: a scalar, or taken out of a vector there."""
    for value in sorted(w.region.leaving):
        item = w.item(Item(w.region.function.types[value], (f"%!leaving {value}",)))
        w.graph.required.append(item)
        w.graph.leaving[item] = value
        w.add(Production("leave", item, 0, w.needs([value])))
        for n in [n for scalar in w.scalar(value) for n in w.graph.makers[scalar]]:
            p = w.graph.productions[n]
            if p.kind == "extract":
                w.add(p._replace(kind="extract behind", gives=item, cost=p.cost // 2))

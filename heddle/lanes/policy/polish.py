"""A choice made cheaper by exchanging single productions, where all that the other one needs is there anyway."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from heddle.lanes.policy.rollout import Demands

PASSES = 3


def kept(demands: Demands, chosen: Iterable[int]) -> list[int] | None:
    """The chosen productions that something asks for, from the stores upwards; none if something lacks."""
    has = set(chosen)
    writes, meets, asks, ways = demands.writes, demands.meets, demands.asks, demands.ways
    keep: set[int] = set()
    met: set[int] = set()
    stack = [n for n in has if writes[n]]
    asked = list(demands.required)
    while stack or asked:
        if stack:
            n = stack.pop()
            if n not in keep:
                keep.add(n)
                met.update(meets[n])
                asked += asks[n]
            continue
        need = asked.pop()
        if need not in met:
            for n in ways[need]:
                if n in has:
                    stack.append(n)
                    break
            else:
                return None
    return sorted(keep)


def polished(demands: Demands, chosen: list[int]) -> list[int]:
    """Exchange while that helps, a few times over all."""
    graph = demands.graph
    costs = demands.costs
    best, price = chosen, sum(costs[n] for n in chosen)
    for _ in range(PASSES):
        before = price
        has, worth = set(best), _worth(demands, best, costs)
        for n in list(best):
            gives = graph.productions[n].gives
            if gives < 0 or n not in has or len(graph.makers[gives]) < 2 or not (most := worth(n)):
                continue
            has.discard(n)
            for m in graph.makers[gives]:
                if m == n or costs[m] >= most:
                    continue
                if any(has.isdisjoint(demands.ways[need]) for need in demands.asks[m]):
                    continue
                other = kept(demands, [*has, m])
                total = price if other is None else sum(costs[k] for k in other)
                if other is not None and total < price:
                    best, price = other, total
                    has, worth = set(best), _worth(demands, best, costs)
                    break
            else:
                has.add(n)
        if price == before:
            break
    return best


def _worth(demands: Demands, best: list[int], costs: list[int]) -> Callable[[int], int]:
    """What would go with each production: itself, and what nobody else reads, all the way up. Never too little."""
    has = set(best)
    readers: dict[int, int] = dict.fromkeys(best, 0)
    sources: dict[int, list[int]] = {}
    for n in best:
        sources[n] = mine = [k for need in demands.asks[n] for k in demands.ways[need] if k in has]
        for k in mine:
            readers[k] += 1
    found: dict[int, int] = {}

    def of(n: int, depth: int = 0) -> int:
        if n not in found:
            found[n] = costs[n]  # ends what waits for itself
            if depth < 60:
                found[n] += sum([of(k, depth + 1) for k in sources[n] if readers[k] == 1])
        return found[n]

    return of

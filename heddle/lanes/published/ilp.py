"""The published integer program: which pairs of units to pack, so that savings outweigh what the packing costs.

goSLP (Mendis and Amarasinghe, OOPSLA 2018): for pairs P, operand pairs Q and statements s,

    minimize  -Σ saves_P·V_P + Σ packing_Q·y_Q + Σ extract_s·u_s
    y_Q ≥ V_P - V_Q    for each pair P that reads Q: a vector that is no pack is put together, once
    u_s ≥ X_s - X_v    for each reader v of s: a lane that is read alone is taken out, once
    X_s = Σ V_P over P with s in it ≤ 1; pairs that wait for each other are not both chosen

A lane of one pack that is put into another vector is not charged an extract: a shuffle does both. Charging it made the
packings of the benchmark kernels 13 % dearer.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from heddle.lanes.choose.ilp import SLOWEST, limited, solver_library
from heddle.lanes.published.candidates import candidates
from heddle.lanes.published.units import Level, Operand

ROUNDS = 30  # of forbidding a longer cycle and solving again


@dataclass
class Chosen:
    """Pairs of a level by number, what they come to (negative: saved), and the least it could come to."""

    pairs: list[int]
    value: int
    bound: float
    spent: float = 0.0  # seconds, by the solver's own count


class Terms:
    """What the objective of a level is made of."""

    def __init__(self, level: Level) -> None:
        self.level, self.pairs = level, candidates(level)
        self.having: list[list[int]] = [[] for _ in level.units]  # pairs with each unit
        self.making: dict[tuple[str, ...], list[int]] = {}  # pairs that give these values
        self.reading: dict[Operand, list[int]] = {}
        self.packing: dict[Operand, int] = {}
        for n, pair in enumerate(self.pairs):
            self.having[pair.one].append(n)
            self.having[pair.two].append(n)
            self.making.setdefault(level.names(pair.unit.members), []).append(n)
            for operand, column in zip(level.operands(pair.unit), pair.unit.columns, strict=True):
                if n not in self.reading.setdefault(operand, []):
                    self.reading[operand].append(n)
                cost = level.packing(operand[0], (column[: level.width], column[level.width :]))
                self.packing[operand] = min(cost, self.packing.get(operand, cost))

    def packed(self, chosen: Collection[int]) -> set[Operand]:
        """Operands that must be put together."""
        return {
            q
            for q, readers in self.reading.items()
            if not set(chosen).isdisjoint(readers) and set(chosen).isdisjoint(self.making.get(q[1], ()))
        }

    def extracted(self, chosen: Collection[int]) -> set[int]:
        """Units that must be taken out."""
        inside = {n for p in chosen for n in (self.pairs[p].one, self.pairs[p].two)}
        return {n for n in inside if any(v not in inside for v in self.level.readers[n])}

    def value(self, chosen: Collection[int]) -> int:
        gained = sum(self.pairs[p].saves for p in chosen)
        apart = sum(self.level.extract(n) for n in self.extracted(chosen))
        return sum(self.packing[q] for q in self.packed(chosen)) + apart - gained

    @cached_property
    def crossed(self) -> list[tuple[int, int]]:
        """Pairs of units each of which waits for the other's."""
        level, found = self.level, []
        both = {(p.one, p.two): n for n, p in enumerate(self.pairs)}  # ways of one pair wait for the same
        bits = [(level.bits[a] | level.bits[b], level.above[a] | level.above[b], n) for (a, b), n in both.items()]
        for k, (here, above, n) in enumerate(bits):
            found += [(n, m) for there, over, m in bits[:k] if above & there and over & here]
        return found

    def cycle(self, chosen: Iterable[int]) -> list[int]:
        """Chosen pairs that wait for each other; none if all can be put in an order."""
        region = self.level.region
        group = list(range(len(region.statements)))  # each statement alone, or by the first of its unit or pair
        owner: dict[int, int] = {}
        for members in (u.members for u in self.level.units):
            for m in members:
                group[m] = members[0]
        for p in chosen:
            for m in self.pairs[p].unit.members:
                group[m] = self.pairs[p].unit.members[0]
            owner[self.pairs[p].unit.members[0]] = p
        after: dict[int, set[int]] = {g: set() for g in group}
        for m, before in enumerate(region.before):
            while before:
                bit = before & -before
                before ^= bit
                if group[bit.bit_length() - 1] != group[m]:
                    after[group[m]].add(group[bit.bit_length() - 1])
        while ready := [g for g, waits in after.items() if not waits]:
            for g in ready:
                del after[g]
            for waits in after.values():
                waits.difference_update(ready)
        if not after:
            return []
        path = [min(after)]
        while (following := min(after[path[-1]])) not in path:
            path.append(following)
        return [owner[g] for g in path[path.index(following) :] if g in owner]


def greedy(terms: Terms) -> list[int]:
    """Superword packing as first published: from neighboring stores to what they read, and on to what that reads."""
    chosen: list[int] = []
    taken: set[int] = set()
    ops = [terms.level.statement(p.unit).op for p in terms.pairs]
    stack = [n for op in ("load", "store") for n in reversed(range(len(ops))) if ops[n] == op]  # stores come first
    while stack:
        n = stack.pop()
        pair = terms.pairs[n]
        if taken.isdisjoint((pair.one, pair.two)):
            taken |= {pair.one, pair.two}
            chosen.append(n)
            stack += [m for _, lanes in terms.level.operands(pair.unit) for m in terms.making.get(lanes, ())[:1]]
    return chosen if terms.value(chosen) < 0 and not terms.cycle(chosen) else []


def choose(terms: Terms, seconds: float) -> Chosen:
    """The best pairs of a level, within some seconds of the solver's own count of its work."""
    cp_model = solver_library()
    best = greedy(terms)
    found = Chosen(best, terms.value(best), float("-inf"))
    model, v, y, u = _model(cp_model, terms)
    stop = time.perf_counter() + SLOWEST * seconds
    for _ in range(ROUNDS):
        clock = stop - time.perf_counter()
        if seconds - found.spent <= 0.01 or clock <= 0.01:
            break
        model.clear_hints()
        for variables, true in (
            (v, set(found.pairs)),
            (y, terms.packed(found.pairs)),
            (u, terms.extracted(found.pairs)),
        ):
            for key, variable in variables.items():
                model.add_hint(variable, key in true)
        solver = limited(seconds - found.spent, clock)
        status = solver.solve(model)
        found.spent += solver.response_proto.deterministic_time
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            break
        found.bound = max(found.bound, solver.best_objective_bound)
        answer = [n for n, variable in v.items() if solver.boolean_value(variable)]
        if terms.value(answer) >= found.value:
            break
        if not (cycle := terms.cycle(answer)):
            found.pairs, found.value = answer, terms.value(answer)
            break
        model.add_bool_or([v[n].Not() for n in cycle])
    # Without a bound of the solver's: no more can be saved than every unit's best pair does.
    found.bound = max(found.bound, -sum(max([0, *(terms.pairs[n].saves for n in of)]) for of in terms.having))
    found.bound = min(found.bound, found.value)
    return found


def _model(cp_model: Any, terms: Terms) -> tuple[Any, dict[int, Any], dict[Operand, Any], dict[int, Any]]:
    level, model = terms.level, cp_model.CpModel()
    v = {n: model.new_bool_var(f"V{n}") for n in range(len(terms.pairs))}
    y = {q: model.new_bool_var(f"y{k}") for k, (q, cost) in enumerate(terms.packing.items()) if cost}
    u = {n: model.new_bool_var(f"u{n}") for n, of in enumerate(terms.having) if of and level.readers[n]}
    x = [sum(v[n] for n in of) for of in terms.having]
    for of in terms.having:
        model.add_at_most_one(v[n] for n in of)
    for q, readers in terms.reading.items():
        for n in readers if q in y else ():
            model.add(y[q] >= v[n] - sum(v[m] for m in terms.making.get(q[1], ())))
    for n in u:
        for reader in set(level.readers[n]):
            model.add(u[n] >= (x[n] if reader is None else x[n] - x[reader]))
    ways: dict[tuple[int, int], list[Any]] = {}
    for n, pair in enumerate(terms.pairs):
        ways.setdefault((pair.one, pair.two), []).append(v[n])
    for n, m in terms.crossed:
        a, b = terms.pairs[n], terms.pairs[m]
        model.add_at_most_one([*ways[a.one, a.two], *ways[b.one, b.two]])
    gained = sum(pair.saves * v[n] for n, pair in enumerate(terms.pairs))
    apart = sum(level.extract(n) * variable for n, variable in u.items())
    model.minimize(sum(terms.packing[q] * variable for q, variable in y.items()) + apart - gained)
    return model, v, y, u

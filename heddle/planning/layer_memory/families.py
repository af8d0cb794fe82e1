"""The best split together with the best strategies of its layers: splits in the order of what they promise.

A family is a split of the work: tensor, pipeline, virtual, data, microbatch. Families are estimated as far as they may
matter, the lowest bounds first, and solved in the order of their estimates. The best of those that are solved is then
changed step by step: layers move from its slowest rank to its quickest, and the model's ends may shard or offload more.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from itertools import islice
from typing import NamedTuple

import numpy as np

from heddle.cost.measured.local_machine import machine_for
from heddle.format import GIB
from heddle.planning.layer_memory.estimates import alike, extra_seconds, leanest_bytes
from heddle.planning.layer_memory.smallest import lean_plans
from heddle.planning.layer_memory.solve import best_strategies, within
from heddle.planning.search.objective import MARGIN, SearchGoal
from heddle.planning.search.pricing import SpaceCosts, for_layers_to_choose
from heddle.planning.search.refine import balanced_ranks, moved_layer
from heddle.planning.search.space import Space
from heddle.simulating.distinct import by_group, distinct
from heddle.simulating.simulation import Simulation, simulate, simulate_if_fits
from heddle.spec.job import Job, PlannedJob
from heddle.spec.layer_memory import LayerMemory
from heddle.spec.plan import Plan

GROUPS = 64  # of families that are estimated at once, the lowest bounds first
MOST = 16 * GROUPS  # that are estimated at all: those beyond have bounds that a thousand others are below
SOLVED = 12  # families that are solved to find the best, the lowest estimates first,
LAYERS = 480  # or so many that they have so many layers together, of small models
TRIED = 3  # times as many are tried for that: some turn out not to fit
ACTIONS = 16_000  # of the steps of those that are solved, a second at most; after that only short ones are
EACH = 3  # of them that may differ in chunks alone
WHOLE = 1.15  # times what fitting costs by the estimate: layers are whole, and other stages have to fit, too
GAIN = 0.03  # of what one setting for all layers takes: estimates below that are worth solving; they are optimistic
NEAR = 1.01  # times what was found without: what is slower than that is not refined,
SHORT = 200  # unless its step has so few actions that it takes no time
ENDS = 2  # other things that the ends of the best may do: those that are estimated best
MOVES = 4  # layers that are moved between its stages
BY_LAYER = ("recompute", "zero")  # what is chosen here: where it is fixed, there is nothing to choose


class Estimate(NamedTuple):
    """What a family is estimated to take, and what the ends of the model may do there, the best first."""

    key: tuple[float, ...]  # with stages that are as good as can be
    likely: tuple[float, ...]  # with even ones
    row: int
    ends: tuple[LayerMemory, ...]
    leanest: LayerMemory  # of them


class Families:
    """Plans whose layers choose for themselves.

    How many families are looked at is a count, not a time: the same job has the same plan on every machine.
    """

    def __init__(self, job: Job, space: Space, step: SpaceCosts, goal: SearchGoal, rows: np.ndarray) -> None:
        """`rows`: plans of the space; each split among them is a family."""
        self.job, self.space, self.step, self.goal = job, space, step, goal
        self.found: dict[Plan, Simulation | None] = {}  # what came of a plan; None: it does not fit, or is too slow
        plain = for_layers_to_choose(space.columns)
        self.rows = rows[plain[rows] & (step.at_least[rows] <= goal.limit(job))]
        if any(name in goal.fixed for name in BY_LAYER):
            self.rows = self.rows[:0]
        self.estimates: dict[int, Estimate] = {}  # of those that can fit
        self._known = set[int]()  # those that were estimated, whether they can fit or not
        self._lean: dict[int, PlannedJob] = {}
        self._of_row: dict[int, Simulation | None] = {}
        self._leanest: dict[Plan, Simulation | None] = {}
        self._groups = self._by_bound()
        self._done = 0

    def _by_bound(self) -> list[tuple[tuple[float, ...], np.ndarray]]:
        """Families whose layers have the same options, the lowest bounds first."""
        if not len(self.rows):
            return []
        keys = self._bounds[:, self.rows]
        sort = np.lexsort(keys[::-1])
        order, keys = self.rows[sort], keys[:, sort]
        first, group = distinct(alike(self.space, order))
        members = by_group(group)
        return [(tuple(keys[:, first[at]].tolist()), order[members[at]]) for at in np.argsort(first)]

    def among(self, rows: np.ndarray) -> Families:
        """Those of some plans; what was estimated and solved stays known."""
        some = Families(self.job, self.space, self.step, self.goal, self.rows[np.isin(self.rows, rows)])
        some.found, some.estimates, some._known = self.found, self.estimates, self._known
        some._lean, some._leanest, some._of_row = self._lean, self._leanest, self._of_row
        return some

    def priced(self, step: SpaceCosts) -> Families:
        """The same with more seconds known; what was found stays, and estimates of what was known already."""
        same = Families(self.job, self.space, step, self.goal, self.rows)
        same.found, same._of_row, same._lean, same._leanest = self.found, self._of_row, self._lean, self._leanest
        same.estimates = {row: each for row, each in self.estimates.items() if self.step.known[row]}
        same._known = {row for row in self._known if self.step.known[row]}
        return same

    @cached_property
    def smallest(self) -> Simulation | None:
        """The one that holds least, as quick as it can be then; None: none fits, or none is quick enough."""
        lean = min(lean_plans(self.job, self.space, self.rows), key=lambda each: each.bytes, default=None)
        return None if lean is None else self._solved_within(lean.job)

    @cached_property
    def least_memory(self) -> float:
        """Bytes per device that the leanest of them needs; infinite where there are none."""
        return min((lean.bytes for lean in lean_plans(self.job, self.space, self.rows)), default=np.inf)

    def can_fit(self, rows: np.ndarray) -> np.ndarray:
        """Whether each of some families can, as far as is known."""
        if not len(rows):
            return np.zeros(0, dtype=bool)
        least = leanest_bytes(self.job, self.space, rows)
        return np.asarray(np.isfinite(least) & (least <= machine_for(self.job.cluster, 1).device.memory_gib * GIB))

    @property
    def known(self) -> list[Estimate]:
        """What was estimated of them."""
        return [self.estimates[row] for row in self.rows.tolist() if row in self.estimates]

    @property
    def next_bound(self) -> tuple[float, ...] | None:
        """That no family goes below which is not estimated yet; None: all are that matter."""
        return self._groups[self._done][0] if self._done < min(len(self._groups), MOST) else None

    def estimate_more(self) -> list[Estimate]:
        """Those of the next families that can fit."""
        some = self._groups[self._done : self._done + GROUPS]
        self._done += len(some)
        return self._estimates_of(np.concatenate([own for _, own in some]).tolist())

    def _estimates_of(self, rows: list[int]) -> list[Estimate]:
        wanted = [row for row in rows if row not in self._known]
        self._known.update(wanted)
        if wanted:
            self.estimates |= {each.row: each for each in self._estimated(np.array(wanted))}
        return [self.estimates[row] for row in rows if row in self.estimates]

    def _estimated(self, rows: np.ndarray) -> Iterator[Estimate]:
        if self.goal.objective == "smallest":
            for lean in lean_plans(self.job, self.space, rows):
                self._lean[lean.row] = lean.job
                yield Estimate((lean.bytes, 0.0), (lean.bytes, 0.0), lean.row, (), LayerMemory())
            return
        limit, devices = self.goal.limit(self.job), self.space.devices
        for extra in extra_seconds(self.job, self.space, rows):
            least = float(self.step.at_least[extra.row]) + extra.seconds
            even = float(self.step.seconds[extra.row]) + WHOLE * extra.seconds
            if least <= limit:
                key, likely = (self.goal.key(seconds, 0.0, int(devices[extra.row])) for seconds in (least, even))
                yield Estimate(key, likely, extra.row, extra.ends, extra.leanest)

    def solve(self, estimate: Estimate) -> Simulation | None:
        """The best strategies of a family; None: it does not fit, or is too slow."""
        if estimate.row not in self._of_row:
            self._of_row[estimate.row] = self._solution(estimate)
        return self._of_row[estimate.row]

    def price(self, estimate: Estimate) -> float:
        """What is to be small of a family: exactly, where it was solved; infinite where it does not fit."""
        if estimate.row not in self._of_row:
            return estimate.likely[0]
        found = self._of_row[estimate.row]
        return np.inf if found is None else float(self.goal.of(found)[0])

    def _solution(self, estimate: Estimate) -> Simulation | None:
        if self.goal.objective == "smallest":
            return self._solved_within(self._lean[estimate.row])
        plan = _with_ends(self.space.plan(estimate.row), estimate.ends[0])
        # the estimate takes what the ends hold for a moment for what they hold all the time
        return self._solved(plan) or self._solved(_with_ends(plan, estimate.leanest))

    def best(self, than: Simulation | None) -> Simulation | None:
        """The best of them, where it beats what was found without."""
        while (bound := self.next_bound) is not None and not self._beaten(bound, than):
            self.estimate_more()
        solved: list[tuple[Simulation, Estimate, int]] = []
        best, actions, failed = than, 0, set[tuple[int, ...]]()
        most = max(SOLVED, LAYERS // self.space.layers)
        for estimate, kind in islice(self._varied(sorted(self.known)), TRIED * most):
            if len(solved) == most or self._beaten(estimate.key, best):
                break
            plan = self.space.plan(estimate.row)
            if plan.virtual > 1 and kind in failed:  # however many chunks there are, they hold about the same
                continue
            steps = 2 * plan.chunks * plan.microbatches(self.job.train.global_batch)
            if best is not None and actions > ACTIONS and steps > SHORT:
                continue
            actions += steps
            if (found := self.solve(estimate)) is not None:
                solved.append((found, estimate, steps))
                best = self._better_of(best or found, found)
            else:
                failed.add(kind)
        for place, (found, estimate, steps) in enumerate(sorted(solved, key=lambda each: self.goal.of(each[0]))):
            near = than is None or found.step_seconds <= NEAR * than.step_seconds
            if estimate.ends and (steps <= SHORT or (place == 0 and near)):
                best = self._better_of(best or found, self._refined(found, estimate))
        if best is None and len(self.rows):
            # with the ends of the model as lean as can be
            lean = min(lean_plans(self.job, self.space, self.rows), key=lambda each: each.bytes).job
            best = self._solved(lean.plan) or self.smallest
        return None if best is than else best

    def best_of(self, rows: list[int], than: Simulation | None) -> Simulation | None:
        """The best of some families where it beats what was found without by more than the margin; otherwise that.

        Of each schedule the most hopeful, until one fits.
        """
        worth = None if than is None else self.goal.less(self.goal.of(than), GAIN)
        may = [row for row in rows if worth is None or tuple(self._bounds[:, row].tolist()) < worth]
        best: Simulation | None = None
        hopeful = [each for each in self._estimates_of(may) if worth is None or each.likely < worth]
        tried = set[int]()
        for estimate, (*_, schedule) in self._varied(sorted(hopeful, key=lambda each: each.likely)):
            if best is None and schedule not in tried:
                tried.add(schedule)
                best = self.solve(estimate)
        if than is None or best is None:
            return best or than
        return best if self.goal.of(best) < self.goal.less(self.goal.of(than), MARGIN) else than

    @cached_property
    def _bounds(self) -> np.ndarray:
        """What each plan of the space takes at least, however its layers choose: the most important first."""
        least = self.goal.key(self.step.at_least, 0.0, self.space.devices)
        return np.stack(np.broadcast_arrays(*least))

    def _varied(self, estimates: list[Estimate]) -> Iterator[tuple[Estimate, tuple[int, ...]]]:
        """Of those that differ in chunks alone only the first few; and what they have in common."""
        seen: dict[tuple[int, ...], int] = {}
        kinds = np.stack(alike(self.space, np.array([each.row for each in estimates], dtype=np.int64)), axis=1)
        for each, kind in zip(estimates, map(tuple, kinds.tolist()), strict=True):
            seen[kind] = seen.get(kind, 0) + 1
            if seen[kind] <= EACH:
                yield each, kind

    def _beaten(self, key: tuple[float, ...], than: Simulation | None) -> bool:
        return than is not None and key >= self.goal.of(than)

    def _solved(self, plan: Plan) -> Simulation | None:
        if plan not in self.found:
            self.found[plan] = self._in_time(best_strategies(replace(self.job, plan=plan)))
        return self.found[plan]

    def _solved_within(self, lean: PlannedJob) -> Simulation | None:
        """The quickest of its split that holds no more than a lean plan."""
        if lean.plan not in self._leanest:
            found = simulate_if_fits(lean)
            if found is not None:
                quicker = best_strategies(within(lean, found.worst * (1 + 1e-9) / GIB))
                if quicker is not None and quicker.worst <= found.worst:
                    found = simulate(replace(lean, plan=quicker.plan))
            self._leanest[lean.plan] = self._in_time(found)
        return self._leanest[lean.plan]

    def _in_time(self, found: Simulation | None) -> Simulation | None:
        return None if found is None or found.step_seconds > self.goal.limit(self.job) else found

    def _refined(self, best: Simulation, estimate: Estimate) -> Simulation:
        """The same with other ends, and with layers moved between its stages, as long as that helps."""
        split = self.space.plan(estimate.row)
        for ends in estimate.ends[1 : 1 + ENDS]:
            best = self._better_of(best, self._solved(_with_ends(split, ends)))
        for _ in range(MOVES if split.pipeline > 1 and "stages" not in self.goal.fixed else 0):
            before, ends = best, LayerMemory("none", best.plan.zero, best.plan.ends_offload)
            for stages in (moved_layer(best), balanced_ranks(best)):
                if stages is not None:
                    best = self._better_of(best, self._solved(_with_ends(replace(split, stages=stages), ends)))
            if best is before:
                break
        return best

    def _better_of(self, best: Simulation, other: Simulation | None) -> Simulation:
        return best if other is None or self._beaten(self.goal.of(other), best) else other


def _with_ends(plan: Plan, ends: LayerMemory) -> Plan:
    return replace(plan, zero=ends.zero, offload=ends.offload)

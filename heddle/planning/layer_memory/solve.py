"""The best strategies for every layer of a plan whose split is decided.

Stages do not share memory, and a stage that is quicker never makes a step slower: so each takes, on its own, the
strategies of least seconds that fit. The microbatches in flight are those of the very schedule. What is not of layers,
the ends of the model, messages, the loss, is taken from the exact memory of the plan itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise, product
from typing import NamedTuple

import numpy as np

from heddle.cost.end_memory import end_activations
from heddle.cost.layers import LayerKind
from heddle.cost.measured.local_machine import machine_for
from heddle.cost.memory import MemoryBreakdown
from heddle.cost.work import Work, work_of
from heddle.format import GIB
from heddle.planning.layer_memory.front import LayerGroup, front, lower_hull
from heddle.planning.layer_memory.options import Option, legal, options, useful
from heddle.planning.layer_memory.stage import StageChoice, StageSearch, Ways, in_flight, moments, place_of
from heddle.planning.layer_memory.tier_memory import fits_host, tier_bytes
from heddle.schedule import Schedule, build
from heddle.simulating.chunk_memory import ChunksOf
from heddle.simulating.chunks import priced_layer
from heddle.simulating.simulation import Simulation, simulate_if_fits
from heddle.simulating.stage_memory import stage_memory
from heddle.spec.cluster import Cluster
from heddle.spec.job import Job, PlannedJob
from heddle.spec.layer_memory import OFFLOADED, LayerMemory, Zero
from heddle.spec.plan import Plan

ATTEMPTS = 8  # to bring together the exact memory and the sum over layers
WORTH = 5e-4  # of a stage's seconds that are worth another attempt
# what may not leave, one after the other, until the host has room for the rest
STAYS: tuple[tuple[str, ...], ...] = ((), ("activations",), ("activations", "input"), tuple(OFFLOADED))


Choice = list[list[tuple[LayerMemory, int, int]]]  # of each chunk of a stage: strategy, shape, and how many layers
Steps = tuple[tuple[float, float], list[tuple[float, float]]]  # (seconds, bytes), then (seconds per byte, bytes)


class Stage(NamedTuple):
    """What one rank has to choose for: how many layers of each shape each of its chunks has, and what it holds."""

    layers: tuple[tuple[tuple[int, int], ...], ...]  # of each chunk: (shape, count)
    in_flight: tuple[int, ...]  # microbatches of each chunk at the fullest moment
    begins: bool  # the model: its first chunk gets no input from another stage
    loss: float  # bytes that the loss holds for a moment beside what layers left; 0 where it is not
    room: float  # bytes that layers may take


def tiers_of(cluster: Cluster) -> tuple[str, ...]:
    """Where things may go: beside a GPU to its host, beside a CPU to its disk."""
    return ("disk",) if cluster.device.host else ("host",)


def zeros_of(plan: Plan) -> tuple[Zero, ...]:
    """What replicas may share of a layer."""
    return (0,) if plan.replicas == 1 else plan.zero_levels


def within(job: Job, gib: float) -> Job:
    """The same with so much memory per device."""
    assert job.cluster is not None
    return replace(job, cluster=replace(job.cluster, device=replace(job.cluster.device, memory_gib=gib)))


def best_strategies(job: Job, among: Sequence[LayerMemory] | None = None) -> Simulation | None:
    """A job's plan with the best strategies of every layer within its devices' memory; None: nothing fits.

    What the plan itself says of layers is not looked at; its `zero` and `offload` hold for the ends of the model.
    `among`: the strategies that a layer may have, by default all that are legal.
    """
    job = job.planned
    plan = replace(job.plan, recompute="none", offload=job.plan.ends_offload, layers=())
    cluster = machine_for(job.cluster, plan.world)
    work = work_of(replace(job, plan=plan), cluster)
    microbatches = plan.microbatches(job.train.global_batch)
    schedule = _schedule(plan.schedule, plan.pipeline, microbatches, plan.virtual)
    possible = legal(plan, tiers_of(cluster), zeros_of(plan), job.model.own)
    strategies = list(possible if among is None else among)
    for stays in STAYS:
        some = [memory for memory in strategies if not any(memory.tier(kind) for kind in stays)]
        priced = [useful(options(cluster, one, plan, some)) for _, one in work.each_shape]
        found = _Solver(replace(job, plan=plan), work, schedule, cluster, priced).solve() if some else None
        if found is None or fits_host(tier_bytes(found.job, work, schedule, "host"), cluster):
            return found
    return None


class _Solver:
    def __init__(
        self, job: PlannedJob, work: Work, schedule: Schedule, cluster: Cluster, priced: list[list[Option]]
    ) -> None:
        self.job, self.plan, self.work, self.schedule, self.cluster = job, job.plan, work, schedule, cluster
        self.priced = priced
        # lean, and without what depends on a layer's place in its chunk
        plain = [[option for option in shape if not LayerKind(0, option.memory).leaves] for shape in priced]
        self.reference = [min(shape, key=lambda option: option.always + option.left) for shape in plain]
        # a hair more: whether a plan fits is for its simulation to say, which adds up in another order
        self.limit = cluster.device.memory_gib * GIB / (1 + cluster.efficiency.slack) * (1 + 1e-12)
        self.counts = _shapes_by_chunk(job)
        self.flights = [
            in_flight(order, self.plan.chunks_of(rank), schedule.chunks) for rank, order in enumerate(schedule.places)
        ]
        ends = end_activations(work)
        at_loss = float(ends.left + ends.briefly)
        self.losses = [at_loss * (rank == self.plan.last_rank) for rank in range(self.plan.pipeline)]
        prices = [priced_layer(cluster, one) for _, one in work.each_shape]
        self.busy = [schedule.microbatches * (price.forward + price.backward) for price in prices]  # seconds of a layer
        self.chunks = ChunksOf(self.plan, work)
        tables = _tables_of(tuple(map(tuple, priced)))
        self.fronts, self.hulls, self.relaxed = tables.fronts, tables.hulls, tables.relaxed
        self.known: dict[Stage, tuple[float, Choice] | None] = {}

    def solve(self) -> Simulation | None:
        """Solve stage by stage; where the exact memory is more than the sum over layers, with that much less room."""
        quick = self._all([min(shape, key=lambda option: option.seconds) for shape in self.priced])
        if max(self._exact(breakdown) for breakdown in self._memory(quick)) <= self.limit:
            return simulate_if_fits(self._job(quick))
        lean = self._all(self.reference)
        searches = []
        for rank, breakdown in enumerate(self._memory(lean)):
            needs = self._exact(breakdown)
            kinds = [kind for chunk in self.plan.chunks_of(rank) for kind in self.counts[chunk]]
            seconds = self._seconds(rank, self.reference)
            own = (
                StageChoice(seconds, [lean[chunk] for chunk in self.plan.chunks_of(rank)])
                if needs <= self.limit
                else None
            )
            busy = sum(count * self.busy[shape] for shape, count in kinds)
            searches.append(StageSearch(self.limit - needs + self._summed(rank), own, WORTH * busy))
        self._try_alike(searches)
        for _ in range(ATTEMPTS):
            chosen = self._chosen([search.room for search in searches])
            for rank, breakdown in enumerate(self._memory(self._filled(chosen))):
                searches[rank].learn(chosen[rank], self._exact(breakdown) - self.limit)
            if all(search.done for search in searches):
                break
        best = [search.best for search in searches]
        if any(each is None for each in best):
            return None
        return simulate_if_fits(self._job(self._filled(best)))

    def _try_alike(self, searches: list[StageSearch]) -> None:
        """Stages of few layers start from the best strategy that fits for all of them: their sums are too careful.

        An option counts as many gathered layers as are there at once, and these stages may have fewer.
        """
        own = [sum(n for chunk in self.plan.chunks_of(rank) for _, n in self.counts[chunk]) for rank in self._ranks]
        if min(own) > 2 + self.plan.prefetch:
            return
        for same in sorted(self._everywhere(), key=lambda same: sum(option.seconds for option in same)):
            seconds = [self._seconds(rank, same) for rank in self._ranks]
            better = [
                rank
                for rank, search in enumerate(searches)
                if search.best is None or seconds[rank] < search.best.seconds
            ]
            if not better:  # what holds less is not looked at where it is slower
                continue
            chunks = self._all(same)
            memory = self._memory(chunks)
            for rank in better:
                if self._exact(memory[rank]) <= self.limit:
                    layers = [chunks[chunk] for chunk in self.plan.chunks_of(rank)]
                    searches[rank].best = StageChoice(seconds[rank], layers)

    def _everywhere(self) -> Iterator[list[Option]]:
        """Strategies that layers of every shape may have, with their option of each shape."""
        for option in self.priced[0]:
            same = [o for shape in self.priced for o in shape if o.memory == option.memory]
            if len(same) == len(self.priced):
                yield same

    def _seconds(self, rank: int, same: Sequence[Option]) -> float:
        kinds = [kind for chunk in self.plan.chunks_of(rank) for kind in self.counts[chunk]]
        return sum(count * same[shape].seconds for shape, count in kinds)

    @property
    def _ranks(self) -> range:
        return range(self.plan.pipeline)

    def _filled(self, stages: Sequence[StageChoice | None]) -> list[list[LayerMemory]]:
        """Strategies of the layers of each chunk of the model; a stage that has none does as the reference does."""
        chunks = self._all(self.reference)
        for rank, stage in enumerate(stages):
            if stage is not None:
                for number, chunk in enumerate(self.plan.chunks_of(rank)):
                    chunks[chunk] = stage.layers[number]
        return chunks

    def _all(self, options: Sequence[Option]) -> list[list[LayerMemory]]:
        """Every layer does what is said for its shape."""
        return [[options[shape].memory for shape, count in chunk for _ in range(count)] for chunk in self.counts]

    def _chosen(self, rooms: list[float]) -> list[StageChoice | None]:
        """The quickest strategies of each stage within its room."""
        chosen: list[StageChoice | None] = []
        for rank, room in enumerate(rooms):
            own = tuple([self.counts[chunk] for chunk in self.plan.chunks_of(rank)])
            found = self._stage(Stage(own, self.flights[rank], rank == 0, self.losses[rank], room))
            placed = None
            if found is not None:
                chunks = self.plan.chunks_of(rank)
                layers = [self._placed(chunk, kinds) for chunk, kinds in zip(chunks, found[1], strict=True)]
                placed = StageChoice(found[0], layers)
            chosen.append(placed)
        return chosen

    def _job(self, chosen: Sequence[Sequence[LayerMemory]]) -> PlannedJob:
        layers = [memory for chunk in chosen for memory in chunk]
        return replace(self.job, plan=self.plan.with_memory(layers))

    def _memory(self, chosen: Sequence[Sequence[LayerMemory]]) -> tuple[MemoryBreakdown, ...]:
        job = self._job(chosen)
        return stage_memory(job, job.plan, self.work, self.schedule, self.cluster, self.chunks)[0]

    @staticmethod
    def _exact(breakdown: MemoryBreakdown) -> float:
        return float(breakdown.total - breakdown.slack)

    def _summed(self, rank: int) -> float:
        """Bytes of a rank's layers that do as the reference does, as the choice adds them up."""
        held, brief = [], [self.losses[rank]]
        for number, chunk in enumerate(self.plan.chunks_of(rank)):
            flight = self.flights[rank][number]
            own = [(self.reference[shape], count) for shape, count in self.counts[chunk]]
            held += [count * (option.always + flight * option.left) for option, count in own]
            brief += [option.moment + option.brief for option, _ in own]
        return sum(held) + max(brief)

    def _stage(self, stage: Stage) -> tuple[float, Choice] | None:
        """(strategy, shape, count) of each chunk of a stage; None: nothing fits.

        What lives for a moment is that of the option that has most of it, so one after the other each amount is tried
        as the most that is allowed: the cheapest of all is among these. Most are ruled out by their bounds.
        """
        if stage in self.known:
            return self.known[stage]
        best: tuple[float, Choice] | None = None
        shapes = {shape for chunk in stage.layers for shape, _ in chunk}
        every = [option for shape in shapes for option in self.priced[shape]]
        tries = product({option.moment for option in every}, {option.brief for option in every})
        worth = WORTH * sum(count * self.busy[shape] for chunk in stage.layers for shape, count in chunk)
        for bound, moment, brief in sorted((self._bound(stage, *most), *most) for most in tries):
            if bound == np.inf or (best is not None and bound >= best[0] - worth):
                break
            found = self._within(stage, moment, brief)
            if found is not None and (best is None or found[0] < best[0]):
                best = found
        self.known[stage] = best
        return best

    def _bound(self, stage: Stage, moment: float, brief: float) -> float:
        """Seconds that no choice within these limits can go below: layers may take parts of several options.

        Then each layer goes from its leanest option to the next as long as there is room, where a byte gains most.
        """
        key = *stage[:-1], moment, brief
        if key not in self.relaxed:  # the same for every room
            self.relaxed[key] = self._relaxed(stage, moment, brief)
        held, seconds = self.relaxed[key]
        return float(np.interp(stage.room, held, seconds)) if stage.room >= held[0] else np.inf

    def _relaxed(self, stage: Stage, moment: float, brief: float) -> tuple[np.ndarray, np.ndarray]:
        """Bytes and seconds of a stage, from the leanest on, as layers take more; between them it is linear."""
        total, held, steps = 0.0, brief, []
        for chunk, flight in zip(stage.layers, stage.in_flight, strict=True):
            for shape, count in chunk:
                least, own = self._steps(shape, flight, moment, brief)
                total, held = total + count * least[0], held + count * least[1]
                steps += [(gain, count * more) for gain, more in own]
        steps.sort(reverse=True)
        more = np.array([0.0, *(more for _, more in steps)])
        gains = np.array([0.0, *(gain * more for gain, more in steps)])
        return held + np.cumsum(more), total - np.cumsum(gains)

    def _steps(self, shape: int, flight: int, moment: float, brief: float) -> Steps:
        """The leanest option of a layer, and what each further byte gains: seconds per byte, and how many bytes."""
        key = shape, flight, moment, brief
        if key not in self.hulls:
            some = [o for o in self.priced[shape] if o.moment <= moment and o.brief <= brief]
            held, seconds = np.array([[o.always + flight * o.left, o.seconds] for o in some]).reshape(-1, 2).T
            hull = lower_hull(held, seconds)
            gains = [
                (float((seconds[a] - seconds[b]) / (held[b] - held[a])), float(held[b] - held[a]))
                for a, b in pairwise(hull)
            ]
            least = (float(seconds[hull[0]]), float(held[hull[0]])) if hull else (0.0, np.inf)
            self.hulls[key] = least, gains
        return self.hulls[key]

    def _within(self, stage: Stage, moment: float, brief: float) -> tuple[float, Choice] | None:
        key = *stage[:-1], moment, brief
        if key not in self.fronts:
            self.fronts[key] = self._ways(stage, moment, brief)
        made = self.fronts[key]
        if made is None:
            return None
        fitting = np.flatnonzero(made.bytes + brief <= stage.room)
        if not len(fitting):
            return None
        at = fitting[np.argmin(made.ways.seconds[fitting])]
        chunks: Choice = []
        groups = zip(made.allowed, made.ways.counts, strict=True)
        for chunk in stage.layers:
            own = []
            for shape, _ in chunk:
                some, counts = next(groups)
                own += [(o.memory, shape, int(n)) for o, n in zip(some, counts[at], strict=True) if n]
            chunks.append(own)
        return float(made.ways.seconds[at]), chunks

    def _ways(self, stage: Stage, moment: float, brief: float) -> Ways | None:
        groups, allowed, chunks = [], [], []
        for number, (chunk, flight) in enumerate(zip(stage.layers, stage.in_flight, strict=True)):
            for shape, count in chunk:
                some = [option for option in self.priced[shape] if option.moment <= moment and option.brief <= brief]
                if not some:
                    return None
                seconds = np.array([option.seconds for option in some])
                # what another stage sent to a chunk of one layer stays, though the layer lets its own go
                stays = count == sum(n for _, n in chunk) == 1 and not (stage.begins and number == 0)
                held = [o.always + flight * (o.left + o.input * stays) for o in some]
                groups.append(LayerGroup(count, seconds, np.array(held)))
                allowed.append(some)
                chunks.append(number)
        ways = front(groups)
        return Ways(ways, ways.bytes + np.maximum(stage.loss, moments(ways, allowed, chunks)), allowed)

    def _placed(self, chunk: int, own: list[tuple[LayerMemory, int, int]]) -> list[LayerMemory]:
        """A strategy for each layer of a chunk, in the model's order, in as few runs as its shapes allow.

        A layer that recomputes, or fetches what it put away, has its fullest moment when the backward comes to it: it
        stands before those that keep everything, whose memory is free by then. The first one of all keeps what another
        stage sent, so one that lets its input go comes after those that recompute.
        """
        order = sorted(own, key=lambda each: place_of(each[0]))
        left = {shape: [memory for memory, s, n in order for _ in range(n) if s == shape] for _, shape, _ in own}
        shape_of = self.job.model.shape_of
        return [left[shape_of[layer]].pop(0) for layer in self.plan.layers_of(chunk, len(shape_of))]


class _Tables(NamedTuple):
    """What stages can do with the options of their layers, whatever room they have and whatever the ends do."""

    fronts: dict[object, Ways | None]
    hulls: dict[tuple[int, int, float, float], Steps]
    relaxed: dict[object, tuple[np.ndarray, np.ndarray]]


@lru_cache(maxsize=32)
def _tables_of(priced: tuple[tuple[Option, ...], ...]) -> _Tables:  # noqa: ARG001 - they are kept for these options
    return _Tables({}, {}, {})


def _shapes_by_chunk(job: PlannedJob) -> list[tuple[tuple[int, int], ...]]:
    found, start = [], 0
    for size in job.plan.stages:
        own = job.model.shape_of[start : start + size]
        found.append(tuple((shape, own.count(shape)) for shape in sorted(set(own))))
        start += size
    return found


@lru_cache(maxsize=64)
def _schedule(name: str, pipeline: int, microbatches: int, virtual: int) -> Schedule:
    return build(name, pipeline, microbatches, virtual)

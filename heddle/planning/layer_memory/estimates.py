"""What splits are estimated to take with strategies chosen layer by layer, in closed form, many at once.

What a split takes if memory were no object bounds it from below; what the layers of its first stage, which holds most
microbatches, have to pay for fitting at all makes that an estimate. It is a relaxation: layers may take parts of
several strategies, and so at most of two. Splits whose layers have the same options share them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from heddle.cost import adapters, memory
from heddle.cost import step as stage
from heddle.cost.measured.local_machine import machine_for
from heddle.cost.network import hidden
from heddle.cost.offload import away, copies, shard_seconds, states, update_seconds
from heddle.cost.work import Work, work_of
from heddle.format import GIB
from heddle.planning.layer_memory.options import leanest, legal, priced_option
from heddle.planning.layer_memory.solve import tiers_of, zeros_of
from heddle.planning.search.space import Space
from heddle.schedule import NAMES, RULES
from heddle.schedule.registry import BY_DEFAULT
from heddle.simulating.distinct import by_group, distinct
from heddle.simulating.stage_memory import of_a_layer
from heddle.spec.axes import DEGREES
from heddle.spec.cluster import Cluster
from heddle.spec.job import Job
from heddle.spec.layer_memory import LayerMemory
from heddle.spec.plan import Plan


class Extra(NamedTuple):
    """What fitting costs a split per step, and what the ends of the model may do there, the best first."""

    row: int
    seconds: float
    ends: tuple[LayerMemory, ...]
    leanest: LayerMemory  # of all that the ends may do


def alike(space: Space, rows: np.ndarray) -> list[np.ndarray]:
    """Columns that the price of a layer depends on: splits that differ in chunks alone share it."""
    schedule = space.columns["schedule"][rows]
    usual = np.isin(schedule, [NAMES.index(name) for name in BY_DEFAULT])
    columns = [
        space.columns[name][rows]
        for name in (*DEGREES, "expert_tensor", "context_exchange", "context_inner", "microbatch", "sequence")
    ]
    return [*columns, np.where(usual, 0, 1 + schedule)]


def extra_seconds(job: Job, space: Space, rows: np.ndarray) -> Iterator[Extra]:
    """Of those splits that can fit."""
    for some in _kinds(space, rows):
        yield from _of_a_kind(job, space, rows[some])


def leanest_bytes(job: Job, space: Space, rows: np.ndarray) -> np.ndarray:
    """Bytes of the first stage of each split, about, with layers and ends as lean as can be; where the host has no room
    for that, infinite.
    """
    least = np.zeros(len(rows))
    for some in _kinds(space, rows):
        own = _Splits.of(job, space, rows[some], lean=True)
        count = np.asarray(space.layers / own.work.pipeline)[own.group]
        held = count * (own.layers.always[:, own.group] + own.flights * own.layers.left[:, own.group])
        gone = count * (own.layers.away[:, own.group] + own.flights * own.layers.away_each[:, own.group])
        held = np.where(gone <= own.layers.host_room, held, np.inf).min(axis=0)
        limit = machine_for(job.cluster, 1).device.memory_gib * GIB
        slack = 1 + machine_for(job.cluster, 1).efficiency.slack
        least[some] = held * slack + limit - own.room.max(axis=0)[own.group] * slack
    return least


def _kinds(space: Space, rows: np.ndarray) -> Iterator[np.ndarray]:
    """Places of the splits whose layers may do the same."""
    columns = space.columns
    replicas = columns["data"][rows] * columns["context"][rows]
    several, deep = (each.astype(np.int64) for each in (replicas > 1, columns["pipeline"][rows] > 1))
    _, kind = distinct([several, deep, alike(space, rows)[-1]])
    yield from by_group(kind)


class _Splits(NamedTuple):
    """Splits whose layers may do the same, in groups whose layers cost the same."""

    work: Work  # of each group
    group: np.ndarray  # of each split
    flights: np.ndarray  # microbatches that its first stage holds
    layers: _Layers
    ends: list[LayerMemory]
    room: np.ndarray  # for each way to treat the ends, and each group
    seconds: np.ndarray
    always: np.ndarray

    @classmethod
    def of(cls, job: Job, space: Space, rows: np.ndarray, lean: bool = False) -> _Splits:
        """`lean`: with the leanest options of a layer alone."""
        plan = space.plan(int(rows[0]))
        cluster = machine_for(job.cluster, plan.world)
        first, group = distinct(alike(space, rows))
        work = work_of(job, cluster, space.take(rows[first]).work_columns()).as_floats()
        tiers = tiers_of(cluster)
        every = (leanest if lean else legal)(plan, tiers, zeros_of(plan))
        ends = _ends(plan, tiers)
        rule = RULES[BY_DEFAULT[-1] if plan.schedule in BY_DEFAULT else plan.schedule]
        virtual, pipeline = space.columns["virtual"][rows], space.columns["pipeline"][rows]
        microbatches = np.asarray(work.microbatches)[group]
        flights = np.asarray(rule.in_flight(pipeline, microbatches, virtual, 0) / virtual)
        return cls(work, group, flights, _Layers.of(job, cluster, work, every), ends, *_rooms(cluster, work, ends))


def _of_a_kind(job: Job, space: Space, rows: np.ndarray) -> Iterator[Extra]:
    """Splits whose layers may do the same."""
    splits = _Splits.of(job, space, rows)
    stages, ends = np.asarray(splits.work.pipeline), splits.ends
    for number in range(len(stages)):
        own = np.flatnonzero(splits.group == number)
        count = space.layers / float(stages[number])
        extra = splits.layers.extra_seconds(number, splits.flights[own], count, splits.room[:, number])
        extra = extra + splits.seconds[:, number, None]
        order = np.argsort(extra, axis=0, kind="stable")
        lean = ends[int(np.argmin(splits.always[:, number]))]
        for place, row in enumerate(rows[own].tolist()):
            best = [int(each) for each in order[:, place] if extra[each, place] < np.inf]
            if best:
                yield Extra(row, float(extra[best[0], place]), tuple(ends[each] for each in best), lean)


def _ends(plan: Plan, tiers: tuple[str, ...]) -> list[LayerMemory]:
    """What the embedding and the output layer may do: their optimizer's state may leave the device."""
    free = plan.check_step == "after" or plan.local_steps
    homes = [(), *([] if free else [(f"optimizer:{tier}",) for tier in tiers])]
    return [LayerMemory("none", zero, offload) for zero in zeros_of(plan) for offload in homes]


def _rooms(cluster: Cluster, work: Work, ends: Sequence[LayerMemory]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For each way to treat the ends: what layers are left with, what it costs a step, what they hold all the time."""
    parameters = memory.end_parameters(work, True, work.pipeline == 1)
    frozen = adapters.frozen_end(work, True, work.pipeline == 1)
    limit = cluster.device.memory_gib * GIB / (1 + cluster.efficiency.slack)
    rooms, times, held = [], [], []
    for each in ends:
        own = states(work, parameters, each, frozen)
        often, once = shard_seconds(cluster, work, parameters, each, frozen)
        often = often - hidden(cluster, often, often)  # beside all layers: as far as anything can be hidden
        moved = copies(cluster, work, each, 0.0, parameters, (0.0, 0.0)).step
        always = own.weights + own.gradients + own.optimizer + own.kept
        rooms.append(limit - always - own.unit - own.summed)
        times.append(work.microbatches * often + once + update_seconds(cluster, work, each, parameters, moved))
        held.append(always)
    room, seconds, always = (np.stack(np.broadcast_arrays(*each)) for each in (rooms, times, held))
    return room, seconds - seconds.min(axis=0), always


class _Layers(NamedTuple):
    """The options of a layer of each split: a row for each option, a column for each split."""

    seconds: np.ndarray
    always: np.ndarray
    left: np.ndarray  # of each microbatch in flight
    away: np.ndarray  # on the host
    away_each: np.ndarray  # of each microbatch in flight
    host_room: float
    alike: bool  # whether all layers of the model have that shape

    @classmethod
    def of(cls, job: Job, cluster: Cluster, work: Work, ways: Iterable[LayerMemory]) -> _Layers:
        """Of the shape that most layers have."""
        shape_of = job.model.shape_of
        shape = work.each_shape[max(set(shape_of), key=shape_of.count)][1]
        one = of_a_layer(shape)
        price, kept = stage.layer_cost(cluster, one), memory.layer_activations(one)
        parameters, frozen = memory.layer_parameters(one), adapters.frozen_layer(one)
        saved = kept.by_word
        columns: list[list[np.ndarray]] = [[] for _ in range(5)]
        for way in ways:
            leaves = saved[way.recompute]
            seconds, own = priced_option(cluster, shape, way, price, leaves, parameters, frozen)
            on_host = away(shape, way, "host", leaves, parameters)
            if way.tier("weights") == "host":
                on_host = on_host._replace(always=on_host.always + frozen / shape.sharers)
            stays = 0.0 if way.tier("input") or way.tier("activations") else leaves
            always = own.weights + own.gradients + own.optimizer + own.kept
            for column, value in zip(columns, (seconds, always, stays, *on_host), strict=True):
                column.append(np.broadcast_to(np.asarray(value, dtype=float), len(work)))
        host = cluster.device.host_gib
        room = np.inf if host is None else host * GIB
        seconds, always, left, gone, each_gone = map(np.stack, columns)
        return cls(seconds, always, left, gone, each_gone, room, len(set(shape_of)) == 1)

    def extra_seconds(self, split: int, flights: np.ndarray, layers: float, rooms: np.ndarray) -> np.ndarray:
        """Seconds per step that fitting costs a first stage at least, for each room and each number of microbatches
        that it holds; infinite where it cannot fit.
        """
        seconds, always, left, gone, each_gone = (column[:, split] for column in self[:5])
        stays = np.flatnonzero(layers * (gone + flights.max() * each_gone) <= self.host_room)
        if len(stays) < len(gone):  # then what takes less of the host counts as an advantage, too
            some = _undominated(np.stack([seconds, always, left, gone, each_gone]))
        else:
            some = _undominated(np.stack([seconds, always, left]))
        seconds = seconds[some]
        held = always[some, None] + flights * left[some, None]
        held = np.where(layers * (gone[some, None] + flights * each_gone[some, None]) <= self.host_room, held, np.inf)
        own = (rooms / layers)[:, None]
        low = held[:, None] <= own  # option, room, flights
        alone = np.where(low, seconds[:, None, None], np.inf).min(axis=0)
        # a layer may be in part as an option that fits, in part as a quicker one that does not
        a, b = np.nonzero(seconds[:, None] > seconds[None, :])
        with np.errstate(invalid="ignore", divide="ignore"):
            share = (own - held[a][:, None]) / (held[b] - held[a])[:, None]
        mixed = seconds[a, None, None] + share * (seconds[b] - seconds[a])[:, None, None]
        mixed = np.where(low[a] & ~low[b] & np.isfinite(held[b])[:, None], mixed, np.inf)
        best = np.minimum(alone, mixed.min(axis=0, initial=np.inf))
        if not self.alike:  # of another shape a layer may need less
            best = np.where(low.any(axis=0), best, seconds.min())
        return np.asarray(layers * (best - seconds.min()))


def _undominated(columns: np.ndarray) -> np.ndarray:
    """Options that no other beats, or equals before it, in everything."""
    order = np.lexsort(columns[::-1])
    some = columns[:, order]
    better = (some[:, :, None] <= some[:, None, :]).all(axis=0)
    return np.sort(order[~np.triu(better, 1).any(axis=0)])

"""The mesh: who stands where, and whom each process shares an axis with."""

from __future__ import annotations

import warnings
from itertools import product
from unittest.mock import patch

import pytest
import torch
import torch.distributed as dist

import heddle.parallel.mesh
from heddle.errors import HeddleError
from heddle.parallel.collectives import all_reduce
from heddle.parallel.mesh import Mesh, _disjoint_channels, build_mesh
from heddle.spec import Plan
from heddle.spec.ranks import coordinates
from tests.helpers.world import SIZE

# rank: tensor, data, pipeline of tensor 2 × data 3 × pipeline 2, counted by hand: tensor fastest, pipeline slowest
TABLE = {
    0: (0, 0, 0, 0),
    1: (1, 0, 0, 0),
    2: (0, 0, 1, 0),
    3: (1, 0, 1, 0),
    4: (0, 0, 2, 0),
    5: (1, 0, 2, 0),
    6: (0, 0, 0, 1),
    7: (1, 0, 0, 1),
    8: (0, 0, 1, 1),
    9: (1, 0, 1, 1),
    10: (0, 0, 2, 1),
    11: (1, 0, 2, 1),
}


def test_coordinates():
    plan = Plan(tensor=2, data=3, pipeline=2)
    assert {rank: coordinates(plan, rank) for rank in range(plan.world)} == TABLE


@pytest.mark.peers
def test_the_same_order_as_megatron():
    """Its default order of axes (checked with megatron-core 0.16.1)."""
    pytest.importorskip("megatron.core")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns of every CUDA library that a laptop does not have
        from megatron.core.parallel_state import RankGenerator

    for tensor, context, data, pipeline in product((1, 2, 3), repeat=4):
        theirs = RankGenerator(tp=tensor, ep=1, dp=data, pp=pipeline, cp=context, order="tp-cp-ep-dp-pp")
        plan = Plan(tensor=tensor, context=context, data=data, pipeline=pipeline)
        places = [coordinates(plan, rank) for rank in range(plan.world)]
        for axis, name in enumerate(("tp", "cp", "dp", "pp")):
            groups: dict[tuple[int, ...], list[int]] = {}
            for rank, place in enumerate(places):
                groups.setdefault(place[:axis] + place[axis + 1 :], []).append(rank)
            assert sorted(theirs.get_ranks(name)) == sorted(groups.values())


def seen(mesh: Mesh) -> dict[str, tuple[int, tuple[int, ...]]]:
    """Each axis: the place on it, and who is on it – as stated, and as found out by talking."""
    axes = {name: getattr(mesh, name) for name in ("tensor", "data", "pipeline", "world", "ends")}
    for name, axis in axes.items():
        if name == "pipeline":  # stages talk over channels
            assert axis.group is None
            continue
        here = all_reduce(torch.tensor([mesh.rank in axis.ranks, mesh.rank]), axis) if axis.size > 1 else None
        assert here is None or here.tolist() == [axis.size, sum(axis.ranks)]
    return {name: (axis.rank, axis.ranks) for name, axis in axes.items()}


@pytest.mark.dist
def test_axes_of_eight(world):
    views = world.run(seen, Plan(tensor=2, data=2, pipeline=2))
    assert views[0] == {
        "tensor": (0, (0, 1)),
        "data": (0, (0, 2)),
        "pipeline": (0, (0, 4)),
        "world": (0, tuple(range(8))),
        "ends": (0, (0, 4)),
    }
    assert views[7] == {
        "tensor": (1, (6, 7)),
        "data": (1, (5, 7)),
        "pipeline": (1, (3, 7)),
        "world": (7, tuple(range(8))),
        "ends": (1, (3, 7)),
    }


@pytest.mark.dist
def test_the_middle_of_a_pipeline_is_no_end(world):
    views = world.run(seen, Plan(pipeline=4))
    assert [view["ends"][1] for view in views] == [(0, 3), (0,), (0,), (0, 3)]


def talk(mesh: Mesh) -> list[tuple[int, int]]:
    """Send along every channel that starts here, receive along every one that ends here."""
    place, ranks = mesh.pipeline.rank, mesh.pipeline.ranks
    sends = []
    for (source, destination), group in sorted(mesh.channels.items()):
        if source == place:
            words = torch.tensor([source, destination])
            sends.append((dist.isend(words, ranks[destination], group=group), words))
    heard = []
    for (source, destination), group in sorted(mesh.channels.items()):
        if destination == place:
            words = torch.empty(2, dtype=torch.int64)
            dist.recv(words, ranks[source], group=group)
            heard.append(tuple(words.tolist()))
    for work, _ in sends:
        work.wait()
    return heard


@pytest.mark.dist
def test_neighbors_have_a_channel_each_way(world):
    assert world.run(talk, Plan(pipeline=2)) == [[(1, 0)], [(0, 1)]]
    # a ring: with several chunks per rank, the last stage hands on to the first
    ring = {"pipeline": 4, "virtual": 2, "schedule": "interleaved"}
    assert world.run(talk, Plan(**ring))[0] == [(1, 0), (3, 0)]
    assert world.run(talk, Plan(tensor=2, **ring))[5] == [(1, 2), (3, 2)]
    assert world.run(talk, Plan(pipeline=4))[0] == [(1, 0)]


def test_one_process_needs_nobody():
    assert build_mesh(Plan()) == Mesh()
    assert Mesh().world.size == 1


def test_too_few_processes_are_refused():
    with pytest.raises(HeddleError, match=r"2 × 2 × 4 = 16 processes, but 8 started"):
        build_mesh(Plan(tensor=2, pipeline=2, data=4), 0, SIZE)


@pytest.mark.dist
def test_processes_beyond_the_plan_have_no_place(world):
    """`run` gives results of the plan's ranks only; the others were given no mesh, else this would hang."""
    assert len(world.run(seen, Plan(tensor=3))) == 3


@pytest.mark.parametrize("bound", [False, True], ids=["gloo", "nccl"])
def test_a_large_world_takes_few_calls(bound):
    """On the first rank of 1,536: 3,585 calls would take minutes. Where NCCL knows its device, it splits the world."""
    plan = Plan(tensor=8, pipeline=8, data=24, virtual=2, schedule="interleaved", zero=3)
    calls: list[list[list[int]]] = []
    new_group = dist.new_group

    def split(split_ranks, group_desc, timeout, pg_options):
        calls.append(split_ranks)
        return new_group(next(ranks for ranks in split_ranks if 0 in ranks), use_local_synchronization=True)

    def make(ranks, **options):
        calls.append([ranks])
        return new_group(ranks, **options)

    device = patch.object(heddle.parallel.mesh, "_device", lambda: torch.device("cpu") if bound else None)
    stack = patch.object(heddle.parallel.mesh, "_options", lambda: None)
    with patch.object(dist, "new_group", make), patch.object(dist, "split_group", split), device, stack:
        dist.init_process_group("fake", rank=0, world_size=plan.world)
        try:
            mesh = build_mesh(plan, 0, plan.world)
            assert mesh is not None
            assert mesh.world.group is dist.group.WORLD
        finally:
            dist.destroy_process_group()
    # tensor, data, ends, four lists of channels, the group that saves, and one for gathers where they have a stream
    assert len(calls) == 8 + bound
    assert set(mesh.channels) == {(0, 1), (1, 0), (0, 7), (7, 0)}
    for groups in calls if bound else []:
        assert sorted(rank for ranks in groups for rank in ranks) == list(range(plan.world))  # each rank once


@pytest.mark.parametrize("stages", [1, 2, 3, 4, 5, 8])
@pytest.mark.parametrize("chunks", [1, 2])
def test_channels_in_lists_without_a_stage_twice(stages, chunks):
    folded = {"virtual": 2, "schedule": "interleaved"} if chunks > 1 and stages > 1 else {}
    lists = _disjoint_channels(Plan(pipeline=stages, **folded))
    ways = {(k, k + 1) for k in range(stages - 1)}
    ways |= {(stages - 1, 0)} if folded else set()
    pairs = [pair for each in lists for pair in each]
    assert sorted(pairs) == sorted(ways | {(b, a) for a, b in ways})
    for each in lists:
        assert len({stage for pair in each for stage in pair}) == 2 * len(each)
    assert len(lists) <= 6

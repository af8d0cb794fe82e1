"""Among the ranks that hold the same numbers exactly one counts and saves them, whatever a parameter is split over."""

from itertools import product

import pytest
import torch

from heddle.parallel.mesh import Axis, Mesh
from heddle.parallel.ownership import has_own_loss, is_counted, replicas_of, sums_of
from heddle.parallel.parameter_layout import ParameterLayout, set_place
from heddle.spec.axes import AXES, AXIS_TABLE, SUMMED, inside
from heddle.spec.plan import Plan
from heddle.spec.ranks import expert_data_groups, expert_groups, groups, places

PLAN = Plan(tensor=2, data=3, pipeline=2)


def meshes(plan: Plan) -> list[Mesh]:
    """Every rank's view of a plan, without processes."""

    def axis(rank: int, members: list[list[int]]) -> Axis:
        mine = next((ranks for ranks in members if rank in ranks), [rank])
        return Axis(mine.index(rank), tuple(mine))

    ends = [[column[0], column[plan.last_rank]] for column in groups(plan, "pipeline")]
    return [
        Mesh(
            rank=rank,
            **{name: axis(rank, groups(plan, name)) for name in AXES},
            gradients=axis(rank, groups(plan, *SUMMED)),
            expert=axis(rank, expert_groups(plan)),
            expert_data=axis(rank, expert_data_groups(plan)),
            ends=axis(rank, ends),
        )
        for rank in range(plan.world)
    ]


@pytest.mark.parametrize("split", [(), ("tensor",)])
@pytest.mark.parametrize("sharded", [False, True])
def test_every_number_is_counted_once(split, sharded):
    layout = ParameterLayout(torch.Size([4]), (0,), split=frozenset(split))
    apart = {*split, "pipeline"} | (set(SUMMED) if sharded else set())  # along these, ranks hold different numbers
    counted = {}
    for place, mesh in zip(places(PLAN), meshes(PLAN), strict=True):
        held = tuple(getattr(place, name) for name in AXES if name in apart)
        counted[held] = counted.get(held, 0) + is_counted(layout, mesh, sharded)
    assert set(counted.values()) == {1}


FOLDED_PLAN = Plan(tensor=2, context=2, data=4, expert=4, pipeline=2)


@pytest.mark.parametrize("split", [("expert",), ("tensor", "expert")])
@pytest.mark.parametrize("sharded", [False, True])
def test_every_expert_is_counted_once(split, sharded):
    """Experts are split over ranks of data × context, and held alike by as many as there are such groups."""
    layout = ParameterLayout(torch.Size([4]), (0,), split=frozenset(split))
    counted: dict[tuple[int, ...], int] = {}
    for place, mesh in zip(places(FOLDED_PLAN), meshes(FOLDED_PLAN), strict=True):
        assert mesh.expert.size * mesh.expert_data.size == mesh.gradients.size
        held = (place.pipeline, mesh.expert.rank, *[place.tensor] * ("tensor" in split))
        held += (mesh.expert_data.rank,) if sharded else ()
        counted[held] = counted.get(held, 0) + is_counted(layout, mesh, sharded)
    assert set(counted.values()) == {1}
    assert len(counted) == 2 * 4 * (2 if "tensor" in split else 1) * (2 if sharded else 1)


@pytest.mark.parametrize("sharded", [False, True])
@pytest.mark.parametrize("expert", [1, 4, 16])
def test_every_whole_expert_is_counted_once(expert, sharded):
    """Tensor ranks share them, too."""
    plan = Plan(tensor=2, context=2, data=4, expert=expert, expert_tensor=1, pipeline=2)
    layout = ParameterLayout(torch.Size([4]), (0,), split=frozenset({"expert"}))
    counted: dict[tuple[int, ...], int] = {}
    for place, mesh in zip(places(plan), meshes(plan), strict=True):
        assert mesh.expert.size * mesh.expert_data.size == 2 * mesh.gradients.size
        held = (place.pipeline, mesh.expert.rank) + ((mesh.expert_data.rank,) if sharded else ())
        counted[held] = counted.get(held, 0) + is_counted(layout, mesh, sharded)
    assert set(counted.values()) == {1}
    assert len(counted) == 2 * (16 if sharded else expert)


def test_gradients_of_experts_are_summed_by_those_that_hold_the_same():
    parameter = torch.zeros(4)
    for mesh in meshes(FOLDED_PLAN):
        assert replicas_of(parameter, mesh) == mesh.gradients
        set_place(parameter, ParameterLayout(parameter.shape, (0,), split=frozenset({"expert"})))
        assert replicas_of(parameter, mesh) == mesh.expert_data
        del parameter.heddle_place  # type: ignore[attr-defined]


def test_a_tied_embedding_is_counted_at_the_first_end():
    layout = ParameterLayout(torch.Size([4]), (0,), split=frozenset({"tensor"}), partial=frozenset({"ends"}))
    counted = [mesh.rank for mesh in meshes(PLAN) if is_counted(layout, mesh, sharded=False)]
    assert counted == [0, 1]  # of two tensor ranks, the first stage's first replica


def test_a_gradient_is_summed_over_the_axes_that_hold_parts_of_it():
    mesh, parameter = meshes(PLAN)[0], torch.zeros(4)
    assert sums_of(parameter, mesh) == ()
    set_place(parameter, ParameterLayout(parameter.shape, (0,), partial=frozenset({"ends", "tensor"})))
    assert sums_of(parameter, mesh) == (mesh.tensor, mesh.ends)
    assert sums_of(parameter, Mesh()) == ()  # nobody to sum with


def test_the_losses_of_all_ranks_add_up_to_one_of_each_stage_and_replica():
    having = [place for place, mesh in zip(places(PLAN), meshes(PLAN), strict=True) if has_own_loss(mesh)]
    assert len(having) == PLAN.data * PLAN.pipeline
    assert {place.tensor for place in having} == {0}


def test_groups_over_several_axes_hold_the_ranks_that_differ_only_there():
    every = list(places(PLAN))
    for names in [("tensor", "data"), ("data", "pipeline"), AXES]:
        found = groups(PLAN, *names)
        assert sorted(rank for ranks in found for rank in ranks) == list(range(PLAN.world))
        for ranks in found:
            fixed = {tuple(getattr(every[rank], name) for name in AXES if name not in names) for rank in ranks}
            wanted = list(product(*(range(getattr(PLAN, name)) for name in names)))
            assert len(fixed) == 1
            assert ranks == sorted(ranks)
            assert len(ranks) == len(wanted)


def test_records_describe_each_axis_once():
    assert len({axis.letter for axis in AXIS_TABLE}) == len(AXIS_TABLE)
    assert inside("tensor") == ()
    assert inside(*SUMMED) == AXES[: AXES.index(SUMMED[0])]

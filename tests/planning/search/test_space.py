"""The legal space against trying everything, and what is said of an empty one."""

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heddle.errors import HeddleError, divisors
from heddle.planning.search.fixed import _most_below, check_fixed, read_fixed
from heddle.planning.search.legal import RECOMPUTE, degrees_of
from heddle.planning.search.space import legal_space
from heddle.schedule import NAMES
from heddle.schedule.registry import BY_DEFAULT
from heddle.spec import ModelSpec, Plan

models = st.builds(
    lambda layers, kv, groups, ffn: ModelSpec(
        layers=layers, hidden=8 * kv * groups, heads=kv * groups, kv_heads=kv, ffn=ffn, vocab=50, sequence=24
    ),
    st.integers(1, 6), st.sampled_from([1, 2, 3, 4, 6]), st.sampled_from([1, 2]), st.sampled_from([12, 24, 30]),
)  # fmt: skip


def everything(model, sequence, batch, devices, schedule=None, level=None):
    """Every plan that its own rules accept, one of each that do the same, by trying all values of all fields."""
    found = set()
    upto = range(1, devices + 1)
    for t, p, d in product(upto, upto, upto):
        if t * p * d != devices:
            continue
        levels = range(4 if d > 1 else 1) if level is None else [level]
        choices = product(range(1, model.layers + 1), (False, True), levels, range(1, batch + 1), RECOMPUTE)
        for v, seq, zero, micro, recompute in choices:
            if p > 1 and zero > 1 and level is None:  # which plan.layer_memory chooses for each layer
                continue
            name = schedule or ("interleaved" if v > 1 else "1f1b")
            try:
                plan = Plan(
                    tensor=t, pipeline=p, data=d, virtual=v, sequence=seq, zero=zero, microbatch=micro,
                    schedule=name, recompute=recompute,
                )  # fmt: skip
                plan.check(model, batch, sequence)
            except HeddleError:
                continue
            found.add(plan)
    return found


@settings(max_examples=40)
@given(models, st.sampled_from([1, 2, 4, 6, 12]), st.integers(1, 8), st.sampled_from([8, 9, 24]))
def test_every_legal_plan_is_there_exactly_once(model, batch, devices, sequence):
    space = legal_space(model, sequence, batch, [devices], {})
    listed = [space.plan(index) for index in range(len(space))]
    one_word = [plan for plan in listed if isinstance(plan.recompute, str)]
    assert len(one_word) == len(set(one_word))
    assert set(one_word) == everything(model, sequence, batch, devices)
    assert [space.where(plan) for plan in one_word] == [i for i, plan in enumerate(listed) if plan in one_word]
    for plan in set(listed) - set(one_word):
        plan.check(model, batch, sequence)
        held = [
            plan.recompute[layer]
            for chunk in range(0, plan.chunks, plan.pipeline)
            for layer in plan.layers_of(chunk, model.layers)
        ]
        assert held == ["full"] * held.count("full") + ["none"] * held.count("none")


@settings(max_examples=15)
@given(st.sampled_from([2, 4, 6]), st.sampled_from([1, 2, 4]), st.integers(1, 8), st.sampled_from([6, 8]))
def test_experts_are_split_in_every_legal_way(count, batch, devices, sequence):
    model = ModelSpec(
        layers=2, hidden=16, heads=4, kv_heads=4, ffn=24, vocab=50, sequence=24, experts=count, top_k=2, expert_ffn=12,
        activation="swiglu", bias="none", tied=False,
    )  # fmt: skip
    fixed = {"recompute": "none", "zero": 0, "virtual": 1, "context": 1}
    space = legal_space(model, sequence, batch, [devices], fixed)
    plans = [space.plan(index) for index in range(len(space))]
    found = set()
    upto = range(1, devices + 1)
    for t, p, d, seq, micro, expert, width in product(
        upto, upto, upto, (False, True), range(1, batch + 1), upto, (0, 1)
    ):
        if t * p * d != devices or width > (t > 1):  # one tensor rank splits nothing, whatever is said
            continue
        try:
            plan = Plan(
                tensor=t, pipeline=p, data=d, sequence=seq, microbatch=micro, expert=expert, expert_tensor=width
            )  # fmt: skip
            plan.check(model, batch, sequence)
        except HeddleError:
            continue
        found.add(plan)
    assert len(plans) == len(set(plans))
    assert set(plans) == found
    assert [space.where(plan) for plan in plans] == list(range(len(plans)))
    whole = legal_space(model, sequence, batch, [devices], fixed | {"expert_tensor": 1})
    asked = {plan for plan in map(whole.plan, range(len(whole))) if plan.whole_experts}
    assert asked == {plan for plan in found if plan.whole_experts}


@settings(max_examples=20)
@given(models, st.sampled_from([2, 4, 6]), st.integers(1, 6), st.sampled_from(sorted(set(NAMES) - set(BY_DEFAULT))))
def test_a_schedule_is_there_when_it_is_asked_for(model, batch, devices, schedule):
    space = legal_space(model, 24, batch, [devices], {"schedule": schedule})
    plans = {space.plan(index) for index in range(len(space))}
    one_word = {plan for plan in plans if isinstance(plan.recompute, str)}
    assert one_word == everything(model, 24, batch, devices, schedule)
    assert all(plan.schedule == schedule for plan in plans)


@settings(max_examples=20)
@given(models, st.sampled_from([2, 4, 6]), st.integers(1, 6), st.integers(0, 3), st.sampled_from(["zb-h1", None]))
def test_a_level_of_zero_is_there_when_it_is_asked_for_wherever_plans_allow_it(model, batch, devices, level, schedule):
    fixed = {"zero": level} | ({"schedule": schedule} if schedule else {})
    space = legal_space(model, 24, batch, [devices], fixed)
    plans = {space.plan(index) for index in range(len(space))}
    assert {plan for plan in plans if isinstance(plan.recompute, str)} == everything(
        model, 24, batch, devices, schedule, level
    )


FIXABLE = {
    "tensor": st.sampled_from([1, 2, 3]), "pipeline": st.integers(1, 3), "data": st.integers(1, 3),
    "virtual": st.integers(1, 2), "zero": st.integers(0, 3), "microbatch": st.integers(1, 3),
    "sequence": st.booleans(), "schedule": st.sampled_from(["1f1b", "interleaved"]),
    "recompute": st.sampled_from(RECOMPUTE),
}  # fmt: skip


@settings(max_examples=80)
@given(models, st.sampled_from([4, 6, 12]), st.integers(1, 8), st.fixed_dictionaries({}, optional=FIXABLE))
def test_fixed_fields_keep_their_values_and_contradictions_are_named(model, batch, devices, fixed):
    everywhere = everything(model, 24, batch, devices)

    def kept(some):
        return {plan for plan in everywhere if all(getattr(plan, name) == value for name, value in some.items())}

    expected = kept(fixed)
    if fixed.get("zero", 0) and not expected:
        return  # one replica may be told to share: a plan of its own, which nobody would choose
    space = legal_space(model, 24, batch, [devices], fixed)
    found = {space.plan(index) for index in range(len(space))}
    assert expected <= found
    assert all(getattr(plan, name) == value for plan in found for name, value in fixed.items())
    if not found and everywhere:
        with pytest.raises(HeddleError) as error:
            check_fixed(model, 24, batch, [devices], fixed)
        named = [name for name in fixed if f"{name} = " in error.value.what]
        assert named
        assert not kept({name: fixed[name] for name in named})
        for name in named:  # none of those named could be left out
            assert kept({other: fixed[other] for other in named if other != name})


def test_one_word_a_layer_and_stages_can_be_fixed():
    model = ModelSpec(layers=4, hidden=32, heads=4, vocab=50, sequence=16)
    words = ("full", "none", "none", "full")
    space = legal_space(model, 16, 4, [2], {"stages": (1, 3), "recompute": words})
    plans = [space.plan(index) for index in range(len(space))]
    assert plans
    assert all(plan.stages == (1, 3) and plan.recompute == words and plan.chunks == 2 for plan in plans)
    assert space.work_columns()["full"] == 0.5


def test_schedules_that_are_suggested_can_be_used():
    model = ModelSpec(layers=4, hidden=32, heads=4, vocab=50, sequence=16)
    with pytest.raises(HeddleError) as error:
        check_fixed(model, 16, 8, [4], {"virtual": 2, "schedule": "1f1b"})
    assert error.value.hint == "With virtual = 2, schedule can be dualpipev, gpipe, interleaved, zb-v."
    for name in ("dualpipev", "gpipe", "interleaved", "zb-v"):
        assert len(legal_space(model, 16, 8, [4], {"virtual": 2, "schedule": name}))


def test_a_batch_that_no_layout_divides_names_the_nearest_that_one_does():
    model = ModelSpec(layers=4, hidden=32, heads=4, vocab=50, sequence=16)
    with pytest.raises(HeddleError) as error:
        check_fixed(model, 16, 10, [7], {})
    assert error.value.what == "global_batch = 10 cannot be divided over 7 devices."
    assert error.value.hint == "Use global_batch = 7, or 6 of the devices."  # 2 replicas of pipeline = 3
    assert len(legal_space(model, 16, 7, [7], {}))
    assert len(legal_space(model, 16, 10, [6], {}))


def test_the_most_devices_below_a_limit_are_found_without_trying_every_count():
    model = ModelSpec(layers=5, hidden=48, heads=12, vocab=50, sequence=16)
    for batch in (1, 4, 9, 30):
        legal = [count for count in range(1, 200) if next(degrees_of(model, 16, batch, [count], {}), None)]
        for limit in (2, 7, 23, 60, 199):
            assert _most_below(model, 16, batch, limit) == max(count for count in legal if count < limit)
    with pytest.raises(HeddleError) as error:  # by trying every count this takes minutes
        check_fixed(model, 16, 4, [800_000_000], {})
    assert error.value.hint.endswith("or 240 of the devices.")  # tensor 12, pipeline 5, data 4


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"tensr": 2}, "no field 'tensr'"),
        ({"tensor": 0}, r"plan.tensor must be in \[1, 1e6\], got 0"),
        ({"tensor": "two"}, "plan.tensor"),
        ({"recompute": "some"}, "plan.recompute"),
        ({"zero": 4}, "plan.zero"),
        ({"schedule": "2f2b"}, "There is no schedule '2f2b'"),
        ({"schedule": {}}, "plan.schedule = {} has the wrong type"),
    ],
)
def test_fixed_fields_must_be_fields_of_a_plan(table, said):
    with pytest.raises(HeddleError, match=said):
        read_fixed(table)


def test_divisors_are_all_there():
    assert divisors(12) == [1, 2, 3, 4, 6, 12]

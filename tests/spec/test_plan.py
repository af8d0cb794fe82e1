"""What was decided: a plan carries every layer, head, column and sample exactly once, or is refused."""

import re
import tomllib
from dataclasses import replace
from itertools import chain, pairwise
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from heddle.errors import HeddleError
from heddle.spec import Data, ModelSpec, Plan, even_stages
from heddle.spec.tables import build, to_table, to_toml

MODEL = ModelSpec(layers=12, hidden=96, heads=24, kv_heads=6, head_size=4, ffn=36, vocab=257, sequence=64)

small = st.integers(1, 12)


def refusal(plan: Plan, model: ModelSpec = MODEL, batch: int = 48, sequence: int = 64) -> HeddleError:
    with pytest.raises(HeddleError) as caught:
        plan.check(model, batch, sequence)
    return caught.value


def numbers(text: str) -> list[int]:
    return [int(word) for word in re.findall(r"\d+", text)]


# --- A plan by itself -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bad", "message", "cures"),
    [
        (
            {"virtual": 2, "schedule": "interleaved"},
            "virtual = 2 needs a pipeline",
            [{"virtual": 1}, {"pipeline": 2}],
        ),
        (
            {"virtual": 2, "pipeline": 2},
            "schedule = '1f1b' runs 1 chunk per rank, not virtual = 2",
            [{"schedule": "interleaved"}, {"virtual": 1}],
        ),
        (
            {"sequence": True},
            "sequence = true needs tensor parallelism",
            [{"sequence": False}, {"tensor": 2}],
        ),
    ],
)
def test_contradictions_are_refused_and_the_cure_works(
    bad: dict[str, Any], message: str, cures: list[dict[str, Any]]
) -> None:
    with pytest.raises(HeddleError, match=message) as caught:
        Plan(**bad)
    named = re.findall(r"(\w+) = ('?\w+'?)", caught.value.hint)
    words = {True: "true", False: "false"}
    assert named == [
        (key, words[value] if isinstance(value, bool) else repr(value)) for cure in cures for key, value in cure.items()
    ]
    for cure in cures:
        assert Plan(**bad | cure)


def test_derived_numbers() -> None:
    plan = Plan(tensor=2, pipeline=3, virtual=2, data=4, microbatch=2, schedule="interleaved")
    assert (plan.world, plan.chunks, plan.microbatches(48)) == (24, 6, 6)
    assert plan.resolved(MODEL).stages == (2,) * 6
    assert replace(plan, stages=(1, 3, 2, 2, 2, 2)).resolved(MODEL).stages == (1, 3, 2, 2, 2, 2)
    assert plan.recompute_of(7) == "none"
    assert Plan(recompute=("full", "selective")).recompute_of(1) == "selective"


def test_the_hash_names_the_decision() -> None:
    plan = Plan(pipeline=2)
    assert plan.hash == Plan(pipeline=2).hash
    assert re.fullmatch("[0-9a-f]{12}", plan.hash)
    others = [
        Plan(),
        Plan(pipeline=2, zero=1),
        Plan(pipeline=2, stages=(3, 1)),
        Plan(pipeline=2, recompute="full"),
    ]
    assert len({plan.hash, *(other.hash for other in others)}) == 5


# --- Layers -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "plan",
    [
        Plan(),
        Plan(pipeline=12),
        Plan(pipeline=5),  # uneven
        Plan(pipeline=3, virtual=4, schedule="interleaved"),
        Plan(pipeline=3, stages=(1, 1, 10)),
        Plan(recompute=("none",) * 11 + ("full",)),
        Plan(tensor=6, sequence=True, pipeline=2, data=4, microbatch=12, zero=1),
    ],
)
def test_plans_that_carry_everything_pass(plan: Plan) -> None:
    plan.check(MODEL, 48, 60)


@given(layers=small, pipeline=st.integers(2, 16), virtual=st.integers(1, 8))
def test_too_many_chunks_are_refused_and_every_way_out_works(layers: int, pipeline: int, virtual: int) -> None:
    plan = Plan(pipeline=pipeline, virtual=virtual, schedule="interleaved")
    model = replace(MODEL, layers=layers)
    if plan.chunks <= layers:
        plan.check(model, 48, 64)
        return
    error = refusal(plan, model)
    assert error.what.startswith(f"{layers} layers cannot fill pipeline × virtual = {pipeline} × {virtual} chunks")
    for way in error.hint.split(", or "):
        change = {key: int(value) for key, value in re.findall(r"(\w+) = (\d+)", way)}
        assert change
        replace(plan, **change).check(model, 48, 64)


@pytest.mark.parametrize(
    ("stages", "message"),
    [
        ((4, 4, 3), "stages = [4, 4, 3] carries 11 layers, but the model has 12"),
        ((4, 4, 5), "stages = [4, 4, 5] carries 13 layers, but the model has 12"),
        ((6, 6), "stages lists 2 chunks, but the plan has 3"),
        ((3, 3, 3, 3), "stages lists 4 chunks, but the plan has 3"),
    ],
)
def test_stages_carry_every_layer_once(stages: tuple[int, ...], message: str) -> None:
    plan = Plan(pipeline=3, stages=stages)
    error = refusal(plan)
    assert error.what.startswith(message)
    assert error.hint == "As even as can be: stages = [4, 4, 4]."
    replace(plan, stages=(4, 4, 4)).check(MODEL, 48, 64)


@pytest.mark.parametrize("length", [0, 11, 13])
def test_recompute_names_every_layer(length: int) -> None:
    error = refusal(Plan(recompute=("full",) * length))
    assert error.what == f"recompute lists {length} layers, but the model has 12."
    assert error.hint == 'For example recompute = "selective".'
    Plan(recompute="selective").check(MODEL, 48, 64)


@given(layers=st.integers(1, 200), chunks=st.integers(1, 64))
def test_even_stages_conserve_layers(layers: int, chunks: int) -> None:
    stages = even_stages(layers, chunks)
    assert (len(stages), sum(stages)) == (chunks, layers)
    assert max(stages) - min(stages) <= 1
    # The last chunk also holds the output layer and the first the embedding: they are the last to get more.
    assert stages[-1] == min(stages)
    if layers % chunks < chunks - 1:
        assert stages[0] == min(stages)


@given(st.data(), st.integers(1, 60), st.integers(1, 12))
def test_chunks_partition_the_model(data: st.DataObject, layers: int, pipeline: int) -> None:
    assume(pipeline <= layers)
    cuts = data.draw(st.permutations(range(1, layers)).map(lambda order: [0, *sorted(order[: pipeline - 1]), layers]))
    own = tuple(end - start for start, end in pairwise(cuts))
    for stages in ((), own):
        plan = Plan(pipeline=pipeline, stages=stages)
        plan.check(replace(MODEL, layers=layers), 48, 64)
        held = [plan.layers_of(chunk, layers) for chunk in range(pipeline)]
        assert list(chain.from_iterable(held)) == list(range(layers))
        assert all(held)


# --- Heads, columns and tokens ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "tensor", "message"),
    [
        ({}, 5, "24 heads cannot be split over tensor = 5"),
        ({}, 48, "24 heads cannot be split over tensor = 48"),
        ({}, 8, "6 kv_heads cannot be split over tensor = 8"),
        ({"ffn": 35}, 6, "ffn = 35 cannot be split over tensor = 6"),
        ({"kv_heads": 24, "ffn": 40}, 12, "ffn = 40 cannot be split over tensor = 12"),
    ],
)
def test_tensor_ranks_hold_whole_equal_shares(changes: dict[str, Any], tensor: int, message: str) -> None:
    model = replace(MODEL, **changes)
    error = refusal(Plan(tensor=tensor), model)
    assert error.what.startswith(message)
    assert numbers(error.hint)
    for degree in numbers(error.hint):
        Plan(tensor=degree).check(model, 48, 64)


@given(kv_heads=small, group=st.integers(1, 4), ffn=st.integers(1, 60), tensor=st.integers(1, 16))
def test_every_degree_that_is_named_works_and_no_other(kv_heads: int, group: int, ffn: int, tensor: int) -> None:
    model = replace(MODEL, heads=kv_heads * group, kv_heads=kv_heads, ffn=ffn)
    fits = [t for t in range(1, 61) if kv_heads % t == 0 and ffn % t == 0]
    if tensor in fits:
        Plan(tensor=tensor).check(model, 48, 64)
    else:
        assert numbers(refusal(Plan(tensor=tensor), model).hint) == fits


@pytest.mark.parametrize(("length", "nearest"), [(64, 60), (61, 60), (5, 6)])
def test_sequence_parallel_ranks_hold_equal_slices(length: int, nearest: int) -> None:
    plan = Plan(tensor=6, sequence=True)
    error = refusal(plan, sequence=length)
    assert error.what == f"A sequence of {length} tokens cannot be split over tensor = 6."
    assert error.hint == f"Use a sequence of {nearest}, or sequence = false."
    plan.check(MODEL, 48, nearest)
    replace(plan, sequence=False).check(MODEL, 48, length)


# --- Samples ----------------------------------------------------------------------------------------------


@given(batch=st.integers(1, 100), data=small, microbatch=small)
def test_every_sample_is_used_once_or_the_ways_out_work(batch: int, data: int, microbatch: int) -> None:
    plan = Plan(data=data, microbatch=microbatch)
    if batch % (data * microbatch) == 0:
        plan.check(MODEL, batch, 64)
        assert plan.microbatches(batch) * data * microbatch == batch
        return
    error = refusal(plan, batch=batch)
    share = data * microbatch
    assert (
        error.what == f"global_batch = {batch} is not divisible by data × microbatch = {data} × {microbatch} = {share}."
    )
    first, _, second = error.hint.partition(", or microbatch")
    assert numbers(first)
    for better in numbers(first):
        plan.check(MODEL, better, 64)
        assert abs(better - batch) < share
    for size in numbers(second):
        replace(plan, microbatch=size).check(MODEL, batch, 64)


def test_a_smaller_microbatch_is_offered_where_it_helps() -> None:
    assert refusal(Plan(data=2, microbatch=5), batch=12).hint == "Use global_batch = 10 or 20, or microbatch = 6."
    assert refusal(Plan(data=5, microbatch=2), batch=12).hint == "Use global_batch = 10 or 20."
    assert refusal(Plan(data=2, microbatch=8), batch=12).hint == "Use global_batch = 16, or microbatch = 6."


# --- Lists as runs ---------------------------------------------------------------------------------------------------


def test_what_repeats_is_written_as_a_run_and_read_back():
    words = ("full",) * 79 + ("none",)
    plan = Plan(pipeline=2, stages=(40, 40), recompute=words)
    text = to_toml({"plan": to_table(plan)})
    assert 'recompute = ["full x 79", "none"]' in text
    assert "stages = [40, 40]" in text
    assert build(Plan, tomllib.loads(text)["plan"], "plan") == plan
    eight = Plan(pipeline=8, stages=(15, *[16] * 6, 15))
    text = to_toml({"plan": to_table(eight)})
    assert 'stages = [15, "16 x 6", 15]' in text
    assert build(Plan, tomllib.loads(text)["plan"], "plan") == eight


def test_plain_lists_and_runs_mean_the_same():
    plain = build(Plan, {"pipeline": 4, "stages": [5, 5, 5, 5], "recompute": ["full"] * 3 + ["none"] * 17}, "plan")
    runs = build(Plan, {"pipeline": 4, "stages": ["5 x 4"], "recompute": ["full x 3", "none x 17"]}, "plan")
    assert plain == runs
    assert plain.hash == runs.hash  # a run's checkpoints know their plan by that


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"recompute": ["full x 0"]}, r"plan\.recompute\[0\] = 'full x 0' repeats full 0 times"),
        ({"recompute": ["full x 1000000000"]}, "1 to 100,000 times"),
        ({"recompute": ["ful x 3"]}, "Did you mean 'full'"),
        ({"stages": ["five x 3"]}, "a whole number"),
        ({"stages": ["5 times 3"]}, "a whole number"),
    ],
)
def test_a_run_that_says_nothing_is_refused(table, said):
    with pytest.raises(HeddleError, match=said):
        build(Plan, table, "plan")


def test_names_of_files_are_no_runs():
    assert build(Data, {"text": ["a x 3"]}, "data").text == ("a x 3",)

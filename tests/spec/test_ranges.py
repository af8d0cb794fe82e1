"""Every number of every spec has a range, and nothing outside of it gets in: neither from a file nor from Python."""

import dataclasses
import math
import types
import typing
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heddle.checkpoint.manifest import Progress
from heddle.errors import HeddleError
from heddle.spec import Cluster, Data, Device, Efficiency, Link, ModelSpec, Peak, Plan, RopeScaling, Train
from heddle.spec.network import DeviceGroup, GroupLink, Speed
from heddle.spec.plan import Predicted
from heddle.spec.ranges import Range, ranges_of
from heddle.spec.tables import build, key_of, to_table

EXAMPLES: list[Any] = [
    ModelSpec(layers=2, hidden=8, heads=2, vocab=16, sequence=8, window=4),
    RopeScaling(8.0, 1.0, 4.0, 8192),
    Data(text="corpus"),
    Train(sequence=16),
    Device(name="d", memory_gib=1.0, memory_gbs=1.0, processors=1, capability=9.0),
    Peak(fp32=1.0, tf32=1.0, bf16=1.0, fp16=1.0, fp8=1.0),
    Link(name="wire", gbs=1.0, devices=2),
    Efficiency(),
    Cluster(device=Device(name="d", memory_gib=1.0), cores=4, links=(Link(name="wire", gbs=1.0),)),
    Plan(stages=(1,), schedule="deep-1f1b", extra_warmup=1, shares=(1,), devices=(0,)),
    Speed(latency_ms=1.0, gbps=1.0),
    DeviceGroup(name="a", devices=1),
    GroupLink(between=("a", "b"), latency_ms=1.0, gbps=1.0),
    Predicted(step_seconds=1.0, tokens_per_second=1.0, mfu=0.5, bubble=0.1, worst_stage_gib=1.0),
]
FILES_ONLY = [Progress(step=1, samples=4, updates=1, loss_scale=1.0, quiet_steps=0)]
BAD = [
    math.nan,
    math.inf,
    -math.inf,
    -1,
    -0.5,
    0,
    0.0,
    1,
    1.0,
    1.5,
    10**10,
    10**30,
    10**400,
    10**5000,
    -(10**400),
    1e300,
]


def numbers(cls: type) -> list[str]:
    """The fields that are numbers, or lists of them, or may be."""

    def is_number(hint: Any) -> bool:
        if typing.get_origin(hint) in (typing.Union, types.UnionType, tuple):
            return any(map(is_number, typing.get_args(hint)))
        return hint in (int, float)

    return [name for name, hint in typing.get_type_hints(cls).items() if is_number(hint)]


def cases(examples: list[Any]) -> list[Any]:
    return [
        pytest.param(example, name, id=f"{type(example).__name__}.{name}")
        for example in examples
        for name in numbers(type(example))
    ]


@pytest.mark.parametrize(("example", "name"), cases(EXAMPLES + FILES_ONLY))
def test_every_number_of_a_spec_has_a_range(example: Any, name: str) -> None:
    assert name in ranges_of(type(example))


def accepted(make: Any, value: Any, allowed: Range, told: str) -> bool:
    """Whether a value got in. If its range refused it, it says so in the house's words."""
    try:
        make()
    except HeddleError as error:
        said = error.what.replace("[0]", "")
    else:
        return True
    if value not in allowed and "wrong type" not in said:
        assert f"{told} must be in {allowed.text}, got " in said
        assert len(said) < 200
    return False


@pytest.mark.parametrize(("example", "name"), cases(EXAMPLES + FILES_ONLY))
def test_a_file_brings_only_numbers_in_their_range(example: Any, name: str) -> None:
    cls = type(example)
    allowed = ranges_of(cls)[name]
    (key,) = [key_of(field) for field in dataclasses.fields(cls) if field.name == name]
    table = to_table(example)
    for value in BAD:
        given = [value] if isinstance(table.get(key), list) else value
        if accepted(lambda given=given: build(cls, table | {key: given}, "table"), value, allowed, f"table.{key}"):
            assert value in allowed, value
            assert math.isfinite(value)
    # what was accepted before is in the range: a default that is not would never be read again
    assert build(cls, table, "table")


@pytest.mark.parametrize(("example", "name"), cases(EXAMPLES))
def test_python_brings_only_numbers_in_their_range(example: Any, name: str) -> None:
    allowed = ranges_of(type(example))[name]
    held = getattr(example, name)
    is_list = isinstance(held, tuple)
    for value in BAD if isinstance(held, float) else [value for value in BAD if isinstance(value, int)]:
        given = (value,) if is_list else value
        if accepted(lambda given=given: dataclasses.replace(example, **{name: given}), value, allowed, f".{name}"):
            assert value in allowed, value


@given(st.floats() | st.integers())
def test_a_range_holds_what_its_text_says(value: float) -> None:
    finite = abs(value) < math.inf
    assert (value in Range("[0, 1)")) == (0 <= value < 1)
    assert (value in Range("(0, 1]")) == (0 < value <= 1)
    assert (value in Range("[0, ∞)")) == (finite and value >= 0)
    assert (value in Range("(-∞, ∞)")) == finite
    assert (value in Range("[0, 2^63)")) == (0 <= value < 2**63)


def test_the_nearest_number_that_works_is_named() -> None:
    with pytest.raises(HeddleError) as told:
        Train(keep_last=-1)
    assert told.value.what == "train.keep_last must be in [1, 1e9], got -1."
    assert told.value.hint == "The smallest that works is 1."
    with pytest.raises(HeddleError, match="dropout must be in \\[0, 1\\), got 2"):
        dataclasses.replace(EXAMPLES[0], dropout=2)
    with pytest.raises(HeddleError, match="is not below high_frequency_factor"):
        RopeScaling(8.0, 4.0, 4.0, 8192)

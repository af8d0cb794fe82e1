"""Bars are as long as they say, and read without color."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heddle.cost.breakdown import MEMORY, STEP, Breakdown
from heddle.cost.memory import MemoryBreakdown
from heddle.trace.bars import bar, legend, memory_bar, memory_scale


def test_parts_have_the_length_of_their_share():
    assert bar({"compute": 3.0, "tensor": 1.0, "bubble": 1.0}, 10).plain == "cccccctt" + "bb"
    assert bar({"weights": 1.0}, 8, whole=4.0).plain == "ww......"
    assert bar({"compute": 0.0}, 4).plain == "...."


def test_a_limit_that_is_passed_is_seen():
    assert memory_bar({"weights": 5.0}, 10.0, 10).plain == "wwwww....."
    assert memory_bar({"weights": 5.0, "slack": 15.0}, 10.0, 20).plain == "wwwwwsssss|sssssssss"
    assert memory_bar({"weights": 5.0}, 10.0, 20, scale=20.0).plain == "wwwww.....|........."


@pytest.mark.parametrize(("names", "table"), [(Breakdown._fields, STEP), (MemoryBreakdown._fields, MEMORY)])
def test_every_part_has_a_letter_of_its_own_and_a_color(names, table):
    assert len({table[name].letter for name in names}) == len(names)
    assert names == tuple(table)
    assert legend(dict.fromkeys(names, 1.0)).count(",") == len(names) - 1


@given(
    st.lists(st.floats(0, 1e9), min_size=(ITEMS := len(MemoryBreakdown._fields)), max_size=ITEMS), st.integers(1, 200)
)
def test_a_bar_is_as_wide_as_asked(values, width):
    found = bar(dict(zip(MemoryBreakdown._fields, values, strict=True)), width).plain
    assert len(found) == width
    assert found.isascii()


@given(st.floats(1.0, 1e12), st.floats(1.0, 1e12))
def test_the_longest_bar_of_memory_is_no_sliver_and_not_cut(most, limit):
    scale = memory_scale(most, limit)
    assert most <= scale
    assert most >= 0.29 * scale
    if 0.3 * limit <= most <= limit:
        assert scale == limit


def test_a_bar_may_end_before_the_limit():
    assert memory_bar({"weights": 1.0}, limit=100.0, width=8, scale=2.0).plain == "wwww...."

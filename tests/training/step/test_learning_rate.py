from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heddle.spec import Train
from heddle.training.step.learning_rate import learning_rate


def rates(**options) -> list[float]:
    train = Train(learning_rate=1.0, **options)
    return [learning_rate(train, step) for step in range(train.steps)]


def test_cosine():
    got = rates(steps=11, schedule="cosine", final_learning_rate=0.1)
    assert got == pytest.approx([0.1 + 0.45 * (1 + math.cos(math.pi * i / 10)) for i in range(11)])


def test_linear_after_warmup():
    got = rates(steps=8, schedule="linear", warmup=4, final_learning_rate=0.0)
    assert got == pytest.approx([0.25, 0.5, 0.75, 1, 1, 2 / 3, 1 / 3, 0])


def test_wsd_is_flat_then_falls():
    got = rates(steps=10, schedule="wsd", warmup=2, decay=0.3, final_learning_rate=0.0)
    assert got == pytest.approx([0.5, 1, 1, 1, 1, 1, 1, 2 / 3, 1 / 3, 0])


def test_constant():
    assert rates(steps=3, schedule="constant", warmup=1) == [1, 1, 1]


@given(
    st.sampled_from(["cosine", "linear", "wsd", "constant"]),
    st.integers(1, 40),
    st.integers(0, 50),
    st.floats(0, 1),
    st.floats(0, 1),
)
def test_never_above_the_peak_nor_below_the_floor_after_warmup(schedule, steps, warmup, final, decay):
    got = rates(steps=steps, schedule=schedule, warmup=warmup, final_learning_rate=final, decay=decay)
    assert all(0 < rate <= 1 + 1e-9 or final == 0 for rate in got)
    after = got[warmup:]
    assert all(rate >= final - 1e-9 for rate in after)
    assert all(a >= b - 1e-9 for a, b in itertools.pairwise(after))
    if schedule != "constant" and len(after) > 1:
        assert after[-1] == pytest.approx(final)

"""Every epoch visits every window once, in an order that depends on nothing but the seed and the epoch."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heddle.data import Samples
from heddle.errors import HeddleError

seeds = st.integers(-(2**70), 2**70)


def samples(count: int, sequence: int = 1, seed: int = 0) -> Samples:
    return Samples(np.arange(count * sequence + 1, dtype=np.uint32), sequence, seed)


def epoch(count: int, number: int = 0, seed: int = 0) -> list[int]:
    made = samples(count, seed=seed)
    return made.window_of(np.arange(number * count, (number + 1) * count)).tolist()


@pytest.mark.parametrize("count", [*range(1, 70), 255, 256, 257, 1000, 4096, 4097, 65537])
def test_an_epoch_is_a_permutation(count: int) -> None:
    for number in (0, 1, 2, 1000):
        assert sorted(epoch(count, number)) == list(range(count))


@given(count=st.integers(1, 3000), number=st.integers(0, 10**9), seed=seeds)
def test_every_epoch_of_every_size_and_seed_is_a_permutation(count: int, number: int, seed: int) -> None:
    assert sorted(epoch(count, number, seed)) == list(range(count))


@given(count=st.integers(20, 3000), number=st.integers(0, 10**6), seed=seeds)
def test_orders_differ_by_seed_and_by_epoch(count: int, number: int, seed: int) -> None:
    assert epoch(count, number, seed) != epoch(count, number + 1, seed)
    assert epoch(count, number, seed) != epoch(count, number, seed + 1)


@pytest.mark.parametrize("count", [2, 3, 4])
def test_tiny_corpora_are_seen_in_every_order(count: int) -> None:
    orders = {tuple(epoch(count, number)) for number in range(1000)}
    assert len(orders) == math.factorial(count)


def test_the_order_is_as_random_as_a_shuffle() -> None:
    count = 10_000
    for number in range(5):
        order = np.array(epoch(count, number))
        # both within about four standard deviations of what a uniform shuffle gives
        assert abs(np.corrcoef(np.arange(count), order)[0, 1]) < 4 / np.sqrt(count)
        assert abs(np.mean(np.diff(order) > 0) - 0.5) < 4 * np.sqrt(1 / 12 / count)
        # neighbors stay neighbors about twice in a shuffle of any size
        assert np.sum(np.abs(np.diff(order)) == 1) < 12


def test_each_window_falls_everywhere() -> None:
    count, epochs = 16, 4000
    table = np.zeros((count, count))
    for number in range(epochs):
        table[np.arange(count), epoch(count, number)] += 1
    expected = epochs / count
    chi_square = ((table - expected) ** 2 / expected).sum()
    degrees = (count - 1) ** 2
    assert abs(chi_square - degrees) < 5 * np.sqrt(2 * degrees)


def test_a_window_is_its_tokens_and_the_targets_are_one_later() -> None:
    made = samples(5, sequence=4)
    inputs, targets = made.batch(0, 5)
    assert (inputs.dtype, targets.dtype, inputs.shape) == (np.int64, np.int64, (5, 4))
    assert inputs.flags.c_contiguous
    assert targets.flags.c_contiguous
    assert (targets == inputs + 1).all()
    assert sorted(inputs[:, 0].tolist()) == [0, 4, 8, 12, 16]
    assert (inputs == made.window_of(range(5))[:, None] * 4 + np.arange(4)).all()


@pytest.mark.parametrize(("tokens", "count"), [(5, 1), (8, 1), (9, 2), (12, 2), (13, 3)])
def test_windows_share_one_token_and_the_rest_is_left(tokens: int, count: int) -> None:
    made = Samples(np.arange(tokens), 4, 0)
    assert made.count == count
    assert made.batch(0, count)[1].max() == 4 * count


@given(
    count=st.integers(1, 40),
    total=st.integers(1, 120),
    cuts=st.lists(st.integers(0, 120), max_size=8),
    ranks=st.integers(1, 8),
)
def test_any_layout_reads_the_same_samples(count: int, total: int, cuts: list[int], ranks: int) -> None:
    made = samples(count, sequence=3, seed=7)
    inputs, targets = made.batch(0, total)
    edges = sorted({0, total, *(cut for cut in cuts if cut < total)})
    in_steps = [made.batch(a, b - a) for a, b in pairwise(edges)]
    assert (np.concatenate([step[0] for step in in_steps]) == inputs).all()
    for rank in range(ranks):  # every rank its own samples, read out of order
        numbers = np.arange(rank, total, ranks)[::-1]
        mine = made.batch_of(numbers)
        assert (mine[0] == inputs[numbers]).all()
        assert (mine[1] == targets[numbers]).all()


def test_the_order_is_the_same_on_every_machine_and_in_every_version() -> None:
    # Changing these changes the data order of every run that is resumed.
    assert epoch(10) == [4, 6, 8, 3, 1, 5, 9, 7, 0, 2]
    made = Samples(np.broadcast_to(np.uint16(0), 10**12), 2048, 1234)
    assert made.window_of([0, 1, 10**9, 10**15]).tolist() == [446923050, 27563955, 279617074, 142168758]


def test_a_corpus_shorter_than_a_sample_is_refused_with_numbers() -> None:
    with pytest.raises(HeddleError, match=r"1,024 tokens are too few for one sample of 1,024") as caught:
        Samples(np.zeros(1024, np.uint16), 1024, 0)
    assert "1,025 tokens" in caught.value.why
    assert "train.sequence = 1023" in caught.value.hint
    assert Samples(np.zeros(1025, np.uint16), 1024, 0).count == 1
    with pytest.raises(HeddleError, match="more text"):
        Samples(np.zeros(0, np.uint16), 1, 0)

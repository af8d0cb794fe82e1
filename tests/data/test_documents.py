"""Samples of documents: what is read, what is learned, how they are packed and mixed."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heddle.data import Documents, has_samples, samples_of
from heddle.data.documents import MixedDocuments
from heddle.data.mixture import SourceTurns, whole_shares
from heddle.data.packing import packed
from heddle.errors import HeddleError
from heddle.spec.model import IGNORE


def documents(*lengths: int, learned: int | None = None, pack: bool = False, first: int = 100) -> Documents:
    """Document number d has the tokens first + 100 d, first + 100 d + 1, …; its last few are learned."""
    tokens = [first + 100 * d + i for d, length in enumerate(lengths) for i in range(length)]
    marks = [int(learned is None or i >= length - learned) for length in lengths for i in range(length)]
    return Documents(np.array(tokens), np.array(marks, np.uint8), np.array(lengths), end=9, pack=pack)


def test_a_sample_is_one_document_and_padding():
    samples = documents(4, 3, learned=2).samples(5, seed=0)
    assert samples.count == 2
    ids, targets = samples.batch(0, 2)
    order = np.argsort(ids[:, 0])
    assert ids[order].tolist() == [[100, 101, 102, 9, 9], [200, 201, 9, 9, 9]]
    assert targets[order].tolist() == [[IGNORE, 102, 103, IGNORE, IGNORE], [201, 202, IGNORE, IGNORE, IGNORE]]
    assert samples.targets(0, 2) == 4


def test_every_epoch_has_every_document_once_and_each_its_own_order():
    samples = documents(*[3] * 50).samples(4, seed=1)
    epochs = [[int(row[0]) for row in samples.batch(50 * epoch, 50)[0]] for epoch in range(3)]
    assert all(sorted(epoch) == [100 + 100 * d for d in range(50)] for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2]
    assert samples.batch(73, 2)[0].tolist() == samples.batch_of([73, 74])[0].tolist()


def test_targets_are_counted_without_reading():
    samples = documents(4, 9, 2, 7, learned=3).samples(5, seed=3)
    for first, count in ((0, 1), (1, 3), (2, 9)):
        assert samples.targets(first, count) == int((samples.batch(first, count)[1] != IGNORE).sum())


def test_what_is_longer_than_a_sample_is_cut_and_what_then_has_nothing_to_learn_is_left_out():
    samples = documents(20, 6, 4, 1, learned=2).samples(5, seed=0)
    assert (samples.usable.cut, samples.usable.lost) == (0, 2)  # of 20 tokens the last two are learned, and lost
    assert samples.count == 2
    samples = documents(20, learned=16).samples(5, seed=0)
    assert samples.usable.cut == 1
    assert samples.batch(0, 1)[1].tolist() == [[IGNORE, IGNORE, IGNORE, 104, 105]]
    with pytest.raises(HeddleError, match="no document with anything to learn"):
        documents(20, learned=2).samples(5, seed=0)
    assert not has_samples(documents(20, learned=2), 5)
    assert not has_samples(documents(), 5)


def test_packed_samples_have_every_token_of_every_document_once():
    rng = np.random.default_rng(0)
    lengths = rng.integers(2, 18, 300)
    alone, together = documents(*lengths).samples(17, 0), documents(*lengths, pack=True).samples(17, 0)
    assert together.fill > 0.95 > alone.fill

    def pairs(samples):
        ids, targets = samples.batch(0, samples.count)
        return sorted(zip(ids[targets != IGNORE].tolist(), targets[targets != IGNORE].tolist(), strict=True))

    assert pairs(alone) == pairs(together)
    for number, lengths_of in enumerate(together.lengths_of(range(together.count))):
        assert sum(lengths_of) <= 17
        ids = together.batch(number, 1)[0][0]
        assert (ids[sum(lengths_of) :] == 9).all()


def plain_best_fit(lengths, capacity):
    """As the textbook has it, one document after the other."""
    rooms: list[list[int]] = []
    for length in sorted(lengths, reverse=True):
        fitting = [(capacity - sum(bin_), i) for i, bin_ in enumerate(rooms) if capacity - sum(bin_) >= length]
        if fitting:
            rooms[min(fitting)[1]].append(length)
        else:
            rooms.append([length])
    return sorted(map(sum, rooms))


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 30).flatmap(lambda c: st.tuples(st.just(c), st.lists(st.integers(1, c), max_size=60))))
def test_packing_is_best_fit_of_the_textbook(case):
    capacity, lengths = case
    members, first = packed(np.array(lengths, np.int64), capacity)
    assert sorted(members.tolist()) == list(range(len(lengths)))
    groups = np.split(members, first[1:]) if len(first) else []
    # which of two samples with the same room takes a document is all that is left open
    assert sorted(sum(lengths[i] for i in group) for group in groups) == plain_best_fit(lengths, capacity)


def test_packing_a_million_documents_takes_no_time_to_speak_of():
    lengths = np.minimum(np.random.default_rng(0).lognormal(5.5, 0.8, 1_000_000).astype(np.int64) + 2, 2048)
    members, first = packed(lengths, 2048)
    assert len(members) == len(lengths)
    assert lengths.sum() / (len(first) * 2048) > 0.95


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(1, 60), min_size=1, max_size=8))
def test_at_every_step_each_source_has_its_share_to_within_one(weights):
    turns = SourceTurns([float(weight) for weight in weights])
    source, number = turns.of(np.arange(3 * turns.period + 5))
    total = sum(weights)
    for index, weight in enumerate(weights):
        own = np.cumsum(source == index)
        assert number[source == index].tolist() == list(range(int(own[-1])))
        for step in range(len(source)):
            assert abs(int(own[step]) - Fraction((step + 1) * weight, total)) < 1
    assert turns.counts(turns.period + 2) == np.bincount(source[: turns.period + 2], minlength=len(weights)).tolist()


def test_weights_are_taken_as_they_are_written():
    assert whole_shares([0.7, 0.2, 0.1]) == (7, 2, 1)
    assert whole_shares([2.0, 1.0]) == (2, 1)
    with pytest.raises(HeddleError, match="no small common measure"):
        whole_shares([0.123456789, 0.987654321])


def test_a_mixture_gives_the_samples_of_its_sources_whichever_rank_asks():
    parts = documents(*[3] * 10), documents(*[4] * 4, first=50_000)
    mixed = samples_of(MixedDocuments(parts, (3.0, 1.0)), 5, 7)
    ids, targets = mixed.batch(0, 40)
    assert int((ids[:, 0] >= 50_000).sum()) == 10
    assert mixed.epochs(40) == [3.0, 2.5]
    for first, count in ((0, 7), (13, 20)):
        again = mixed.batch(first, count)
        assert np.array_equal(again[0], ids[first : first + count])
        assert np.array_equal(again[1], targets[first : first + count])
        assert mixed.targets(first, count) == int((again[1] != IGNORE).sum())
    alone = parts[1].samples(5, 7)
    assert np.array_equal(ids[ids[:, 0] >= 50_000], alone.batch(0, 10)[0])

"""Which processes were started together, through a store that remembers earlier starts."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest
import torch.distributed as dist

from heddle.runtime.environment import LaunchedRank
from heddle.runtime.starts import AbsentError, Start, agree_on_start

PATIENCE = 60.0


def meet(store: dist.Store, world: int, known: dict[int, int] | None = None) -> set[Start]:
    """What all processes of a start agree on, the last ones first."""
    with ThreadPoolExecutor(world) as pool:
        ranks = [
            pool.submit(agree_on_start, store, LaunchedRank(rank, world), (known or {}).get(rank, 0), PATIENCE)
            for rank in reversed(range(world))
        ]
        return {each.result() for each in ranks}


def test_four_become_two_and_four_again():
    """Ranks 0 and 1 were started three times, the others twice: no count of one's own names the start."""
    store, names = dist.HashStore(), set()
    for number, world in enumerate((4, 2, 4)):
        (start,) = meet(store, world)
        assert start.restarts == number
        names.add(start.name)
    assert len(names) == 3


def test_a_rank_that_starts_later_is_not_taken_for_the_one_that_died():
    store, others = dist.HashStore(), Event()
    meet(store, 3)
    with ThreadPoolExecutor(3) as pool:
        first = [pool.submit(agree_on_start, store, LaunchedRank(rank, 3), 0, PATIENCE) for rank in (0, 1)]
        assert not others.wait(0.5)  # rank 0 proposes, with the last one's old name
        assert not any(each.done() for each in first)
        last = pool.submit(agree_on_start, store, LaunchedRank(2, 3), 0, PATIENCE)
        assert len({each.result() for each in (*first, last)}) == 1


def test_the_launcher_may_know_of_more_starts_than_a_process():
    """Of those that died before they could say anything."""
    assert [start.restarts for start in meet(dist.HashStore(), 2, {1: 5})] == [5]


@pytest.mark.parametrize("before", [False, True], ids=["never there", "died before"])
def test_who_is_absent_is_named(before):
    store = dist.HashStore()
    if before:
        meet(store, 3)
    with pytest.raises(AbsentError) as absent:
        agree_on_start(store, LaunchedRank(0, 3), 0, patience=0.3)
    assert absent.value.ranks == [1, 2]

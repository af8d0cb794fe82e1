"""The sum over two ranks: right in any number of pieces, again and again, and sent before the other is ready."""

from __future__ import annotations

import time
from unittest.mock import patch

import pytest
import torch

import heddle.parallel.replicas.pair_sum
from heddle.parallel.mesh import Mesh
from heddle.parallel.replicas.pair_sum import PairSum
from heddle.spec import Plan

pytestmark = pytest.mark.dist

PLAN = Plan(pipeline=2)


def meant(rank: int, step: int, count: int) -> torch.Tensor:
    return torch.randn(count, generator=torch.Generator().manual_seed(1000 * rank + step))


def sums(mesh: Mesh, count: int, piece: int) -> list[torch.Tensor]:
    """Of three steps; now one rank is later, now the other."""
    found = []
    with patch.object(heddle.parallel.replicas.pair_sum, "PIECE", piece):
        numbers = torch.zeros(count)
        assert PairSum.serves(mesh.ends)
        pair = PairSum(numbers, mesh.ends)
        for step in range(3):
            pair.expect()
            if step % 2 == mesh.ends.rank:
                time.sleep(0.02)
            numbers.copy_(meant(mesh.ends.rank, step, count))
            found.append(pair.start().wait().clone())
            assert not pair.posted
            assert not pair.sent
    return found


@pytest.mark.parametrize("count", [1, 99, 100, 1234], ids=["one number", "one piece", "a whole piece", "many pieces"])
def test_both_have_the_same_sum(world, count):
    results = world.run(sums, PLAN, count, 100)
    for step, (one, two) in enumerate(zip(*results, strict=True)):
        assert torch.equal(one, two)
        assert torch.equal(one, meant(0, step, count) + meant(1, step, count))

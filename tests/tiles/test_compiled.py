"""What users do with a compiled module, rightly and wrongly."""

import os
import threading
from pathlib import Path

import pytest
import torch
from torch import nn

import heddle
from heddle import HeddleError
from heddle.tiles.compiled import bucket_of
from tests.helpers.launching import python
from tests.tiles.networks import largest_error


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(20, 33), nn.Linear(33, 5)

    def forward(self, x, scale=None):
        y = self.second(torch.relu(self.first(x)))
        return y if scale is None else {"y": y * scale, "x": x}


@pytest.fixture
def small():
    torch.manual_seed(0)
    module = Small().eval()
    return module, heddle.tiles.compile(module, (torch.randn(4, 20),), threads=2)


def test_every_signature_is_compiled_once_and_shares_weights(small):
    module, fast = small
    packed = len(fast.weights)
    for rows in (4, 1, 9, 1, 4):
        x = torch.randn(rows, 20)
        assert largest_error(module(x).detach(), fast(x)) < 1e-6
    assert len(fast.programs) == 3
    assert len(fast.weights) == packed == 2


def test_names_structures_and_strides_of_inputs(small):
    module, fast = small
    x = torch.randn(20, 7).t()
    found = fast(x, scale=torch.tensor(2.0))
    assert set(found) == {"y", "x"}
    assert largest_error(module(x, torch.tensor(2.0))["y"].detach(), found["y"]) < 1e-6


def test_nan_goes_where_pytorch_takes_it():
    module = nn.Sequential(nn.Linear(16, 16), nn.GELU(), nn.LayerNorm(16), nn.Softmax(-1), nn.ReLU()).eval()
    fast = heddle.tiles.compile(module, (torch.randn(6, 16),), threads=1)
    x = torch.randn(6, 16)
    x[1, 3], x[2, 0], x[4, 5] = float("nan"), 1e10, -1e10
    with torch.no_grad():
        wanted, found = module(x), fast(x)
    assert torch.equal(wanted.isnan(), found.isnan())
    assert torch.allclose(wanted.nan_to_num(), found.nan_to_num(), atol=1e-6)


class Masked(nn.Module):
    def forward(self, x, mask):
        return nn.functional.scaled_dot_product_attention(x, x, x, attn_mask=mask)


@pytest.mark.parametrize("kind", [torch.bool, torch.float32])
def test_masks_that_are_given_and_queries_that_see_nothing(kind):
    x, mask = torch.randn(2, 3, 21, 8), torch.rand(2, 1, 21, 21) > 0.4
    mask[1, 0, 4] = False
    given = mask if kind == torch.bool else torch.zeros(mask.shape).masked_fill(~mask, float("-inf"))
    fast = heddle.tiles.compile(Masked(), (x, given), threads=2)
    assert not [name for name in fast.fallback_operators if "clone" not in name]
    assert largest_error(Masked()(x, given).contiguous(), fast(x, given).contiguous()) < 1e-5


def test_wrong_inputs_are_told_in_three_parts(small):
    _, fast = small
    for wrong in (torch.randn(4, 19), torch.randn(4, 20, dtype=torch.float64), torch.randint(0, 9, (4, 20))):
        with pytest.raises(HeddleError):
            fast(wrong)
    with pytest.raises(HeddleError, match="sparse"):
        fast(torch.eye(20).to_sparse())
    with pytest.raises(HeddleError, match="threads"):
        heddle.tiles.compile(Small(), (torch.randn(1, 20),), threads=0)
    with pytest.raises(HeddleError, match=r"not a torch\.nn\.Module"):
        heddle.tiles.compile(print, (torch.randn(1, 20),))


def test_an_index_outside_its_table_is_an_error_not_a_crash():
    module = nn.Embedding(10, 24).eval()
    fast = heddle.tiles.compile(module, (torch.tensor([1, 2]),), threads=1)
    for wrong in (10, -1, 2**40):
        with pytest.raises(HeddleError, match="outside its table"):
            fast(torch.tensor([1, wrong]))
    assert torch.equal(fast(torch.tensor([9, 0])), module.weight.detach()[[9, 0]])


class Branches(nn.Module):
    def forward(self, x):
        return x * 2 if x.sum() > 0 else -x


class Counts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return x + self.calls


class Overwrites(nn.Module):
    def forward(self, x):
        return x.mul_(2)


@pytest.mark.parametrize("make", [Branches, Counts, Overwrites, lambda: nn.Dropout(0.5).train()])
def test_what_cannot_be_tiles_runs_in_pytorch_and_says_why(make):
    fast = heddle.tiles.compile(make(), (torch.ones(3),), threads=1)
    assert fast.whole
    assert "PyTorch runs the whole module" in fast.summary()
    if make is Branches:
        assert torch.equal(fast(torch.ones(3)), 2 * torch.ones(3))
        assert torch.equal(fast(-torch.ones(3)), torch.ones(3))
    if make is Overwrites:
        x = torch.ones(3)
        fast(x)
        assert torch.equal(x, 2 * torch.ones(3))


def test_threads_may_call_one_module_at_once(small):
    module, fast = small
    wrong = []

    def call(seed):
        chance = torch.Generator().manual_seed(seed)
        for _ in range(40):
            x = torch.randn(4, 20, generator=chance)
            if largest_error(module(x).detach(), fast(x)) > 1e-6:
                wrong.append(seed)

    callers = [threading.Thread(target=call, args=(seed,)) for seed in range(5)]
    for each in callers:
        each.start()
    for each in callers:
        each.join()
    assert not wrong


def test_a_failing_operator_raises_where_it_was_called():
    class Fails(nn.Module):
        def forward(self, x, index):
            return torch.index_select(x, 0, index) + 1

    fast = heddle.tiles.compile(Fails(), (torch.randn(4, 3), torch.tensor([0, 1])), threads=2)
    with pytest.raises(IndexError):
        fast(torch.randn(4, 3), torch.tensor([0, 7]))
    assert fast(torch.ones(4, 3), torch.tensor([3, 3])).eq(2).all()


def test_networks_of_a_group_share_workers():
    torch.manual_seed(0)
    modules = [Small().eval() for _ in range(3)]
    with heddle.tiles.Group(threads=2) as group:
        fast = [
            group.compile(module, (torch.randn(4, 20),), priority=priority)
            for module, priority in zip(modules, ("high", "normal", "low"), strict=True)
        ]
        x = torch.randn(4, 20)
        found: dict[int, torch.Tensor] = {}
        callers = [
            threading.Thread(target=lambda n=n: found.update({n: [fast[n](x) for _ in range(30)][-1]}))
            for n in range(3)
        ]
        for each in callers:
            each.start()
        for each in callers:
            each.join()
        for number, module in enumerate(modules):
            assert largest_error(module(x).detach(), found[number]) < 1e-6
        with pytest.raises(HeddleError, match="priority"):
            group.compile(modules[0], (x,), priority="urgent")
    with pytest.raises(HeddleError, match="closed"):
        group.compile(modules[0], (x,))


class Outer(nn.Module):
    def forward(self, x):
        return x.view(-1, 1) * x.view(1, -1)


def test_too_little_memory_is_told():
    x = torch.ones(1 << 21)  # 16 TiB of numbers
    fast = heddle.tiles.compile(Outer(), (x,), threads=1)
    with pytest.raises(HeddleError, match="memory for the module's outputs"):
        fast(x)


ENDS = """
import threading, torch, heddle
module = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(30)], torch.nn.Softplus()).eval()
x = torch.randn(64, 256)
fast = heddle.tiles.compile(module, (x,), threads=2)
fast(x)
def forever():
    while True:
        fast(x)
threading.Thread(target=forever, daemon=True).start()
import time; time.sleep(0.2)
"""


def test_python_may_end_while_a_call_is_under_way():
    process = python("-c", ENDS, cwd=Path.cwd())
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors


def test_a_forked_process_has_workers_of_its_own(small):
    _, fast = small
    x = torch.randn(4, 20)
    wanted = fast(x)
    child = os.fork()
    if child == 0:
        os._exit(0 if torch.equal(fast(x), wanted) else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_tuning_is_remembered(small, tmp_path, monkeypatch):
    monkeypatch.setenv("HEDDLE_TILES_CACHE", str(tmp_path))
    module, _ = small
    x = torch.randn(64, 20)
    fast = heddle.tiles.compile(module, (x,), threads=1, tune=True)
    assert largest_error(module(x).detach(), fast(x)) < 1e-6
    assert list(tmp_path.glob("tiling-*.json"))
    again = heddle.tiles.compile(module, (x,), threads=1)
    assert next(iter(again.programs.values())).tiling == next(iter(fast.programs.values())).tiling


@pytest.mark.parametrize("by_data", [False, True])
def test_weights_of_two_times_are_not_joined(by_data):
    module, x = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).eval(), torch.randn(3, 8)
    fast = heddle.tiles.compile(module, (x,), threads=2)
    before = module(x).detach()
    assert fast(torch.ones(5, 8)).shape == (5, 4)  # a new shape, the same weights
    with torch.no_grad():
        (module[0].bias.data if by_data else module[0].bias).add_(1)
    assert torch.allclose(fast(x), before, atol=1e-6)  # compiled when it still had the old ones
    with pytest.raises(HeddleError, match="weights have changed"):
        fast(torch.ones(6, 8))
    assert torch.allclose(heddle.tiles.compile(module, (x,), threads=2)(x), module(x), atol=1e-6)


class Causal(torch.nn.Module):
    """A layer whose tokens see what lies before them, and one output of all."""

    def __init__(self):
        super().__init__()
        self.qkv, self.table = torch.nn.Linear(16, 48), torch.nn.Embedding(11, 16)

    def forward(self, ids, whole=False):
        x = self.table(ids)
        q, k, v = self.qkv(x).view(*ids.shape, 3, 2, 8).permute(2, 0, 3, 1, 4)
        y = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        return y.mean(1) if whole else (y, y[:, 0])


@torch.no_grad()
def test_sizes_share_what_is_compiled_where_nothing_depends_on_the_end():
    module = Causal()
    ids = torch.randint(0, 11, (2, 40))
    fast = heddle.tiles.compile(module, (ids[:, :7],), dynamic={0: 1})
    for size in (5, 7, 8, 9, 11, 12, 13, 17):
        for ours, theirs in zip(fast(ids[:, :size]), module(ids[:, :size]), strict=True):
            assert ours.shape == theirs.shape
            assert torch.allclose(ours, theirs, atol=1e-5)
    assert len(fast.programs) == 5  # 6, 8, 12, 16 and 24
    with pytest.raises(HeddleError, match="depends on how far"):
        fast(ids[:, :5], whole=True)
    with pytest.raises(HeddleError, match="not a dim of any example"):
        heddle.tiles.compile(module, (ids,), dynamic={0: 2})
    assert [bucket_of(size) for size in (1, 2, 3, 4, 5, 6, 7, 9, 12, 13, 25)] == [1, 2, 3, 4, 6, 6, 8, 12, 12, 16, 32]

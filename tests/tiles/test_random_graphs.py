"""Random modules as tiles against the same modules in PyTorch."""

import pytest
import torch

import heddle
from tests.helpers.cases import thinned
from tests.tiles.networks import RandomImages, RandomTokens, largest_error, shaken


@pytest.mark.parametrize("kind", [RandomTokens, RandomImages])
@pytest.mark.parametrize("seed", thinned(range(6), slow=range(3, 6)))
def test_tiles_compute_what_pytorch_does(kind, seed):
    torch.manual_seed(seed)
    module = shaken(kind(seed))
    inputs = module.example()
    fast = heddle.tiles.compile(module, inputs, threads=1 + seed % 3)
    with torch.no_grad():
        for again in (inputs, module.example()):
            assert largest_error(module(*again), fast(*again)) < 1e-5


def test_what_no_kernel_covers_runs_in_pytorch_and_is_named():
    module = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Softshrink(), torch.nn.Linear(8, 8)).eval()
    fast = heddle.tiles.compile(module, (torch.randn(3, 8),), threads=2)
    assert fast.fallback_operators == ["aten.sign.default"]
    assert "sign" in fast.summary()
    x = torch.randn(3, 8)
    assert largest_error(module(x).detach(), fast(x)) < 1e-5

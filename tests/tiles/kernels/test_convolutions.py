"""Convolutions by their special ways: 3 × 3 in fewer products, and turned images."""

import numpy as np
import pytest
import torch
from torch import nn

import heddle
from heddle.tiles.kernels.turn import Turn
from tests.tiles.kernels.test_kernels import code, run  # noqa: F401 - a fixture

CLOSE = 1e-5  # of the largest number: what tiles promise


def operators(fast) -> list[str]:
    return [type(each).__name__ for each in next(iter(fast.programs.values())).graph.operators]


def largest_error(wanted: torch.Tensor, found: torch.Tensor) -> float:
    return float((wanted - found).detach().abs().max() / wanted.detach().abs().max())


@pytest.mark.parametrize(("rows", "columns"), [(3, 50), (1, 7), (4, 16), (2, 33), (16, 16), (5, 40), (49, 35), (37, 8)])
def test_a_matrix_is_turned_over(code, rows, columns):  # noqa: F811
    source = torch.randn(rows, columns)
    out = torch.full((columns + 1, rows), 7.0)
    middle = min(columns, code.target.lanes)
    for first, last in ((middle, columns), (0, middle)):
        run(code, Turn(rows, columns, columns, rows), out, source, first, last)
    assert torch.equal(out[:columns], source.t())
    assert (out[columns] == 7).all()


@pytest.mark.parametrize("shape", [(2, 3, 9, 7), (1, 40, 5, 6), (3, 17, 4, 4)])
def test_images_are_turned_on_their_way_in_and_out(shape):
    module, x = nn.Conv2d(shape[1], 20, 1).eval(), torch.randn(shape)
    fast = heddle.tiles.compile(module, (x,), threads=2)
    assert operators(fast)[0] == operators(fast)[-1] == "TurnOperator"
    assert largest_error(module(x), fast(x)) < CLOSE


class Residual(nn.Module):
    def __init__(self, channels: int, outputs: int, padding: int) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(channels, outputs, 3, padding=padding), nn.Conv2d(channels, outputs, 1)
        self.crop = 1 - padding

    def forward(self, x):
        kept = self.second(x)
        kept = kept[:, :, 1:-1, 1:-1] if self.crop else kept
        return (self.first(x) + kept).relu()


CASES = [(1, 64, 64, 12, 16, 1), (3, 32, 96, 10, 14, 1), (1, 48, 192, 18, 16, 0), (2, 64, 32, 8, 10, 1)]


@pytest.mark.parametrize(("images", "channels", "outputs", "height", "width", "padding"), CASES)
def test_3_by_3_convolutions_in_fewer_products(images, channels, outputs, height, width, padding):
    module, x = Residual(channels, outputs, padding).eval(), torch.randn(images, channels, height, width)
    fast = heddle.tiles.compile(module, (x,), threads=2)
    assert "WinogradOperator" in operators(fast)
    assert largest_error(module(x), fast(x)) < CLOSE


@pytest.mark.parametrize(
    ("channels", "height", "width", "options"),
    [(64, 13, 16, {}), (64, 12, 16, {"stride": 2}), (64, 12, 16, {"dilation": 2}), (64, 12, 16, {"groups": 2}),
     (8, 12, 16, {}), (64, 4, 4, {})],
)  # fmt: skip
def test_other_3_by_3_convolutions_are_plain_products(channels, height, width, options):
    module, x = nn.Conv2d(channels, channels, 3, padding=1, **options).eval(), torch.randn(1, channels, height, width)
    fast = heddle.tiles.compile(module, (x,), threads=2)
    assert "WinogradOperator" not in operators(fast)
    assert largest_error(module(x), fast(x)) < CLOSE


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -float("inf"), 3e38])
def test_what_is_not_finite_stays_where_it_belongs(wrong):
    """Sums and differences would carry it to the neighbors within a square of pixels."""
    module, x = nn.Conv2d(64, 64, 3, padding=1).eval(), torch.randn(2, 64, 12, 16)
    with torch.no_grad():
        module.weight.mul_(30)  # 3e38 overflows in sums, and without them only in some
    x[0, 3, 5, 6] = x[1, 2, 0, 0] = x[1, 7, 11, 14] = wrong
    fast = heddle.tiles.compile(module, (x,), threads=2)
    assert "WinogradOperator" in operators(fast)
    wanted, found = module(x).detach().numpy(), fast(x).numpy()
    assert not np.isfinite(wanted).all()
    for kind in (np.isnan, np.isposinf, np.isneginf):
        assert (kind(wanted) == kind(found)).all()
    finite = np.isfinite(wanted) & (np.abs(wanted) < 1e30)
    assert np.abs(wanted[finite] - found[finite]).max() < 1e-5 * np.abs(wanted[finite]).max()


def test_weights_that_are_not_finite_are_not_summed():
    module, x = nn.Conv2d(64, 64, 3, padding=1).eval(), torch.randn(1, 64, 12, 16)
    with torch.no_grad():
        module.weight[3, 2, 1, 1] = float("inf")
    fast = heddle.tiles.compile(module, (x,), threads=2)
    assert "WinogradOperator" not in operators(fast)
    assert torch.allclose(module(x), fast(x), atol=1e-5, equal_nan=True)


@pytest.mark.parametrize("limit", [0.0, 6.0, float("nan")])
def test_bounds_that_are_known_keep_nan(limit):
    class Bounds(nn.Module):
        def forward(self, x):
            return torch.clamp(x, min=limit) + torch.clamp(x, max=limit)

    x = torch.tensor([float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 6.0, 7.0, -7.0] * 3)
    fast = heddle.tiles.compile(Bounds(), (x,), threads=1)
    assert torch.equal(fast(x).nan_to_num(99.0), Bounds()(x).nan_to_num(99.0))
    assert torch.equal(fast(x).isnan(), Bounds()(x).isnan())

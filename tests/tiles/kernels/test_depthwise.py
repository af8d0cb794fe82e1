"""Depthwise convolutions by runs of pixels, with the product behind them, and images of a few channels."""

import pytest
import torch
from torch import nn

import heddle
from heddle.tiles.kernels.depthwise import Line
from tests.tiles.kernels.test_convolutions import CLOSE, largest_error, operators

# channels, kernel, stride, padding, dilation, height and width
WINDOWS = [
    (41, 3, 1, 1, 1, 22), (17, 7, 1, 3, 1, 28), (40, 5, 2, 2, 1, 15), (16, 3, 1, 2, 2, 19), (20, 3, 1, 12, 12, 14),
    (16, (1, 7), 3, (0, 3), 1, 20),
]  # fmt: skip


@pytest.mark.parametrize(("channels", "kernel", "stride", "padding", "dilation", "size"), WINDOWS)
def test_windows_of_all_kinds(channels, kernel, stride, padding, dilation, size):
    module = nn.Conv2d(channels, channels, kernel, stride, padding, dilation, groups=channels).eval()
    x = torch.randn(2, channels, size, size + 2)
    fast = heddle.tiles.compile(module, (x,), threads=2)
    assert "DepthwiseOperator" in operators(fast)
    assert largest_error(module(x), fast(x)) < CLOSE


def test_large_windows_are_convolved_pixel_by_pixel():
    module, x = nn.Conv2d(16, 16, 9, padding=4, groups=16).eval(), torch.randn(1, 16, 12, 12)
    fast = heddle.tiles.compile(module, (x,), threads=2)
    assert "WindowsOperator" in operators(fast)
    assert largest_error(module(x), fast(x)) < CLOSE


@pytest.mark.parametrize(("made", "runs"), [(7, [7]), (14, [7, 7]), (13, [7, 6]), (56, [8] * 7), (1, [1])])
def test_a_row_is_cut_into_even_runs(made, runs):
    line = Line(made, made, 3, 1, 1, 1)
    assert [count for _, count in line.runs] == runs
    assert line.edges <= 2


class Separable(nn.Module):
    """As in MobileNet, with what it began with added at the end."""

    def __init__(self, channels: int, outputs: int, stride: int, adds: bool) -> None:
        super().__init__()
        self.wide = nn.Conv2d(outputs, channels, 1)
        self.each = nn.Conv2d(channels, channels, 3, stride, 1, groups=channels)
        self.narrow, self.adds = nn.Conv2d(channels, outputs, 1), adds

    def forward(self, x):
        found = self.narrow(self.each(self.wide(x).clamp(0, 6)).clamp(0, 6))
        return found + x if self.adds else found


@pytest.mark.parametrize(
    ("images", "channels", "outputs", "stride", "size", "threads"),
    [(1, 96, 24, 1, 40, 1), (2, 64, 33, 1, 31, 2), (1, 128, 16, 2, 58, 2), (3, 65, 48, 1, 27, 1)],
)
def test_the_product_behind_a_depthwise_convolution_is_done_with_it(images, channels, outputs, stride, size, threads):
    module = Separable(channels, outputs, stride, stride == 1).eval()
    x = torch.randn(images, outputs, size, size)
    fast = heddle.tiles.compile(module, (x,), threads=threads)
    assert "SeparableOperator" in operators(fast)
    assert "DepthwiseOperator" not in operators(fast)
    assert largest_error(module(x), fast(x)) < CLOSE


def test_what_others_read_too_is_kept():
    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.each, self.narrow = nn.Conv2d(96, 96, 3, padding=1, groups=96), nn.Conv2d(96, 24, 1)

        def forward(self, x):
            each = self.each(x).relu()
            return self.narrow(each), each

    module, x = Both().eval(), torch.randn(1, 96, 40, 40)
    fast = heddle.tiles.compile(module, (x,), threads=2)
    assert "SeparableOperator" not in operators(fast)
    for wanted, found in zip(module(x), fast(x), strict=True):
        assert largest_error(wanted, found) < CLOSE


FEW = [
    (3, 20, 7, 2, 3, 1, 32), (1, 16, 5, 1, 0, 1, 28), (8, 33, 3, 1, "same", 1, 17), (3, 16, 3, 1, 2, (2, 1), 20),
    (7, 16, 3, 3, 1, 1, 20),
]  # fmt: skip


@pytest.mark.parametrize(("channels", "outputs", "kernel", "stride", "padding", "dilation", "size"), FEW)
def test_images_of_few_channels(channels, outputs, kernel, stride, padding, dilation, size):
    layer = nn.Conv2d(channels, outputs, kernel, stride, padding, dilation)
    module, x = nn.Sequential(layer, nn.ReLU()).eval(), torch.randn(2, channels, size, size + 3)
    fast = heddle.tiles.compile(module, (x,), threads=2)
    assert operators(fast)[0] == "BorderOperator"
    assert largest_error(module(x), fast(x)) < CLOSE


@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_what_is_not_finite_reaches_only_its_windows(wrong):
    module, x = nn.Conv2d(3, 16, 3, padding=1).eval(), torch.randn(1, 3, 12, 16)
    x[0, 1, 0, 0] = x[0, 0, 7, 15] = wrong
    found = heddle.tiles.compile(module, (x,), threads=1)(x)
    assert torch.equal(found.isfinite(), module(x).isfinite())

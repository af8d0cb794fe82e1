"""Operators that PyTorch does not have, registered in the two ways that there are."""

from __future__ import annotations

import torch
from torch import Tensor, nn

LIBRARY = torch.library.Library("heddle_test_library", "DEF")
LIBRARY.define("twice(Tensor x) -> Tensor")
LIBRARY.impl("twice", lambda x: 2 * x, "CompositeExplicitAutograd")
torch.library.register_fake("heddle_test_library::twice", torch.empty_like, lib=LIBRARY)


@torch.library.custom_op("heddle_test_custom::thrice", mutates_args=())
def thrice(x: Tensor) -> Tensor:
    return 3 * x


thrice.register_fake(torch.empty_like)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(64, 64), nn.Linear(64, 64)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.ops.heddle_test_library.twice(self.a(x))
        return torch.ops.heddle_test_custom.thrice(self.b(x))


def make() -> tuple[nn.Module, tuple[Tensor]]:
    torch.manual_seed(0)
    return Net().eval(), (torch.randn(32, 64),)

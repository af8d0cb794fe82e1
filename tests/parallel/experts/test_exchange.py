"""Rows on their way to experts: what is computed beside them, forward and backward."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

import heddle.parallel.experts.exchange as exchange
from heddle.models.transformer import Microbatch, make_mlp
from heddle.parallel.mesh import Axis
from tests.helpers.small_models import experts


def test_shared_experts_compute_while_rows_and_their_gradients_travel():
    """On one process whose messages come back to itself: only the order is looked at."""
    log: list[str] = []

    class Echo:
        def __init__(self, x: Tensor) -> None:
            self.result = x

        def wait(self) -> Tensor:
            log.append("wait")
            return self.result

    def start(x: Tensor, *_: Any) -> Echo:
        log.append("start")
        return Echo(x.clone())

    mlp: Any = make_mlp(experts(shared_experts=1, balance_loss=0.0, z_loss=0.0).layer(0))
    for parameter in mlp.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    mlp.shared.down.register_forward_hook(lambda *_: log.append("shared"))
    mlp.shared.down.register_full_backward_hook(lambda *_: log.append("shared back"))
    with patch.object(exchange, "start_all_to_all", start):
        exchange.share_experts(mlp.experts, Axis(0, (0, 1)))
        x = torch.randn(12, 16, requires_grad=True)
        out = mlp(x, Microbatch(sequence=6))
        # how many rows will come; rows; what experts made of them
        assert log == ["start", "wait", "start", "shared", "wait", "start", "wait"]
        log.clear()
        out.sum().backward()
    assert log == ["start", "wait", "start", "shared back", "wait"]

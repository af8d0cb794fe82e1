"""Experts split over the tensor axis: every rank has a slice of each expert's width, and all tokens.

Between where tokens come to all ranks and where the ranks' parts are summed, every gradient is a part of the whole: of
the tokens, of the router and of the gate. One sum at each end makes the tokens' whole, as in a dense MLP, and the
others are summed with all other gradients.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from heddle.models.experts import ExpertMLP
from heddle.models.transformer import GatedMLP
from heddle.parallel.mesh import Axis
from heddle.parallel.parameter_layout import place_of, set_place, split_parameter
from heddle.parallel.tensor.region import enter_region, leave_region


def split_experts(mlp: ExpertMLP, axis: Axis, sequence: bool) -> None:
    """Columns of each expert's first products, rows of its last."""
    split = partial(split_parameter, rank=axis.rank, size=axis.size)
    experts, shared = mlp.experts, mlp.shared
    experts.gate, experts.up, experts.down = split(experts.gate, 1), split(experts.up, 1), split(experts.down, 2)
    if isinstance(shared, GatedMLP):
        shared.gate.weight, shared.up.weight = split(shared.gate.weight, 0), split(shared.up.weight, 0)
        shared.down.weight = split(shared.down.weight, 1)
    if experts.gate_bias is not None and experts.up_bias is not None:
        experts.gate_bias, experts.up_bias = split(experts.gate_bias, 1), split(experts.up_bias, 1)
        experts.bias_share = 1 / axis.size  # of what is added to the sum, which every rank adds to its part
    gate = None if mlp.shared_gate is None else mlp.shared_gate.weight
    for parameter in (mlp.router.weight, mlp.router.bias, gate, experts.down_bias):
        if parameter is not None:
            set_place(parameter, replace(place_of(parameter), partial=frozenset({"tensor"})))
    mlp.router.share = 1 / axis.size  # of its losses, which every rank computes
    mlp.enter = partial(enter_region, axis=axis, sequence=sequence)
    mlp.leave = partial(leave_region, axis=axis, sequence=sequence)

"""Adapters of layers that tensor-parallel ranks share: A and B split like the weight beside them, or whole.

Beside a column-parallel weight every rank has all of A and its rows of B, beside a row-parallel one its columns of A
and all of B. Between the two travel `rank` numbers of each token. Where a rank sees only its slice of the tokens, its
gradient of what it holds whole is a part, and summed like that of a norm.
"""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor, nn

from heddle.models.lora import AdaptedLinear, AdapterExchange, Adapters
from heddle.parallel.collectives import gather, sum_partial, sum_to_slice, to_all, to_all_gathered
from heddle.parallel.mesh import Axis
from heddle.parallel.parameter_layout import place_of, set_place, split_parameter


class ColumnExchange(AdapterExchange):
    """From A, which all ranks compute alike or for their tokens, to everybody's rows of B."""

    def __init__(self, axis: Axis, sequence: bool) -> None:
        self.axis, self.sequence = axis, sequence

    def __call__(self, x: Tensor) -> Tensor:
        return (to_all_gathered if self.sequence else to_all)(x, self.axis)


class RowExchange(AdapterExchange):
    """From everybody's part of A's sum to all of B, for all tokens or this rank's."""

    def __init__(self, axis: Axis, sequence: bool) -> None:
        self.axis, self.sequence = axis, sequence

    def __call__(self, x: Tensor) -> Tensor:
        return (sum_to_slice if self.sequence else sum_partial)(x, self.axis)

    def keys(self, keys: Tensor) -> Tensor:
        """Of all tokens: those of a rank's activations are a slice."""
        return gather(keys, self.axis) if self.sequence else keys


def column_adapters(linear: nn.Linear, axis: Axis, sequence: bool) -> Adapters | None:
    """Those beside a weight whose rows are split."""
    found = _taken(linear)
    if found is not None and axis.size > 1:
        found.exchange = ColumnExchange(axis, sequence)
        for pair in found.by_target.values():
            pair.lora_b = split_parameter(pair.lora_b, 0, axis.rank, axis.size)
            _partial(pair.lora_a, sequence)
    return found


def row_adapters(linear: nn.Linear, axis: Axis, sequence: bool) -> Adapters | None:
    """Those beside a weight whose columns are split."""
    found = _taken(linear)
    if found is not None and axis.size > 1:
        found.exchange = RowExchange(axis, sequence)
        for pair in found.by_target.values():
            pair.lora_a = split_parameter(pair.lora_a, 1, axis.rank, axis.size)
            _partial(pair.lora_b, sequence)
            found.first = axis.rank * pair.lora_a.shape[1]
    return found


def _taken(linear: nn.Linear) -> Adapters | None:
    return linear.adapters if isinstance(linear, AdaptedLinear) else None


def _partial(parameter: nn.Parameter, sequence: bool) -> None:
    if sequence:
        set_place(parameter, replace(place_of(parameter), partial=frozenset({"tensor"})))

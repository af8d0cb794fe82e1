"""What a plan may do with experts: over how many ranks they are split, and whether tensor ranks split their width.

With whole experts (`expert_tensor = 1`) tensor ranks are among those that share them, so more degrees are possible, and
every tensor rank sends its own share of the tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import gcd

import numpy as np

from heddle.errors import divisors
from heddle.planning.search.given import Fixed
from heddle.spec.model import ModelSpec


def expert_widths(model: ModelSpec, tensor: int, tokens: Sequence[int], fixed: Fixed) -> list[int]:
    """What `expert_tensor` may be for microbatches of so many tokens: 0: all split them; 1: none does."""
    several = tensor > 1 and any(model.expert_counts)
    legal = [0, *[1] * (several and any(count % tensor == 0 for count in tokens))]
    if "expert_tensor" not in fixed:
        return legal
    given = fixed["expert_tensor"]
    same = given in (1, tensor) and any(model.expert_counts) and (given != 1 or tensor == 1)  # as 0 in other words
    return [given] if given in legal or same else []


def expert_degrees(model: ModelSpec, replicas: int, tensor: int, widths: Sequence[int]) -> list[int]:
    """Over how many ranks a model's experts can be split: of its replicas, or if they may be whole of tensor, too."""
    counts = model.expert_counts - {0}
    if not counts:
        return [1]
    whole = 1 in widths and tensor > 1
    ranks = ([replicas] if set(widths) - {1} or not whole else []) + ([replicas * tensor] if whole else [])
    return sorted({degree for number in ranks for degree in divisors(gcd(number, *counts))})


def whole_experts(columns: Mapping[str, np.ndarray]) -> np.ndarray:
    """Whether tensor ranks share experts, and split none."""
    return np.asarray((columns["expert_tensor"] == 1) & (columns["tensor"] > 1))


def experts_come_out(columns: Mapping[str, np.ndarray], sequence: int) -> np.ndarray:
    """Whether the ranks of each plan can be grouped to share experts, and share the tokens that they send."""
    whole, tensor = whole_experts(columns), columns["tensor"]
    ranks = columns["data"] * columns["context"] * np.where(whole, tensor, 1)
    tokens = columns["microbatch"].astype(np.int64) * sequence // columns["context"]
    return np.asarray((ranks % columns["expert"] == 0) & (~whole | (tokens % tensor == 0)))

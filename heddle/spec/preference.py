"""Learning from preferences: which of two answers is the better one."""

from __future__ import annotations

from dataclasses import dataclass

from heddle.spec.ranges import Positive, check_ranges


@dataclass(frozen=True, kw_only=True)
class Preference:
    """Direct preference optimization (arXiv 2305.18290).

    The reference is the model that training starts from: with [tune] the frozen one, without adapters; else a copy.
    """

    beta: Positive = 0.1  # how far the model may go from its reference: the larger, the less

    def __post_init__(self) -> None:
        check_ranges(self, "preference")

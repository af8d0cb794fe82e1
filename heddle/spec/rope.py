"""How rotary positions are stretched beyond the length that a model was first trained on, in the field's five ways."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

from heddle.errors import HeddleError, listing
from heddle.spec.ranges import Amount, CountOrZero, Positive, check_ranges
from heddle.spec.tables import WHERE_SAID

RopeKind = Literal["llama3", "linear", "dynamic", "yarn", "longrope"]

# what each way needs, beside what it may have
NEEDS: dict[str, tuple[str, ...]] = {
    "llama3": ("factor", "low_frequency_factor", "high_frequency_factor", "original_sequence"),
    "linear": ("factor",),
    "dynamic": ("factor",),
    "yarn": ("factor", "original_sequence"),
    "longrope": ("short_factors", "long_factors", "original_sequence"),
}


@dataclass(frozen=True)
class RopeScaling:
    """How rotary positions are stretched; numbers that a way does not use are left out, which is 0."""

    factor: Amount = 0.0
    low_frequency_factor: Amount = 0.0
    high_frequency_factor: Amount = 0.0
    original_sequence: CountOrZero = 0
    kind: RopeKind = field(default="llama3", metadata=WHERE_SAID)
    beta_fast: Positive = field(default=32.0, metadata=WHERE_SAID)  # of yarn: turns from which on nothing is stretched
    beta_slow: Positive = field(default=1.0, metadata=WHERE_SAID)  # of yarn: turns up to which all is
    whole_numbers: bool = field(default=True, metadata=WHERE_SAID)  # of yarn: both bounds are rounded to whole pairs
    # of yarn and longrope: what cosines and sines are multiplied by; 0: what its paper says for the factor
    attention_factor: Amount = field(default=0.0, metadata=WHERE_SAID)
    # of yarn: all scores are multiplied by the square of 0.1 · this · ln(factor) + 1 (DeepSeek's mscale_all_dim)
    score_factor: Amount = field(default=0.0, metadata=WHERE_SAID)
    short_factors: tuple[Positive, ...] = field(default=(), metadata=WHERE_SAID)  # of longrope, one for each pair
    long_factors: tuple[Positive, ...] = field(default=(), metadata=WHERE_SAID)
    layers: Literal["all", "full"] = field(default="all", metadata=WHERE_SAID)  # "full": those without a window

    def __post_init__(self) -> None:
        check_ranges(self, "model.rope_scaling")
        missing = [name for name in NEEDS[self.kind] if not getattr(self, name)]
        if missing:
            raise HeddleError(
                f"[model.rope_scaling] lacks '{missing[0]}'.",
                f'kind = "{self.kind}" needs {listing(NEEDS[self.kind])}.',
                f"Add {missing[0]} = … to [model.rope_scaling].",
            )
        if self.kind == "llama3" and self.low_frequency_factor >= self.high_frequency_factor:
            raise HeddleError(
                f"low_frequency_factor = {self.low_frequency_factor} is not below high_frequency_factor = "
                f"{self.high_frequency_factor}.",
                "Frequencies between the two are blended.",
                "Llama 3.1 has 1.0 and 4.0.",
            )

    @property
    def sharpness(self) -> float:
        """What queries and keys are each multiplied by beside their turning."""
        return sharpness(self.factor, self.score_factor) if self.score_factor else 1.0

    def check(self, size: int) -> None:
        """Refuse factors that are not one for each pair of the numbers that turn."""
        for name in ("short_factors", "long_factors"):
            count = len(getattr(self, name))
            if self.kind == "longrope" and count != size // 2:
                raise HeddleError(
                    f"model.rope_scaling.{name} has {count} numbers, but {size // 2} pairs turn.",
                    "It has one number for each pair.",
                    "The model's own config.json has it right.",
                )


def sharpness(factor: float, scale: float) -> float:
    """What makes up for the flatter softmax over a longer text (arXiv 2309.00071 Eq. 22, with DeepSeek's scale)."""
    return 1.0 if factor <= 1 else 0.1 * scale * math.log(factor) + 1.0


Turns = tuple[float, bool]  # what sets rotary positions of layers apart: their base, and whether they are stretched

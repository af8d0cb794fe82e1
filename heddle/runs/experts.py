"""How many tokens each expert of a run has had: a line of `experts.jsonl` every so many steps."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from heddle.files import parse_json, read_lines

EXPERTS = "experts.jsonl"
LARGEST = 1 << 30  # bytes of such a file
ENOUGH = 64  # tokens that an expert has on average before one without any is worth a word


@dataclass(frozen=True)
class ExpertUses:
    """Tokens of each expert, by layer, in the steps since the line before."""

    step: int
    layers: Mapping[int, Sequence[int]]

    @property
    def balance(self) -> float:
        """Tokens of the most used expert over the mean's, in the layer where that is most; 1: all are even."""
        return max((most_over_mean(uses) for uses in self.layers.values()), default=1.0)

    @property
    def dead(self) -> dict[int, list[int]]:
        """Experts that no token went to, by layer, where enough went to the others."""
        found = {
            layer: [number for number, tokens in enumerate(uses) if not tokens]
            for layer, uses in self.layers.items()
            if sum(uses) >= ENOUGH * len(uses)
        }
        return {layer: numbers for layer, numbers in found.items() if numbers}

    @property
    def line(self) -> str:
        """As it stands in the file."""
        return json.dumps({"step": self.step, "layers": {str(layer): list(u) for layer, u in self.layers.items()}})


def most_over_mean(uses: Sequence[int]) -> float:
    """Of one layer."""
    return max(uses) * len(uses) / max(1, sum(uses))


def dead_in_words(dead: Mapping[int, Sequence[int]]) -> str:
    """Which experts had nothing to do: "layer 3: 0, 5; layer 7: 2"."""
    parts = [
        f"layer {layer}: {', '.join(map(str, numbers[:8]))}{', …' * (len(numbers) > 8)}"
        for layer, numbers in dead.items()
    ]
    return "; ".join(parts[:4]) + "; …" * (len(parts) > 4)


def read_uses(path: Path) -> list[ExpertUses]:
    """The lines that are whole, in the order of their steps; a step that was taken twice counts as it was last."""
    if not path.exists():
        return []
    rows: dict[int, ExpertUses] = {}
    for line in read_lines(path, "how many tokens each expert of a run has had", LARGEST):
        if (row := _row(line)) is not None:
            rows = {step: kept for step, kept in rows.items() if step < row.step} | {row.step: row}
    return list(rows.values())


def _row(line: str) -> ExpertUses | None:
    try:
        row = parse_json(line)
        layers = {int(layer): [int(tokens) for tokens in uses] for layer, uses in row["layers"].items()}
        return ExpertUses(int(row["step"]), layers) if all(layers.values()) else None
    except (ValueError, TypeError, KeyError, AttributeError):
        return None

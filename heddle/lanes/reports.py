"""What was found for each block and function, and how that is shown as JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from heddle.lanes.dependence import Region
from heddle.lanes.emit import Emitted


@dataclass
class Packed:
    """One region, packed by one method."""

    region: Region
    emitted: Emitted | None  # None if it is better left, or was not shown to be equal
    scalar: int
    cost: int
    gap: float
    seconds: float
    packs: list[str] = field(default_factory=list)
    why: str = ""
    hasty: bool = False  # not proved, in less time than was asked for: a long block, or a long module


@dataclass
class BlockReport:
    """One block: what it costs in every candidate, and whose packing it has in the chosen one."""

    label: str
    statements: int
    cost: dict[str, int | None]
    method: str
    gap: float | None
    seconds: dict[str, float]
    packs: dict[str, list[str]] = field(default_factory=dict)  # by method

    def facts(self, chosen: str) -> dict[str, Any]:
        """As --json shows it; a cost is null where a candidate lost the block or was not asked for."""
        methods = {c: self.cost.get(c) for c in ("scalar", "llvm", "ilp", "policy", "pairs")}
        return {
            "block": self.label,
            "statements": self.statements,
            "cost": methods | {"chosen": self.cost.get(chosen)},
            "method": self.method,
            "gap": self.gap,
            "seconds": {name: round(taken, 4) for name, taken in self.seconds.items()},
        }


@dataclass
class FunctionReport:
    """One function: its blocks, its candidates, and the one that was chosen."""

    function: str
    blocks: list[BlockReport]
    cost: dict[str, int]
    chosen: str
    checked: int = 0  # stretches that were emitted, all shown to be equal
    rejected: list[str] = field(default_factory=list)  # why others were not emitted
    notes: list[str] = field(default_factory=list)  # what was left to LLVM, and why
    nanoseconds: dict[str, float] = field(default_factory=dict)
    likely: dict[str, int] = field(default_factory=dict)  # cost, with blocks in loops counted more often

    @property
    def equal(self) -> bool:
        """Whatever was not shown to be equal was not emitted, so what is here always is."""
        return True

    def facts(self) -> dict[str, Any]:
        """As --json shows it."""
        facts: dict[str, Any] = {
            "function": self.function,
            "blocks": [block.facts(self.chosen) for block in self.blocks],
            "equal": self.equal,
            "cost": self.cost,
            "chosen": self.chosen,
            "checked": self.checked,
            "rejected": self.rejected,
            "notes": self.notes,
        }
        if self.nanoseconds:
            facts["nanoseconds"] = self.nanoseconds
        return facts


@dataclass
class PackedModule:
    """A module with the chosen candidate of every function, and how it was chosen."""

    text: str
    reports: list[FunctionReport]
    modules: dict[str, str]  # whole modules: scalar, llvm, and one for each candidate of ours
    family: str

    def facts(self) -> dict[str, Any]:
        return {"cpu": self.family, "functions": [r.facts() for r in self.reports]}

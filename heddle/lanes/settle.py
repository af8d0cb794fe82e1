"""Candidates that are about to be chosen are run as whole functions first; one that differs is not chosen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from heddle.lanes import ir
from heddle.lanes.check.whole import differing
from heddle.lanes.emit.combine import Made, combine
from heddle.lanes.reports import FunctionReport
from heddle.lanes.timing import code_of

ROUNDS = 3  # of putting the module together again without what was found to differ
LONGEST = 5000  # statements of a function that is run as a whole


class Settled:
    """Whom of the candidates may be chosen: those not seen to differ from the scalar code."""

    def __init__(self, scalar: ir.Module, modules: dict[str, str]) -> None:
        self.scalar, self.modules = scalar, modules
        self.refused: dict[str, set[str]] = {f.name: set() for f in scalar.functions}
        self._asked: set[tuple[str, str]] = set()
        self._plain = {f.name: code_of(modules["scalar"], f.written) for f in scalar.functions}

    def choose(self, reports: Sequence[FunctionReport], anew: Callable[[FunctionReport], None]) -> None:
        """Run what was chosen. What differs is refused, and another is chosen, until all are the same."""
        waiting = list(reports)
        while waiting:
            bad = self._differing({r.function: r.chosen for r in waiting}, self.modules)
            waiting = [r for r in waiting if r.function in bad]
            for report in waiting:
                self._refuse(report)
                anew(report)

    def _refuse(self, report: FunctionReport) -> None:
        self.refused[report.function].add(report.chosen)
        report.rejected.append(f"{report.chosen}: the function as a whole gave another result than the scalar code")
        if report.chosen == "llvm":
            report.notes.append("LLVM's own packing gave another result than the scalar code, and was not used")

    def _differing(self, chosen: dict[str, str], modules: dict[str, str]) -> set[str]:
        cases = []
        for function in self.scalar.functions:
            candidate = chosen.get(function.name, "scalar")
            if candidate == "scalar" or (function.name, candidate) in self._asked:
                continue
            self._asked.add((function.name, candidate))
            code = code_of(modules[candidate], function.written)
            length = sum(len(b.statements) for b in function.blocks)
            if length <= LONGEST and (not code or code != self._plain[function.name]):
                cases.append((function, candidate))
        return {name for name, _ in differing(self.scalar, modules, cases)}

    def whole(self, reports: Sequence[FunctionReport], made: Made, target: Any) -> str:
        """One module with what was chosen, of which no function was seen to differ either."""
        chosen = {r.function: r.chosen for r in reports}
        for _ in range(ROUNDS):
            simple = set(chosen.values()) == {"llvm"}
            text = self.modules["llvm"] if simple else combine(self.scalar, made, chosen, target)
            # What was run before need not run again; what it calls may have changed, and others came along.
            new = {
                f.name: "whole"
                for f in self.scalar.functions
                if (code := code_of(text, f.written)) == ""
                or f.name not in chosen
                or code != code_of(self.modules[chosen[f.name]], f.written)
            }
            self._asked -= {(name, "whole") for name in new}
            bad = self._differing(new, {"whole": text})
            if not bad:
                return text
            chosen |= dict.fromkeys(bad, "scalar")
            for report in reports:
                if report.function in bad:
                    self._refuse(report)
                    report.chosen = "scalar"
        return combine(self.scalar, made, {f.name: "scalar" for f in self.scalar.functions}, target)

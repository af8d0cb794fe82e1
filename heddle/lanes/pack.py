"""The regions of a function by each method: choose, emit, check, within the time there is."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from heddle.lanes import ir, packs
from heddle.lanes.check import check_all
from heddle.lanes.decisions import Decisions
from heddle.lanes.dependence import Region, regions
from heddle.lanes.emit import Emitted, emit
from heddle.lanes.reports import Packed

MOST_STATEMENTS = 6000  # of a block; beyond, LLVM's answer stands
PER_BLOCK = 2.0  # times a region's seconds: what the integer program may take for a block that was cut into several, …
PER_MODULE = 24.0  # … and for a module, of which …
SHARE = 0.1  # … a region gets no more than this part of what is left, so that the last ones get something as well
LEAST = 0.1  # seconds, in which most regions are solved
BESIDE = 3.0  # times the seconds, for enumerating, the policy and the check of all regions of a module, …
BESIDE_LEAST = 30.0  # … and at least these
TOGETHER = 32  # regions that are checked at a time


@dataclass(frozen=True)
class Effort:
    """How long the integer program may take, and how often both versions run."""

    seconds: float
    trials: int


class Budget:
    """CPU seconds that the integer program may still take, for a module and for each of its blocks."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.left = seconds, PER_MODULE * seconds
        self.blocks: dict[tuple[str, str], float] = {}  # by function and label
        self.left_over: dict[str, int] = {}  # regions that were not looked at, by function
        self._spent, self._began = 0.0, _cpu_time()

    def share(self, block: tuple[str, str], waiting: int) -> float:
        """For the next of some regions of a block."""
        here = self.blocks.setdefault(block, PER_BLOCK * self.seconds)
        return max(LEAST, min(self.seconds, PER_BLOCK * here / waiting, SHARE * self.left))

    def spend(self, block: tuple[str, str], seconds: float) -> None:
        self.left -= seconds
        self.blocks[block] -= seconds
        self._spent += seconds

    def over(self) -> bool:
        """Whether all but the integer program, which has its own limits, took longer than many regions should."""
        return _cpu_time() - self._began - self._spent > max(BESIDE_LEAST, BESIDE * self.seconds)


@dataclass
class PendingCheck:
    """Code that was emitted and not checked yet, and for whom."""

    packed: list[Packed]
    emitted: Emitted
    packs: list[str]


def _cpu_time() -> float:
    """Seconds of this process and of the children in which code was checked."""
    return sum(os.times()[:4])


def pack_function(
    function: ir.Function,
    module: ir.Module,
    decisions: Decisions,
    effort: Effort,
    prefix: str,
    budget: Budget,
    progress: Callable[[str], None] | None = None,
) -> dict[str, list[Packed]]:
    """All regions of a function by each method; nothing where a block is too long."""
    found: dict[str, list[Packed]] = {m: [] for m in decisions.methods}
    if left_to_llvm(function, module) or not found:
        return found
    every = regions(function, module)
    new = {region.shape: region.block.label for region in every if not decisions.has(region)}
    waiting = Counter(new.values())
    pending: list[PendingCheck] = []
    for k, region in enumerate(every):
        if budget.over():
            break  # said in the report; LLVM's passes still see the rest
        block = function.name, region.block.label
        seconds = budget.share(block, max(1, waiting[region.block.label]))
        waiting[region.block.label] -= not decisions.has(region)
        packed = pack_region(region, decisions, seconds, f"{prefix}{k}_", pending)
        for method in {"ilp", "pairs"} & packed.keys():
            budget.spend(block, packed[method].seconds)
            packed[method].hasty = seconds < effort.seconds and packed[method].gap > 0
        for method, made in packed.items():
            found[method].append(made)
        if progress is not None:
            best = min(packed.values(), key=lambda p: p.cost)
            progress(f"{function.name} {region.block.label}: {best.scalar} → {best.cost}")
        if len(pending) >= TOGETHER:
            _settle(pending, module, effort.trials)
    _settle(pending, module, effort.trials)
    budget.left_over[function.name] = len(every) - len(next(iter(found.values())))
    return found


def left_to_llvm(function: ir.Function, module: ir.Module) -> str:
    """Why a function is left to LLVM, if it is."""
    if re.search(r'\bnoimplicitfloat\b|"use-soft-float"="true"|[",]\+soft-float[",]', module.attributes(function)):
        return "left alone: it may not use the registers of vectors (noimplicitfloat)"
    longest = max((len(b.statements) for b in function.blocks), default=0)
    if longest <= MOST_STATEMENTS:
        return ""
    return f"a block of {longest} instructions is left to LLVM; up to {MOST_STATEMENTS} are packed"


def in_haste(packed: Sequence[Packed]) -> str:
    """Where the integer program could have found better with more time, if anywhere."""
    hasty = sum(p.hasty for p in packed)
    if not hasty:
        return ""
    return f"the integer program ran short of time in {hasty} of {len(packed)} regions; --time-limit gives it more"


def out_of_time(function: ir.Function, budget: Budget) -> str:
    """How much of a function was not looked at, if any."""
    count = budget.left_over.get(function.name, 0)
    return f"{count} regions are left to LLVM: time for the module ran out; --time-limit gives more" if count else ""


def pack_region(
    region: Region, decisions: Decisions, seconds: float, prefix: str, pending: list[PendingCheck]
) -> dict[str, Packed]:
    """Pack one stretch of code by each method: what was chosen, emitted, and waits for its check."""
    made = decisions.of(region, seconds)
    if not made.solutions:
        return {m: Packed(region, None, made.scalar, made.scalar, 0.0, taken) for m, taken in made.seconds.items()}
    found: dict[str, Packed] = {}
    chosen: dict[tuple[int, ...], Packed] = {}  # what two choose is checked once
    for method, solution in made.solutions.items():
        key = tuple(sorted(solution.packing.order))
        if key in chosen:
            found[method] = replace(chosen[key], gap=solution.gap, seconds=made.seconds[method])
            for waiting in pending:
                if any(p is chosen[key] for p in waiting.packed):
                    waiting.packed.append(found[method])
            continue
        cost = min(made.scalar, solution.cost)
        packed = Packed(region, None, made.scalar, cost, solution.gap, made.seconds[method])
        if solution.cost < made.scalar:
            emitted = emit(made.graph, solution.packing, prefix + method[0])
            pending.append(PendingCheck([packed], emitted, described(made.graph, solution.packing.order)))
        found[method] = chosen[key] = packed
    return found


def _settle(pending: list[PendingCheck], module: ir.Module, trials: int) -> None:
    """Check what was chosen, several regions together; keep what does the same as the scalar code."""
    verdicts = check_all([(p.packed[0].region, p.emitted) for p in pending], module, trials)
    for waiting, verdict in zip(pending, verdicts, strict=True):
        for packed in waiting.packed:
            if verdict.equal:
                packed.emitted, packed.packs = waiting.emitted, waiting.packs
            else:
                packed.why, packed.cost = verdict.why, packed.scalar
    pending.clear()


def described(graph: packs.Graph, order: Sequence[int]) -> list[str]:
    """The packs for people, in order."""
    lines = []
    for n in order:
        p = graph.productions[n]
        if p.kind in ("scalar", "constant", "carry", "leave"):
            continue
        if p.gives >= 0:
            item = graph.items[p.gives]
            what = ", ".join("·" if v.startswith("%!") else v for v in item.lanes)
            what = graph.leaving.get(p.gives, what)
            kind = f"{graph.region.statements[p.members[0]].op}" if p.kind == "pack" else p.kind
        else:
            kind = "store"
            what = ", ".join(graph.region.statements[m].lanes[0] for m in p.members)
        lines.append(f"{kind:10} cost {p.cost}  [{what}]")
    return lines

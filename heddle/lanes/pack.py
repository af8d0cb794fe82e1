"""The regions of a function by each method: choose, emit, check, within the time there is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from heddle.lanes import choice, ir, packs
from heddle.lanes.check import check
from heddle.lanes.decisions import Decisions, shape
from heddle.lanes.dependence import Region, regions
from heddle.lanes.emit import emit
from heddle.lanes.reports import Packed

MOST_STATEMENTS = 6000  # of a block; beyond, LLVM's answer stands
PER_BLOCK = 2.0  # times the seconds for a region: what the programme may take for a block that was cut into several, …
PER_MODULE = 24.0  # … and for a module, of which …
SHARE = 0.1  # … a region gets no more than this part of what is left, so that the last ones get something as well
LEAST = 0.1  # seconds, in which most regions are solved


@dataclass(frozen=True)
class Effort:
    """How long the programme may take, and how often both versions run."""

    seconds: float
    trials: int


class Budget:
    """CPU seconds that the programme may still take, for a module and for each of its blocks."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.left = seconds, PER_MODULE * seconds
        self.blocks: dict[tuple[str, str], float] = {}  # by function and label

    def share(self, block: tuple[str, str], waiting: int) -> float:
        """For the next of some regions of a block."""
        here = self.blocks.setdefault(block, PER_BLOCK * self.seconds)
        return max(LEAST, min(self.seconds, PER_BLOCK * here / waiting, SHARE * self.left))

    def spend(self, block: tuple[str, str], seconds: float) -> None:
        self.left -= seconds
        self.blocks[block] -= seconds


def pack_function(
    function: ir.Function,
    module: ir.Module,
    decisions: Decisions,
    effort: Effort,
    prefix: str,
    budget: Budget,
    progress: Callable[[str], None] | None = None,
) -> dict[str, list[Packed]]:
    """All regions of a function by each method; nothing where a block is too long to think about."""
    found: dict[str, list[Packed]] = {m: [] for m in decisions.methods}
    if too_long(function) or not found:
        return found
    every = regions(function, module)
    new = {shape(region): region.block.label for region in every if not decisions.has(region)}
    waiting = Counter(new.values())
    for k, region in enumerate(every):
        block = function.name, region.block.label
        seconds = budget.share(block, max(1, waiting[region.block.label]))
        waiting[region.block.label] -= not decisions.has(region)
        packed = pack_region(region, module, decisions, seconds, effort.trials, f"{prefix}{k}_")
        for method in {"ilp", "pairs"} & packed.keys():
            budget.spend(block, packed[method].seconds)
            packed[method].hasty = seconds < effort.seconds and packed[method].gap > 0
        for method, made in packed.items():
            found[method].append(made)
        if progress is not None:
            best = min(packed.values(), key=lambda p: p.cost)
            progress(f"{function.name} {region.block.label}: {best.scalar} → {best.cost}")
    return found


def too_long(function: ir.Function) -> str:
    """Why a function is left to LLVM, if it is."""
    longest = max((len(b.statements) for b in function.blocks), default=0)
    if longest <= MOST_STATEMENTS:
        return ""
    return f"a block of {longest} instructions is left to LLVM; up to {MOST_STATEMENTS} are packed"


def in_haste(packed: Sequence[Packed]) -> str:
    """Where the programme could have found better with more time, if anywhere."""
    hasty = sum(p.hasty for p in packed)
    if not hasty:
        return ""
    return f"the integer program ran short of time in {hasty} of {len(packed)} regions; --time-limit gives it more"


def pack_region(
    region: Region, module: ir.Module, decisions: Decisions, seconds: float, trials: int, prefix: str
) -> dict[str, Packed]:
    """Pack one stretch of code by each method: what was chosen, emitted and checked."""
    made = decisions.of(region, seconds)
    if not made.solutions:
        return {m: Packed(region, None, made.scalar, made.scalar, 0.0, taken) for m, taken in made.seconds.items()}
    found: dict[str, Packed] = {}
    emitted: dict[tuple[int, ...], Packed] = {}  # what two choose is checked once
    for method, solution in made.solutions.items():
        key = tuple(sorted(solution.packing.order))
        if key in emitted:
            found[method] = replace(emitted[key], gap=solution.gap, seconds=made.seconds[method])
            continue
        cost = min(made.scalar, solution.cost)
        packed = Packed(region, None, made.scalar, cost, solution.gap, made.seconds[method])
        if solution.cost < made.scalar:
            _emit(packed, made.graph, solution, module, trials, prefix + method[0])
        found[method] = emitted[key] = packed
    return found


def _emit(
    packed: Packed, graph: packs.Graph, solution: choice.Solution, module: ir.Module, trials: int, prefix: str
) -> None:
    """Write what was chosen, unless it does something else than the scalar code."""
    made = emit(graph, solution.packing, prefix)
    verdict = check(packed.region, made, module, trials)
    if not verdict.equal:
        packed.why, packed.cost = verdict.why, packed.scalar
        return
    packed.emitted = made
    packed.packs = described(graph, solution.packing.order)


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
            kind = f"{graph.region.statements[p.members[0]].op}" if p.kind == "pack" else p.kind
        else:
            kind = "store"
            what = ", ".join(graph.region.statements[m].lanes[0] for m in p.members)
        lines.append(f"{kind:10} cost {p.cost}  [{what}]")
    return lines

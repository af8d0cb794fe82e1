"""LLVM's own packing, the integer program's and the policy's: the cheapest that was shown to be equal.

Candidates of a function:
  scalar   as it was read, optimized but not packed
  llvm     the same through LLVM's superword pass
  ilp      what the integer program chose, as emitted; packs of pairs are among its choices
  policy   what the learned policy chose, as emitted
  pairs    what the integer program as published chose, as emitted, if it was asked for
  ilp+llvm, policy+llvm, pairs+llvm   the same through LLVM's passes, which clean up and pack what was left
  mixed    each block by whoever was cheapest there, through LLVM's passes
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from heddle.errors import HeddleError, nearest
from heddle.lanes import cost as costs
from heddle.lanes import ir
from heddle.lanes.decisions import Decisions
from heddle.lanes.dependence import loops
from heddle.lanes.emit import fresh_prefix
from heddle.lanes.emit.combine import Made, through_llvm, with_regions
from heddle.lanes.pack import Budget, Effort, in_haste, left_to_llvm, out_of_time, pack_function
from heddle.lanes.policy.decide import shipped, weights
from heddle.lanes.reports import BlockReport, FunctionReport, Packed, PackedModule
from heddle.lanes.settle import Settled
from heddle.lanes.timing import AGAIN, time_function

METHODS = ("auto", "llvm", "ilp", "policy", "pairs")
# In case of a tie, what leaves most to LLVM; and code as it was read before code where nothing was gained.
PREFERENCE = ("llvm", "ilp+llvm", "policy+llvm", "pairs+llvm", "mixed", "scalar", "ilp", "policy", "pairs")

BlockCosts = dict[str, dict[str, dict[str, int]]]  # by candidate, by function, by block


@dataclass
class Options:
    """What to try, and what it may take."""

    method: str = "auto"
    family: str | None = None
    seconds: float = 10.0  # for each region
    trials: int = 8
    time: bool = False  # the fastest on this machine, not the cheapest by the table
    weights: Path | None = None  # of the policy; those that ship if none
    progress: Callable[[str], None] | None = None

    def checked(self) -> Options:
        if self.method not in METHODS:
            raise HeddleError(
                f"There is no method '{self.method}'.",
                "A packing comes from LLVM, the integer program (ilp), the policy, the best of them (auto), or pairs.",
                nearest(str(self.method), METHODS),
            )
        if isinstance(self.seconds, bool) or not isinstance(self.seconds, int | float) or not 0 < self.seconds < 1e9:
            raise HeddleError(
                f"seconds must be greater than 0 and below 1e9, got {self.seconds!r}.",
                "It limits how long the integer program may spend on each region of code.",
                "Use a number such as 10.",
            )
        if self.weights is not None and "policy" in self.methods:
            weights(self.weights)  # whether they can be read, even if nothing is found to pack
        return replace(self, family=costs.family_here() if self.family in (None, "") else str(self.family))

    @property
    def methods(self) -> list[str]:
        """Ours, of those asked for."""
        found = ["ilp", "policy"] if self.method == "auto" else [self.method] if self.method != "llvm" else []
        if "policy" in found and self.weights is None and shipped() is None:
            if self.method == "policy":
                raise HeddleError(
                    "There are no policy weights here.",
                    "The policy is trained on the solutions of the integer program.",
                    "Train it with: heddle lanes train FOLDER. Or use --method ilp.",
                )
            found.remove("policy")
        return found


def read(text: str, source: str = "The IR", *, cpu: str | None = None) -> str:
    """The scalar module that all candidates start from: optimized by LLVM, not vectorized, every value named."""
    module = ir.parse_foreign(ir.fitted(text, source), source)
    target = ir.machine(cpu)
    ir.optimize(module, slp=False, target=target)
    return ir.named(module, target)


def improve(text: str, options: Options, function: str | None = None, source: str = "The IR") -> PackedModule:
    """Pack the functions of a module.

    Args:
        text: LLVM IR.
        options: method, family of CPUs, time limit.
        function: only this one.
        source: what to call the IR in errors.
    """
    options = options.checked()
    assert options.family is not None
    table = costs.table(options.family)
    methods = options.methods
    scalar_text = read(text, source)
    scalar = ir.take_apart(scalar_text)
    wanted = ir.choose_functions(scalar, function)
    target = ir.machine()
    began = time.process_time()
    llvm_text = through_llvm(scalar_text, target)
    llvm_seconds = (time.process_time() - began) / max(1, len(scalar.functions))
    prefix = fresh_prefix(scalar_text)
    effort, budget = Effort(options.seconds, options.trials), Budget(options.seconds)
    decisions = Decisions(table, methods, options.weights)
    packed_functions = {
        f.name: pack_function(f, scalar, decisions, effort, prefix, budget, options.progress) for f in wanted
    }
    made: Made = {m: {name: by_method[m] for name, by_method in packed_functions.items()} for m in methods}
    modules = {"scalar": scalar_text, "llvm": llvm_text}
    passed = {scalar_text: llvm_text}  # what is the same code need not go through LLVM's passes again
    for method, by_function in made.items():
        modules[method] = packed = _packed(scalar, scalar_text, by_function)
        modules[f"{method}+llvm"] = passed[packed] = passed.get(packed) or through_llvm(packed, target)
    by_candidate: BlockCosts = {}
    likely: dict[str, dict[str, int]] = {}  # by candidate, by function: where loops run often
    for name, module in modules.items():
        by_candidate[name], likely[name] = _costs(module, table)
    winners = {f.name: _winners(f, by_candidate, made) for f in wanted}
    if any(len(set(by_block.values())) > 1 for by_block in winners.values()):
        made["mixed"] = {f.name: _mixed(f, winners[f.name], made) for f in wanted}
        mixed, failed = with_regions(scalar, made["mixed"])
        made["mixed"] |= {name: [] for name in failed}
        modules["mixed"] = through_llvm(mixed, target)
        by_candidate["mixed"], likely["mixed"] = _costs(modules["mixed"], table)
    reports = [_report(f, scalar, by_candidate, made, llvm_seconds) for f in wanted]
    for f, report in zip(wanted, reports, strict=True):
        report.likely = {c: of[f.name] for c, of in likely.items() if f.name in of}
        report.notes += [note for note in [out_of_time(f, budget)] if note]
        if options.time:
            report.nanoseconds = time_function(modules, f)
            if not report.nanoseconds:
                report.notes.append("not timed: it does not run on made-up arguments")
    settled = Settled(scalar, modules)

    def choose(report: FunctionReport) -> None:
        _choose(report, settled.refused[report.function], winners[report.function])

    for report in reports:
        choose(report)
    settled.choose(reports, choose)
    return PackedModule(settled.whole(reports, made, target), reports, modules, options.family)


def _packed(scalar: ir.Module, scalar_text: str, by_function: dict[str, list[Packed]]) -> str:
    """A module with what a method packed. What LLVM does not take as a whole function stays scalar in it."""
    if not any(p.emitted is not None for regions in by_function.values() for p in regions):
        return scalar_text
    text, failed = with_regions(scalar, by_function)
    for name, why in failed.items():
        for p in by_function[name]:
            if p.emitted is not None:
                p.emitted, p.why, p.cost = None, why, p.scalar
    return text


def _winners(function: ir.Function, by_candidate: BlockCosts, made: Made) -> dict[str, str]:
    """Who is cheapest in each block: LLVM, or one of ours with LLVM's passes behind it."""
    name = function.name
    found = {}
    packed = {m: {p.region.block.label for p in by[name] if p.emitted is not None} for m, by in made.items()}
    for block in function.blocks:
        prices = {"llvm": by_candidate["llvm"].get(name, {}).get(block.label)}
        for method in made:
            if block.label in packed[method]:
                prices[method] = by_candidate[f"{method}+llvm"].get(name, {}).get(block.label)
        known = {m: c for m, c in prices.items() if c is not None}
        if known:
            found[block.label] = min(known, key=lambda m: (known[m], PREFERENCE.index(m)))
    return found


def _mixed(function: ir.Function, winners: dict[str, str], made: Made) -> list[Packed]:
    """The regions of each block as the block's winner packed them; LLVM's blocks stay scalar for its passes."""
    return [
        p
        for method in made
        if method != "mixed"
        for p in made[method][function.name]
        if winners.get(p.region.block.label) == method
    ]


def _report(
    function: ir.Function, scalar: ir.Module, by_candidate: BlockCosts, made: Made, llvm_seconds: float
) -> FunctionReport:
    name = function.name
    total = {c: sum(of[name].values()) for c, of in by_candidate.items() if name in of}
    ours = {m: by[name] for m, by in made.items() if m != "mixed"}
    blocks = []
    by_label: dict[str, dict[str, list[Packed]]] = {b.label: {m: [] for m in ours} for b in function.blocks}
    for m, ps in ours.items():
        for p in ps:
            by_label[p.region.block.label][m].append(p)
    for block in function.blocks:
        mine = by_label[block.label]
        if not any(mine.values()):
            continue
        blocks.append(
            BlockReport(
                block.label,
                len(block.statements),
                {c: of[name].get(block.label) for c, of in by_candidate.items() if name in of},
                "llvm",
                max((p.gap for m in ("ilp", "pairs") for p in mine.get(m, [])), default=None),
                {"llvm": llvm_seconds} | {m: sum(p.seconds for p in ps) for m, ps in mine.items()},
                {m: [line for p in ps for line in p.packs] for m, ps in mine.items()},
            )
        )
    every = [p for ps in ours.values() for p in ps]
    notes = [left_to_llvm(function, scalar), in_haste([p for m in ("ilp", "pairs") for p in ours.get(m, [])])]
    return FunctionReport(
        name,
        blocks,
        total,
        "llvm",
        sum(p.emitted is not None for p in every),
        [p.why for p in every if p.why],
        [note for note in notes if note],
    )


def _choose(report: FunctionReport, refused: set[str], winners: dict[str, str]) -> None:
    """Never dearer than LLVM's code; of those what costs least where loops run often, or the fastest if timed."""
    total, likely = report.cost, report.likely
    left = [c for c in total if c not in refused]
    bound = total["llvm"] if "llvm" in left else max(total.values())
    chosen = min((c for c in left if total[c] <= bound), key=lambda c: (likely[c], total[c], PREFERENCE.index(c)))
    if report.nanoseconds:
        chosen = _by_time(report.nanoseconds, chosen, left)
    report.chosen = chosen
    for block in report.blocks:
        block.method = winners.get(block.label, "llvm") if chosen == "mixed" else chosen


def _by_time(taken: dict[str, float], by_cost: str, left: list[str]) -> str:
    """The fastest; what cost chose if nothing is faster by more than the same code differs from itself."""
    noise = max(0.02, abs(taken[AGAIN] / taken["llvm"] - 1))
    fastest = min(left, key=lambda c: taken[c])
    known = "llvm" if "llvm" in left else by_cost
    kept = by_cost if taken[by_cost] <= taken[known] * (1 + noise) else known
    return fastest if taken[fastest] < taken[kept] * (1 - noise) else kept


def _costs(text: str, table: costs.Table) -> tuple[dict[str, dict[str, int]], dict[str, int]]:
    """Of the blocks of each function, and of functions with their own loops counted: blocks come and go."""
    each, likely = {}, {}
    for f in ir.take_apart(text).functions:
        each[f.name], around = costs.costs_of_blocks(table, f), loops(f)
        likely[f.name] = sum(cost * around.weight(label) for label, cost in each[f.name].items())
    return each, likely

"""LLVM's own packing, the programme's and the policy's beside each other: the cheapest that was shown to be equal.

Candidates of a function:
  scalar   as it was read, optimised but not packed
  llvm     the same through LLVM's superword pass
  ilp      what the programme chose, as emitted
  policy   what the learned policy chose, as emitted
  ilp+llvm, policy+llvm   with LLVM's passes behind, which pack what was left
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from heddle.errors import HeddleError, nearest
from heddle.lanes import cost as costs
from heddle.lanes import ir, packs, programme
from heddle.lanes.check import check
from heddle.lanes.dependence import Region, regions
from heddle.lanes.emit import Emitted, emit, fresh_prefix, replace_regions
from heddle.lanes.schedule import Cycle, arrange

METHODS = ("auto", "llvm", "ilp", "policy")
MOST_STATEMENTS = 6000  # of a block; beyond, LLVM's answer stands
MOST_SECONDS = 120.0  # that all regions of a function may take the programme together


@dataclass
class Options:
    method: str = "auto"
    family: str | None = None
    seconds: float = 10.0  # for each region
    trials: int = 8
    time: bool = False  # the fastest on this machine, not the cheapest by the table
    progress: Callable[[str], None] | None = None

    def checked(self) -> Options:
        if self.method not in METHODS:
            raise HeddleError(
                f"There is no method '{self.method}'.",
                "A packing is LLVM's, the programme's (ilp), the policy's, or the best of them (auto).",
                nearest(self.method, METHODS),
            )
        return replace(self, family=self.family or costs.family_here())


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


@dataclass
class BlockReport:
    label: str
    statements: int
    cost: dict[str, int | None]
    method: str
    gap: float | None
    seconds: dict[str, float]
    packs: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def shown(self) -> dict[str, int | None]:
        """Costs by method, and of what was chosen; none where a candidate lost the block or was not asked for."""
        methods = {c: self.cost.get(c) for c in ("scalar", "llvm", "ilp", "policy")}
        return methods | {"chosen": self.cost.get(self.method)}


@dataclass
class FunctionReport:
    function: str
    blocks: list[BlockReport]
    cost: dict[str, int]
    chosen: str
    equal: bool  # every emitted region was shown to be equal; nothing else is emitted
    checked: int = 0
    rejected: list[str] = field(default_factory=list)
    nanoseconds: dict[str, float] = field(default_factory=dict)

    def facts(self) -> dict[str, Any]:
        """As --json shows it."""
        facts: dict[str, Any] = {
            "function": self.function,
            "blocks": [
                {"block": b.label, "statements": b.statements, "cost": b.shown(), "method": b.method, "gap": b.gap,
                 "seconds": b.seconds}
                for b in self.blocks
            ],
            "cost": self.cost, "chosen": self.chosen, "equal": self.equal, "checked": self.checked,
            "rejected": self.rejected,
        }  # fmt: skip
        if self.nanoseconds:
            facts["nanoseconds"] = self.nanoseconds
        return facts


@dataclass
class Result:
    """A module with the chosen candidate of every function, and how it was chosen."""

    text: str
    reports: list[FunctionReport]
    modules: dict[str, str]  # whole modules: scalar, llvm, and one for each candidate of ours
    family: str


def read(text: str, source: str = "The IR", *, cpu: str | None = None) -> str:
    """The scalar module that all candidates start from: optimised by LLVM, not vectorised, every value named."""
    text = re.sub(r"\boptnone\b", "", text)  # what clang -O0 writes, which would keep every pass away
    module = ir.parse_llvm(text, source)
    target = ir.machine(cpu)
    ir.optimise(module, slp=False, target=target)
    return ir.named(module, target)


def improve(text: str, options: Options, functions: str | None = None, source: str = "The IR") -> Result:
    """Pack the functions of a module.

    Args:
        text: LLVM IR.
        options: method, family of CPUs, time limit.
        functions: only this one.
        source: what to call the IR in errors.
    """
    options = options.checked()
    assert options.family is not None
    table = costs.table(options.family)
    scalar_text = read(text, source)
    scalar = ir.take_apart(scalar_text)
    wanted = ir.choose_functions(scalar, functions)
    target = ir.machine()
    began = time.perf_counter()
    llvm_text = _through_llvm(scalar_text, target)
    llvm_seconds = (time.perf_counter() - began) / max(1, len(scalar.functions))
    prefix = fresh_prefix(scalar_text)
    made: dict[str, dict[str, list[Packed]]] = {}
    methods = [m for m in ("ilp", "policy") if options.method in (m, "auto") and (m != "policy" or _has_policy())]
    if options.method == "policy" and not methods:
        raise HeddleError(
            "There are no weights of a policy here.",
            "The policy is trained on the programme's answers.",
            "Train it with: heddle lanes train. Or use --method ilp.",
        )
    for function in wanted:
        for method in methods:
            made.setdefault(method, {})[function.name] = _pack(function, scalar, table, method, options, prefix)
    modules = {"scalar": scalar_text, "llvm": llvm_text}
    for method, by_function in made.items():
        packed = _with(scalar, by_function)
        modules[method] = packed
        modules[f"{method}+llvm"] = _through_llvm(packed, target)
    by_candidate = {name: _costs(module, table) for name, module in modules.items()}
    reports = [
        _report(function, by_candidate, {m: made[m][function.name] for m in methods}, llvm_seconds)
        for function in wanted
    ]
    if options.time:
        for function, report in zip(wanted, reports, strict=True):
            _by_time(function, report, modules)
    chosen = {r.function: r.chosen for r in reports}
    return Result(combine(scalar, made, chosen, target), reports, modules, options.family)


def _by_time(function: ir.Function, report: FunctionReport, modules: dict[str, str]) -> None:
    """The fastest; what cost chose if nothing is faster by more than the same code differs from itself."""
    from heddle.lanes.timing import AGAIN, time_function

    report.nanoseconds = taken = time_function(modules, function)
    if not taken:
        return
    noise = max(0.02, abs(taken[AGAIN] / taken["llvm"] - 1))
    fastest = min((c for c in taken if c != AGAIN), key=lambda c: taken[c])
    kept = report.chosen if taken[report.chosen] <= taken["llvm"] * (1 + noise) else "llvm"
    report.chosen = fastest if taken[fastest] < taken[kept] * (1 - noise) else kept
    for block in report.blocks:
        block.method = report.chosen


def combine(scalar: ir.Module, made: dict[str, dict[str, list[Packed]]], chosen: dict[str, str], target: Any) -> str:
    """One module with the chosen candidate of every function: LLVM's passes keep off those chosen as emitted."""
    texts: dict[str, str] = {}
    declarations: set[str] = set()
    alone: set[str] = set()
    for function in scalar.functions:
        choice = chosen.get(function.name, "llvm")
        method, _, behind = choice.partition("+")
        text = function.text()
        if method in made:
            kept = [(p.region, p.emitted) for p in made[method][function.name] if p.emitted is not None]
            text = replace_regions(function, kept)
            declarations |= {d for _, e in kept for d in e.declarations}
        if choice == "scalar" or (method in made and not behind):
            head, _, body = text.partition("\n")
            keep = "noinline optnone" if " noinline" not in head else "optnone"
            text = f"{head.removesuffix('{')} {keep} {{\n{body}"
            alone.add(function.name)
        texts[function.name] = text
    found = _through_llvm(scalar.text(texts, _declared(scalar, declarations)), target)
    if alone:
        found = re.sub(r"^attributes #\d+ = \{.*\boptnone\b.*$", _without_marks, found, flags=re.M)
    return str(ir.parse_llvm(found))


def _without_marks(line: re.Match[str]) -> str:
    return re.sub(r"\b(?:optnone|noinline) ?", "", line[0])


def _has_policy() -> bool:
    from heddle.lanes.policy import weights

    return weights() is not None


def _through_llvm(text: str, target: Any) -> str:
    module = ir.parse_llvm(text)
    ir.optimise(module, slp=True, target=target)
    return ir.named(module, target)


def _declared(module: ir.Module, declarations: set[str]) -> str:
    known = set(re.findall(r"^declare .*?@([-a-zA-Z$._0-9]+)\(", module.text(), re.M))
    return "\n".join(sorted(d for d in declarations if d.split("@")[1].split("(")[0] not in known)) + "\n"


def _with(module: ir.Module, by_function: dict[str, list[Packed]]) -> str:
    texts, declarations = {}, set[str]()
    for function in module.functions:
        kept = [(p.region, p.emitted) for p in by_function.get(function.name, []) if p.emitted is not None]
        if kept:
            texts[function.name] = replace_regions(function, kept)
            declarations |= {d for _, e in kept for d in e.declarations}
    return ir.named(ir.parse_llvm(module.text(texts, _declared(module, declarations)), "The packed code"))


def _costs(text: str, table: costs.Table) -> dict[str, dict[str, int]]:
    return {f.name: costs.costs_of_blocks(table, f) for f in ir.take_apart(text).functions}


def _pack(
    function: ir.Function, module: ir.Module, table: costs.Table, method: str, options: Options, prefix: str
) -> list[Packed]:
    found = []
    left = MOST_SECONDS
    if any(len(b.statements) > MOST_STATEMENTS for b in function.blocks):
        return []
    for k, region in enumerate(regions(function, module)):
        if left <= 0:
            break
        began = time.perf_counter()
        packed = pack_region(
            region, module, table, method, replace(options, seconds=min(options.seconds, left)), f"{prefix}{k}_"
        )
        left -= time.perf_counter() - began
        found.append(packed)
        if options.progress is not None:
            options.progress(f"{function.name} {region.block.label}: {packed.scalar} → {packed.cost}")
    return found


def pack_region(
    region: Region, module: ir.Module, table: costs.Table, method: str, options: Options, prefix: str
) -> Packed:
    """Choose, emit and check."""
    began = time.perf_counter()
    graph = packs.build(region, table)
    plain = programme.used(graph, programme.scalar_choice(graph))
    scalar = programme.cost_of(graph, plain)
    if not any(p.native or p.kind == "store" for p in graph.productions):
        return Packed(region, None, scalar, scalar, 0.0, time.perf_counter() - began)
    if method == "policy":
        from heddle.lanes.policy import decide

        solution = decide(graph)
    else:
        solution = programme.solve(graph, options.seconds, start(graph, plain))
    seconds = time.perf_counter() - began
    packed = Packed(region, None, scalar, solution.cost, solution.gap, seconds)
    if solution.cost >= scalar:
        packed.cost = scalar
        return packed
    emitted = emit(graph, solution.packing, prefix)
    verdict = check(region, emitted, module, options.trials)
    if not verdict.equal:
        packed.why, packed.cost = verdict.why, scalar
        return packed
    packed.emitted = emitted
    packed.packs = described(graph, solution.packing.order)
    return packed


def start(graph: packs.Graph, plain: Sequence[int]) -> list[int]:
    """What the programme starts from: the greedy choice where it is better than scalars and can be ordered."""
    first = programme.greedy(graph)
    if programme.cost_of(graph, first) >= programme.cost_of(graph, list(plain)):
        return list(plain)
    try:
        arrange(graph, first)
    except Cycle:
        return list(plain)
    return first


def described(graph: packs.Graph, order: Sequence[int]) -> list[str]:
    """The packs for people, in order."""
    lines = []
    for n in order:
        p = graph.productions[n]
        if p.kind in ("scalar", "constant"):
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


def _report(
    function: ir.Function,
    by_candidate: dict[str, dict[str, dict[str, int]]],
    packed: dict[str, list[Packed]],
    llvm_seconds: float,
) -> FunctionReport:
    name = function.name
    total = {c: sum(of[name].values()) for c, of in by_candidate.items() if name in of}
    # In case of a tie, what leaves most to LLVM.
    order = ["llvm", "ilp+llvm", "policy+llvm", "ilp", "policy", "scalar"]
    chosen = min((c for c in order if c in total), key=lambda c: (total[c], order.index(c)))
    blocks = []
    for block in function.blocks:
        mine = {m: [p for p in ps if p.region.block is block] for m, ps in packed.items()}
        if not any(mine.values()):
            continue
        each = {c: of[name].get(block.label) for c, of in by_candidate.items() if name in of}
        solved = next((ps for ps in mine.values() if ps), [])
        blocks.append(
            BlockReport(
                block.label,
                len(block.statements),
                each,
                chosen,
                max((p.gap for p in mine.get("ilp", [])), default=None),
                {"llvm": llvm_seconds} | {m: sum(p.seconds for p in ps) for m, ps in mine.items()},
                [line for p in solved for line in p.packs],
                [p.why for ps in mine.values() for p in ps if p.why],
            )
        )
    every = [p for ps in packed.values() for p in ps]
    return FunctionReport(
        name, blocks, total, chosen, True, sum(p.emitted is not None for p in every), [p.why for p in every if p.why]
    )

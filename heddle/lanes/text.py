"""What `heddle lanes` prints for people."""

from __future__ import annotations

from collections.abc import Iterator

from heddle.lanes.reports import FunctionReport, PackedModule

ORDER = ("scalar", "llvm", "ilp", "ilp+llvm", "policy", "policy+llvm", "pairs", "pairs+llvm", "mixed")


def summary(found: PackedModule) -> Iterator[str]:
    """One line a function; costs, and times where they were taken."""
    names = [c for c in ORDER if any(c in r.cost for r in found.reports)]
    width = max([8, *(len(r.function) for r in found.reports)])
    yield f"{'function':{width}}  " + "  ".join(f"{n:>11}" for n in names) + "  chosen"
    for r in found.reports:
        yield f"{r.function:{width}}  " + "  ".join(f"{r.cost.get(n, ''):>11}" for n in names) + f"  {r.chosen}"
        if r.nanoseconds:
            times = "  ".join(f"{_ns(r.nanoseconds.get(n)):>11}" for n in names)
            yield f"{'':{width}}  {times}  (llvm again {_ns(r.nanoseconds.get('llvm again'))})"


def _ns(value: float | None) -> str:
    return "" if value is None else f"{value:.1f} ns"


def explained(found: PackedModule) -> Iterator[str]:
    """Each function: its candidates, its blocks, and the packs that were chosen."""
    yield f"costs    LLVM's reciprocal throughputs for {found.family}"
    for r in found.reports:
        yield ""
        yield f"{r.function}: {r.chosen}{_why(r)}"
        yield "  cost   " + ", ".join(f"{c} {r.cost[c]}" for c in ORDER if c in r.cost)
        if r.nanoseconds:
            yield "  time   " + ", ".join(f"{c} {_ns(t)}" for c, t in r.nanoseconds.items())
        yield f"  check  {r.checked} regions equal on random and edge-case inputs" + (
            f", {len(r.rejected)} rejected: {r.rejected[0]}" if r.rejected else ""
        )
        yield from (f"  note   {note}" for note in r.notes)
        for b in r.blocks:
            gap = "" if b.gap is None else ", optimal" if b.gap == 0 else f", within {b.gap:.0%} of the optimum"
            costs = ", ".join(f"{c} {v}" for c, v in b.facts(r.chosen)["cost"].items() if v is not None)
            yield f"  {b.label}: {b.statements} statements{gap}; {costs}"
            yield from (f"    {line}" for line in b.packs.get(b.method.partition("+")[0], ()))


def _why(r: FunctionReport) -> str:
    best, llvm = r.cost.get(r.chosen), r.cost.get("llvm")
    if best is None or llvm is None:
        return ""
    if r.nanoseconds and r.chosen in r.nanoseconds:
        return f", {r.nanoseconds['llvm'] / r.nanoseconds[r.chosen]:.2f} times LLVM's speed when timed"
    if r.chosen == "llvm":
        return ", nothing is cheaper"
    return f", {llvm - best} cheaper than LLVM's {llvm}"

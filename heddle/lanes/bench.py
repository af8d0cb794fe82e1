"""`heddle lanes bench`: a table over many kernels."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from heddle.errors import HeddleError
from heddle.lanes.ir import COMPILED, includes, read_source
from heddle.lanes.portfolio import Options, improve


def bench(folder: Path, options: Options, cflags: tuple[str, ...] = ()) -> dict[str, Any]:
    """Every function of every C, C++ and IR file below a folder that has something to pack."""
    files = sorted(p for p in folder.rglob("*") if p.suffix in (*COMPILED, ".ll")) if folder.is_dir() else []
    if not files:
        raise HeddleError(
            f"{folder} has no .c or .ll file.",
            "A benchmark runs the kernels of a folder.",
            "Give a folder with C files or LLVM IR.",
        )
    functions, skipped = [], []
    cflags = (*includes(folder), *cflags)
    for path in files:
        try:
            found = improve(read_source(path, cflags=cflags), options, None, str(path))
        except HeddleError as error:
            skipped.append({"file": str(path), "why": error.what})
            continue
        file = str(path.relative_to(folder))
        functions += [{"file": file, **report.facts()} for report in found.reports if report.blocks]
    return {"functions": functions, "skipped": skipped, "summary": summarized(functions)}


def summarized(functions: list[dict[str, Any]]) -> dict[str, Any]:
    """Mean cost reduction over scalar of each candidate, over functions that anyone packed; times as ratios to LLVM."""
    told = [f for f in functions if min(f["cost"].values()) < f["cost"]["scalar"]]

    def reduction(name: str | None) -> float:
        each = [1 - f["cost"][name or f["chosen"]] / f["cost"]["scalar"] for f in told]
        return float(sum(each) / max(1, len(each)))

    ours = ("ilp", "policy", "pairs")
    names = [c for c in ("llvm", *ours, *(f"{m}+llvm" for m in ours)) if all(c in f["cost"] for f in told)]
    facts: dict[str, Any] = {
        "functions": len(told),
        "blocks": sum(len(f["blocks"]) for f in functions),
        "reduction": {name: round(reduction(name), 4) for name in names} | {"chosen": round(reduction(None), 4)},
        "emitted": sum(f["checked"] for f in functions),
        "rejected": sum(len(f["rejected"]) for f in functions),
        "optimal": sum(b["gap"] == 0 for f in functions for b in f["blocks"]),
        "worse_than_llvm": [f["function"] for f in told if f["cost"][f["chosen"]] > f["cost"]["llvm"]],
    }
    timed = [f["nanoseconds"] for f in functions if f.get("nanoseconds")]
    if timed:
        chosen = [f["nanoseconds"]["llvm"] / f["nanoseconds"][f["chosen"]] for f in functions if f.get("nanoseconds")]
        facts["speed"] = {
            "kernels": len(timed),
            "chosen": round(_geometric(chosen), 4),
            "llvm again": round(_geometric([t["llvm"] / t["llvm again"] for t in timed]), 4),
            "losers": [
                f["function"]
                for f in functions
                if f.get("nanoseconds") and f["nanoseconds"]["llvm"] < 0.98 * f["nanoseconds"][f["chosen"]]
            ],
        }
    return facts


def _geometric(values: list[float]) -> float:
    return math.exp(sum(math.log(v) for v in values) / len(values))


def table_of(found: dict[str, Any]) -> Iterator[str]:
    """For the terminal."""
    rows = found["functions"]
    width = max([8, *(len(f["function"]) for f in rows)])
    names = [c for c in ("scalar", "llvm", "ilp", "policy", "pairs") if any(c in f["cost"] for f in rows)]
    yield f"{'function':{width}}" + "".join(f"  {name:>6}" for name in (*names, "chosen"))
    for f in rows:
        cost = f["cost"]
        numbers = (*(cost.get(name, "") for name in names), cost[f["chosen"]])
        yield f"{f['function']:{width}}" + "".join(f"  {n:>6}" for n in numbers) + f"  {f['chosen']}"
    facts = found["summary"]
    yield ""
    yield f"{facts['functions']} functions that some method packs"
    yield f"{facts['emitted']} regions of code emitted and equal, {facts['rejected']} rejected"
    yield "mean cost reduction  " + ", ".join(f"{name} {value:.1%}" for name, value in facts["reduction"].items())
    if "speed" in facts:
        speed = facts["speed"]
        again = f"LLVM against itself {speed['llvm again']:.3f}"
        yield f"speed over LLVM      {speed['chosen']:.3f} on {speed['kernels']} kernels; {again}"
    for skipped in found["skipped"]:
        yield f"skipped {skipped['file']}: {skipped['why']}"

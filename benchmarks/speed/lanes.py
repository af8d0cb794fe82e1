"""Packed code against LLVM's: the kernels of `benchmarks/kernels`, and Heddle's own two on CPUs.

For every kernel the portfolio's code is timed against that of LLVM 22's superword pass, from the same scalar IR, and
LLVM's against itself, which is the noise. Heddle's own kernels are timed against PyTorch's operations, and against the
same C as LLVM packs it.

    python -m benchmarks.speed.lanes [FOLDER] [--seconds 5] [--rounds 15] [--only own]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import torch

from benchmarks.lib.rounds import alternate, report_cases, speedup
from heddle.errors import HeddleError
from heddle.lanes.ir import read_source, take_apart
from heddle.lanes.portfolio import Options, improve
from heddle.lanes.timing import AGAIN, time_function
from heddle.models import fused, random
from heddle.models.kernels import make
from heddle.models.rotary import rotate

KERNELS = Path(__file__).parents[1] / "kernels"
LOSES = 0.98


def timed(work: Callable[[], object], calls: int = 5) -> Callable[[], float]:
    def arm() -> float:
        began = time.perf_counter()
        for _ in range(calls):
            work()
        return time.perf_counter() - began

    return arm


def own(rounds: int) -> list[dict[str, object]]:
    """Rotary positions and dropout as a training step calls them."""
    x = torch.randn(4, 256, 8, 64).transpose(1, 2)
    angle = torch.randn(256, 32).repeat(1, 2)
    cos, sin = angle.cos(), angle.sin()
    hidden, keys = torch.randn(1024, 512), random.token_keys(3, torch.arange(4), 256)
    by_llvm = packed_by_llvm()
    works: dict[str, Callable[[], object]] = {
        "rotary positions": lambda: rotate(x, cos, sin),
        "dropout": lambda: random.dropout(hidden, 0.1, 77, keys),
    }
    cases: list[dict[str, object]] = []
    for name, work in works.items():

        def eager(work: Callable[[], object] = work) -> object:
            with patch.object(fused, "usable", lambda _: False):
                return work()

        def llvm(work: Callable[[], object] = work) -> object:
            with patch.object(fused, "kernels", lambda: by_llvm):
                return work()

        for peer, other in (("PyTorch", eager), ("LLVM's packing of the same C", llvm)):
            if peer != "PyTorch" and by_llvm is None:
                continue
            seconds = alternate({"lanes": timed(work), "peer": timed(other), "peer again": timed(other)}, rounds)
            ratio, a_a = speedup(seconds, "lanes", "peer"), speedup(seconds, "peer again", "peer")
            cases.append({"kernel": name, "against": peer, "ratio": round(ratio, 3), "a_a": round(a_a, 3)})
    return cases


def packed_by_llvm() -> fused.FusedKernels | None:
    """Heddle's own kernels as LLVM's superword pass leaves them; none where there is no clang to read their C."""
    try:
        text = read_source(make.HERE / "fused.c", make.FAMILY)
    except HeddleError:
        return None
    return fused.loaded(improve(text, Options(method="llvm", family=make.FAMILY)).text)


def kernels(folder: Path, seconds: float, rounds: int) -> tuple[list[dict[str, object]], dict[str, object]]:
    """Every kernel of the folder, the fastest candidate kept, and then timed once more against LLVM's code.

    The choice is made by one measurement and judged by another: the fastest of several always looks faster than it is.
    """
    cases: list[dict[str, object]] = []
    for path in sorted(folder.glob("*.c")):
        found = improve(read_source(path), Options(seconds=seconds, time=True), None, str(path))
        functions = {f.name: f for f in take_apart(found.modules["scalar"]).functions}
        for r in found.reports:
            if not r.nanoseconds:
                continue
            arms = {"llvm": found.modules["llvm"], "chosen": found.modules[r.chosen]}
            taken = time_function(arms, functions[r.function], rounds=rounds)
            ratio, a_a = taken["llvm"] / taken["chosen"], taken["llvm"] / taken[AGAIN]
            by_cost = min(r.cost, key=lambda c: (r.cost[c], c != "llvm"))
            unjudged = r.nanoseconds["llvm"] / r.nanoseconds[by_cost]
            cases.append(
                {"kernel": r.function, "against": "LLVM", "chosen": r.chosen, "ratio": round(ratio, 3)}
                | {"a_a": round(a_a, 3), "by_cost_alone": round(unjudged, 3), "nanoseconds": round(taken["chosen"], 1)}
            )
    facts: dict[str, object] = {"kernels": len(cases), "losers": [c["kernel"] for c in cases if c["ratio"] < LOSES]}  # type: ignore[operator]
    for name in ("ratio", "a_a", "by_cost_alone"):
        facts[f"geometric_mean_{name}"] = round(statistics.geometric_mean(float(str(c[name])) for c in cases), 4)
    return cases, facts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=KERNELS, help="C files in place of benchmarks/kernels")
    parser.add_argument("--seconds", type=float, default=5.0, help="for the integer program, for each stretch of code")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", choices=["own", "kernels"])
    options = parser.parse_args()
    torch.set_num_threads(1)
    cases: list[dict[str, object]] = []
    facts: dict[str, object] = {}
    if options.only != "kernels":
        cases += own(options.rounds)
    if options.only != "own":
        more, facts = kernels(options.folder, options.seconds, 3 * options.rounds)
        cases += more
    report_cases("lanes", "PyTorch; LLVM 22's superword pass", cases, **facts)


if __name__ == "__main__":
    main()

"""Packed code against LLVM's: the kernels of `benchmarks/kernels`, and Heddle's own two on CPUs.

For every kernel the portfolio's code is timed against that of LLVM 22's superword pass, from the same scalar IR, and
LLVM's against itself, which is the noise. Heddle's own kernels are timed against PyTorch's operations, and against the
same C as LLVM packs it.

    python -m benchmarks.speed.lanes [--seconds 5] [--rounds 15] [--only own]
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import torch

from benchmarks.lib.rounds import alternate, report_cases, speedup
from heddle.lanes.bench import bench
from heddle.lanes.portfolio import Options
from heddle.models import fused, random
from heddle.models.rotary import rotate

KERNELS = Path(__file__).parents[1] / "kernels"


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
    works: dict[str, Callable[[], object]] = {
        "rotary positions": lambda: rotate(x, cos, sin),
        "dropout": lambda: random.dropout(hidden, 0.1, 77, keys),
    }
    cases: list[dict[str, object]] = []
    for name, work in works.items():

        def eager(work: Callable[[], object] = work) -> object:
            with patch.object(fused, "usable", lambda _: False):
                return work()

        seconds = alternate({"lanes": timed(work), "torch": timed(eager), "torch again": timed(eager)}, rounds)
        ratio, a_a = speedup(seconds, "lanes", "torch"), speedup(seconds, "torch again", "torch")
        cases.append({"kernel": name, "against": "PyTorch", "ratio": round(ratio, 3), "a_a": round(a_a, 3)})
    return cases


def kernels(seconds: float) -> tuple[list[dict[str, object]], dict[str, object]]:
    """Every kernel of the folder, the fastest candidate kept; and what they come to."""
    found = bench(KERNELS, Options(seconds=seconds, time=True))
    cases: list[dict[str, object]] = []
    for f in found["functions"]:
        if taken := f.get("nanoseconds"):
            ratio, a_a = taken["llvm"] / taken[f["chosen"]], taken["llvm"] / taken["llvm again"]
            cases.append(
                {"kernel": f["function"], "against": "LLVM", "chosen": f["chosen"], "ratio": ratio, "a_a": a_a}
            )
    ratios = [float(str(c["ratio"])) for c in cases]
    noise = [float(str(c["a_a"])) for c in cases]
    facts = {
        "kernels": len(cases),
        "geometric_mean": round(math.exp(sum(map(math.log, ratios)) / len(ratios)), 4),
        "geometric_mean_a_a": round(math.exp(sum(map(math.log, noise)) / len(noise)), 4),
        "losers": [c["kernel"] for c in cases if float(str(c["ratio"])) < 0.98],
        "reduction": found["summary"]["reduction"],
    }
    return cases, facts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0, help="for the programme, for each stretch of code")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", choices=["own", "kernels"])
    options = parser.parse_args()
    torch.set_num_threads(1)
    cases: list[dict[str, object]] = []
    facts: dict[str, object] = {}
    if options.only != "kernels":
        cases += own(options.rounds)
    if options.only != "own":
        more, facts = kernels(options.seconds)
        cases += more
    report_cases("lanes", "PyTorch; LLVM 22's superword pass", cases, **facts)


if __name__ == "__main__":
    main()

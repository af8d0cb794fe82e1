"""What packing saves by LLVM's own costs, on programs that nobody learned from, block by block.

    python -m benchmarks.accuracy.packing [FOLDER ...] [--seconds 10] [--made-up 0] [--store rows.jsonl]

For every block that anyone packs: the cost reduction over scalar code of LLVM 22's superword pass, of the integer
program, of the policy, of pairs as published, and of what the portfolio kept. Also how often the integer program proved
its answer to be the best, what share of its reduction the policy reaches, and the CPU seconds of each by the size of a
block. LLVM's seconds are those of its whole pipeline, spread evenly over the functions of a file. The policy and pairs
run alone as well, since in the portfolio they share vectors and time with the integer program.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.lib.rounds import report_cases
from heddle.errors import HeddleError
from heddle.lanes.ir import includes, read_source
from heddle.lanes.policy.kernels import kernel
from heddle.lanes.portfolio import Options, improve

HERE = Path(__file__).parents[2]
FOLDERS = [HERE / "benchmarks" / "kernels", HERE / "tests" / "lanes" / "programs"]
SIZES = (25, 50, 100, 200, 10_000)  # statements of a block, up to
UNSEEN = 90_000  # the first seed that training does not use
ENOUGH = 10.0  # CPU seconds for a proof


def texts(folders: Iterable[Path], made_up: int) -> Iterator[tuple[str, str]]:
    for folder in folders:
        for path in sorted(p for p in folder.rglob("*") if p.suffix in (".c", ".ll")):
            try:
                yield str(path), read_source(path, cflags=includes(folder))
            except HeddleError as error:
                print(f"left out: {error.what}", flush=True)
    for seed in range(UNSEEN, UNSEEN + made_up):
        yield f"made up {seed}", kernel(seed, 1 + seed % 3).text


def rows_of(text: str, source: str, options: Options) -> Iterator[dict[str, Any]]:
    """A row for every block that was looked at."""
    functions = improve(text, options, None, source).facts()["functions"]
    for method in ("policy", "pairs"):
        alone = improve(text, replace(options, method=method), None, source).facts()["functions"]
        for function, other in zip(functions, alone, strict=True):
            function["checked"] += other["checked"]
            function["rejected"] += other["rejected"]
            for block, same in zip(function["blocks"], other["blocks"], strict=True):
                block["cost"][method], block["seconds"][method] = same["cost"][method], same["seconds"][method]
                block[f"gap of {method}"] = same["gap"]
    for function in functions:
        whole = {name: function["cost"][name] for name in ("scalar", "llvm")}
        whole["chosen"] = function["cost"][function["chosen"]]
        for block in function["blocks"]:
            checks = {"emitted": function["checked"], "rejected": function["rejected"], "function_cost": whole}
            yield {"file": source, "function": function["function"], **block, **checks}


def reductions(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Mean over blocks of 1 - cost / scalar."""
    found = {}
    for name in ("llvm", "ilp", "policy", "pairs", "chosen"):
        found[name] = statistics.mean(1 - r["cost"][name] / r["cost"]["scalar"] for r in rows)
    return found


def by_size(rows: list[dict[str, Any]]) -> list[dict[str, object]]:
    cases, least = [], 0
    for most in SIZES:
        some = [r for r in rows if least < r["statements"] <= most]
        if some:
            seconds = {
                m: [round(float(np.quantile([r["seconds"][m] for r in some], q)), 3) for q in (0.5, 0.95)]
                for m in ("llvm", "policy", "pairs", "ilp")
            }
            proved = sum(r["gap"] == 0 and r["seconds"]["ilp"] <= ENOUGH for r in some) / len(some)
            ratio = round(reductions(some)["chosen"] / max(1e-9, reductions(some)["llvm"]), 3)
            cases.append(
                {"statements": f"{least + 1}-{most}", "blocks": len(some), "ratio": ratio, "proved": round(proved, 3)}
                | {"p50_p95_cpu_seconds": seconds}
            )
        least = most
    return cases


def summary(rows: list[dict[str, Any]]) -> tuple[list[dict[str, object]], dict[str, object]]:
    known = [r for r in rows if all(r["cost"][c] is not None for c in r["cost"])]
    packed = [r for r in known if min(r["cost"].values()) < r["cost"]["scalar"]]
    found = reductions(packed)
    small = [r for r in packed if r["statements"] <= 100]
    slow = [r["seconds"]["ilp"] / max(1e-6, r["seconds"]["policy"]) for r in packed if r["seconds"]["ilp"] > 1]
    functions = {(r["file"], r["function"]): r for r in rows}
    whole = [
        r["function_cost"]
        for r in functions.values()
        if min(r["function_cost"].values()) < r["function_cost"]["scalar"]
    ]
    each = {name: statistics.mean(1 - c[name] / c["scalar"] for c in whole) for name in ("llvm", "chosen")}
    return by_size(packed), {
        "blocks": len(rows),
        "packed_by_anyone": len(packed),
        "reduction": {name: round(value, 4) for name, value in found.items()},
        "ratio": round(found["chosen"] / found["llvm"], 4),
        "functions": len(whole),
        "reduction_of_functions": {name: round(value, 4) for name, value in each.items()},
        "ratio_of_functions": round(each["chosen"] / each["llvm"], 4),
        "policy_of_ilp": round(found["policy"] / found["ilp"], 4),
        "proved_up_to_100": round(sum(r["gap"] == 0 and r["seconds"]["ilp"] <= ENOUGH for r in small) / len(small), 4),
        "blocks_where_ilp_takes_1s": len(slow),
        "policy_faster_there": {
            "median": round(statistics.median(slow), 1) if slow else None,
            "least": round(min(slow), 1) if slow else None,
            "at_least_10": sum(s >= 10 for s in slow),
        },
        "pairs_at_their_limit": sum(r["gap of pairs"] > 0 for r in packed),
        "pairs_dearer_than_llvm": sum(r["cost"]["pairs"] > r["cost"]["llvm"] for r in packed),
        "dearer_than_llvm": [
            k[1] for k, r in functions.items() if r["function_cost"]["chosen"] > r["function_cost"]["llvm"]
        ],
        "blocks_dearer_than_llvm": sum(r["cost"]["chosen"] > r["cost"]["llvm"] for r in packed),
        "stretches_emitted_and_equal": sum(r["emitted"] for r in functions.values()),
        "rejected": sum(len(r["rejected"]) for r in functions.values()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path, default=FOLDERS)
    parser.add_argument("--seconds", type=float, default=10.0, help="for the integer program, for each stretch of code")
    parser.add_argument("--made-up", type=int, default=0, help="kernels from the generator as well")
    parser.add_argument(
        "--store", type=Path, help="append a line for every block; files that are in it are not run again"
    )
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    if options.store is not None and options.store.exists():
        rows = [json.loads(line) for line in options.store.read_text().splitlines()]
    done = {r["file"] for r in rows}
    for source, text in texts(options.folders, options.made_up):
        if source in done:
            continue
        more = list(rows_of(text, source, Options(seconds=options.seconds)))
        rows += more
        if options.store is not None:
            with options.store.open("a") as file:
                file.writelines(json.dumps(r) + "\n" for r in more)
    cases, facts = summary(rows)
    report_cases("packing", "LLVM 22's superword pass", cases, **facts)


if __name__ == "__main__":
    main()

"""CPU seconds of `heddle place` against those of the published C++ programs on the same operator graphs.

The peers' seconds are quoted from `reference_placement.csv` beside the published workloads: one run of them on the
machine that this was written on. Ours are CPU seconds from the parsed file to the answer, preprocessing included.

    python -m benchmarks.planners.placement [--data ../shared/data] [--rounds 3] [--graphs layer/gnmt_inference …]
"""

from __future__ import annotations

import argparse
import csv
import json
import statistics
import sys
import time
from pathlib import Path

from benchmarks.lib.rounds import report_cases
from heddle.planning.placement.operator_graph import graph_from
from heddle.planning.placement.place import place

GRAPHS = [
    "layer/gnmt_inference",
    "operator/bert_l-12_inference",
    "operator/bert_L-12_training",
    "operator/bert_l-3_training",
]
METHODS = {"dpl": "DP linearised (DPL)", "dp": "DP over ideals"}  # as the table of reference results spells them


def case(data: Path, name: str, method: str, row: dict[str, str] | None, rounds: int) -> dict[str, object]:
    document = json.loads((data / "placement" / "throughput" / f"{name}.json").read_text())
    seconds = []
    for _ in range(rounds):
        before = time.process_time()
        answer = place(graph_from(document), method=method)
        seconds.append(time.process_time() - before)
    cpu = statistics.median(seconds)
    peer = float(row["cpu_s"]) if row and row["cpu_s"] else None
    return {
        "graph": name,
        "method": method,
        "value": answer.value,
        "peer_value": float(row["value_ms"]) if row else None,
        "optimal": answer.optimal,
        "cpu_seconds": round(cpu, 4),
        "peer_cpu_seconds": peer,
        "ratio": round(peer / cpu, 2) if peer else None,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(__file__).parents[3] / "shared" / "data")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--graphs", nargs="+", default=GRAPHS)
    options = parser.parse_args()
    if not options.data.is_dir():
        sys.exit(f"The published workloads are not in {options.data}; name their folder with --data.")
    with (options.data / "reference_placement.csv").open(encoding="utf-8") as file:
        rows = {(f"{row['granularity']}/{row['workload']}", row["method"]): row for row in csv.DictReader(file)}
    found = [
        case(options.data, name, method, rows.get((name, peer)), options.rounds)
        for name in options.graphs
        for method, peer in METHODS.items()
    ]
    report_cases("placement", "published dp.cpp, CPU seconds as quoted in reference_placement.csv", found)


if __name__ == "__main__":
    main()

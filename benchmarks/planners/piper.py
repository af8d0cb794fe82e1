"""CPU seconds of `heddle piper`'s search against those of the published C++ program on the same workloads.

The peer's seconds are quoted from `reference_piper.csv` beside the published workloads: one run of it (g++ -O3) on the
machine that this was written on. Ours are CPU seconds of a search with its tables, without reading the file; `cold` is
a whole process, with Python's start and all imports.

    python -m benchmarks.planners.piper [--data ../shared/data] [--rounds 3] [--rows bert32_a100:512:8 …]
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.lib.rounds import report_cases
from heddle.planning.piper.solve import plan_pipelines
from heddle.planning.piper.workload import workload_from

FILES = {"bert32_a100": "bert32a100.json", "resnet50": "resnet.json"}
ROWS = ["bert32_a100:128:8", "bert32_a100:512:8", "bert32_a100:1024:8", "resnet50:16:4", "resnet50:32:8"]


def case(data: Path, row: dict[str, str], rounds: int) -> dict[str, object]:
    document = json.loads((data / "piper" / FILES[row["model"]]).read_text())
    document |= {"bandwidth": float(row["bandwidth_GiBps"]) * 2**30, "mbsInBatch": int(row["microbatches"])}
    devices, memory = int(row["devices"]), float(row["mem_GiB"])
    workload = workload_from(document).replace(devices=devices, memory=memory * 2**30)
    seconds = []
    for _ in range(rounds):
        before = time.process_time()
        answer = plan_pipelines(workload)[devices]
        seconds.append(time.process_time() - before)
    assert answer is not None
    cpu, peer = statistics.median(seconds), float(row["cpu_total_s"])
    return {
        "model": row["model"],
        "devices": devices,
        "memory_gib": memory,
        "value": answer.value,
        "peer_value": float(row["tps_s"]),
        "optimal": answer.optimal,
        "cpu_seconds": round(cpu, 4),
        "cold_cpu_seconds": round(cold(data / "piper" / FILES[row["model"]], devices, memory), 4),
        "peer_cpu_seconds": peer,
        "ratio": round(peer / cpu, 2),
    }


def cold(path: Path, devices: int, memory: float) -> float:
    """CPU seconds of the whole command."""
    options = ["--devices", str(devices), "--memory-gib", str(memory), "--bandwidth-gib", "25", "--json"]
    process = subprocess.Popen(
        [sys.executable, "-m", "heddle", "piper", str(path), *options], stdout=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(__file__).parents[3] / "shared" / "data")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rows", nargs="+", default=ROWS, help="model:devices:GiB")
    options = parser.parse_args()
    if not options.data.is_dir():
        sys.exit(f"The published workloads are not in {options.data}; name their folder with --data.")
    with (options.data / "reference_piper.csv").open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["mode"] == "all" and row["microbatches"] in ("1920", "7680")]
    by_name = {f"{row['model']}:{row['devices']}:{row['mem_GiB']}": row for row in rows}
    found = [case(options.data, by_name[name], options.rounds) for name in options.rows]
    report_cases("piper", "published algo.cpp, CPU seconds as quoted in reference_piper.csv", found)


if __name__ == "__main__":
    main()

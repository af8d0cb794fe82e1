"""Every benchmark, one after the other, each in a process of its own; one table of what they found.

    python -m benchmarks.all [--only speed planners] [--output benchmarks.json]

Each prints a JSON line with its ratio to a named peer. The lines go to the file as they are; the table shows of each
case the ratio and, beside it, the ratio of the peer to itself: the noise of this machine. Let nothing else run.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
FOLDERS = ("speed", "planners", "accuracy", "faults")


def modules(folders: list[str]) -> list[str]:
    """The benchmarks of some folders, as Python names them."""
    return [
        f"benchmarks.{folder}.{path.stem}"
        for folder in folders
        for path in sorted((HERE / folder).glob("*.py"))
        if path.stem != "__init__"
    ]


def run(module: str) -> dict[str, Any]:
    """What a benchmark prints, or how it ended."""
    began = time.perf_counter()
    ended = subprocess.run(
        [sys.executable, "-m", module],
        cwd=HERE.parent,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    seconds = round(time.perf_counter() - began, 1)
    try:
        found: dict[str, Any] = json.loads(ended.stdout.strip().splitlines()[-1])
    except (IndexError, json.JSONDecodeError):
        found = {"benchmark": module, "peer": "", "failed": f"exit code {ended.returncode}"}
    return found | {"module": module, "seconds": seconds}


def rows(found: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    """Benchmark, case, ratio and noise, for the table; a benchmark without a ratio says so."""
    name = found["benchmark"]
    if "failed" in found:
        return [(name, found["failed"], "–", "–")]
    shown = []
    for case in found.get("cases", [found]):
        words = [
            f"{key} {value}" for key, value in case.items() if isinstance(value, (str, bool, int)) and key not in found
        ]
        shown.append((name, ", ".join(words)[:60], _number(case.get("ratio")), _number(case.get("a_a"))))
    return shown


def _number(value: object) -> str:
    return f"{value:.3f}" if isinstance(value, (int, float)) else "–"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=FOLDERS, default=list(FOLDERS), help="folders of benchmarks")
    parser.add_argument("--output", type=Path, default=Path("benchmarks.json"), help="where the JSON lines go")
    parser.add_argument("--list", action="store_true", help="name the benchmarks, and run none")
    options = parser.parse_args()
    names = modules(options.only)
    if options.list:
        print("\n".join(names))
        return
    with options.output.open("w", encoding="utf-8") as file:
        print(f"{'benchmark':<20} {'case':<60} {'ratio':>8} {'noise':>8}")
        for module in names:
            found = run(module)
            file.write(json.dumps(found) + "\n")
            file.flush()
            for name, case, ratio, noise in rows(found):
                print(f"{name:<20} {case:<60} {ratio:>8} {noise:>8}", flush=True)


if __name__ == "__main__":
    main()

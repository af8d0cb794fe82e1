"""Networks as tiles against PyTorch, eager and compiled, onnxruntime and OpenVINO, each alone in its process.

Rounds alternate in random order; a second eager PyTorch is the A/A arm. `ratio` is the best peer's median over ours,
`ratio_minimum` the same of minima, `over_eager` eager's over ours. Let nothing else run.

    python -m benchmarks.speed.tiles [--threads 1 2] [--networks bert_s128 resnet50] [--peers eager] [--rounds 7]
    python -m benchmarks.speed.tiles --load          # with another process on one core
    python -m benchmarks.speed.tiles --at-once 2     # two of the same network, called at the same time
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import sys
from contextlib import contextmanager
from typing import Any

from benchmarks.lib.networks import NETWORKS, small
from benchmarks.lib.rounds import report_cases
from heddle.tiles.bench import bench
from heddle.tiles.peers import installed


def _busy() -> None:
    while True:
        math.sqrt(2)


@contextmanager
def load(wanted: bool) -> Any:
    """Another process that never rests."""
    process = multiprocessing.get_context("spawn").Process(target=_busy, daemon=True)
    if wanted:
        process.start()
    try:
        yield
    finally:
        if wanted:
            process.kill()
            process.join()


def case(name: str, threads: int, engines: list[str], rounds: int, at_once: int) -> dict[str, Any]:
    found = bench({**NETWORKS, "small": small}[name], threads, engines, rounds, at_once)
    peers = [engine for engine in found["milliseconds"] if engine not in ("heddle", "eager again")]
    ours = found["milliseconds"]["heddle"]
    best = min(peers, key=lambda engine: found["milliseconds"][engine])
    result = {
        "network": name,
        "threads": threads,
        "best_peer": best,
        "ratio": found["milliseconds"][best] / ours,
        "ratio_minimum": min(found["minimum"][engine] for engine in peers) / found["minimum"]["heddle"],
        "ratio_cpu": min(found["cpu_minimum"][engine] for engine in peers) / found["cpu_minimum"]["heddle"],
        "over_eager_cpu": found["cpu_minimum"]["eager"] / found["cpu_minimum"]["heddle"],
        "over_eager": found["milliseconds"]["eager"] / ours,
        "a_a": found["milliseconds"]["eager"] / found["milliseconds"]["eager again"],
        **{
            key: found[key]
            for key in ("milliseconds", "minimum", "cpu_minimum", "max_error", "tiles", "fallback_operators", "missing")
        },
    }
    each = ", ".join(f"{engine} {value:.1f}" for engine, value in found["milliseconds"].items())
    print(
        f"{name} × {threads}: {each} ms; {result['ratio']:.2f} of {best}, {result['over_eager']:.2f} of eager",
        "; CPU " + ", ".join(f"{engine} {value:.1f}" for engine, value in found["cpu_minimum"].items()),
        file=sys.stderr,
        flush=True,
    )
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, nargs="+", default=[2, 1])
    parser.add_argument("--networks", nargs="+", default=list(NETWORKS), choices=[*NETWORKS, "small"])
    parser.add_argument("--peers", nargs="+", default=installed(), help="engines besides heddle and eager")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--load", action="store_true", help="beside a process that keeps one core busy")
    parser.add_argument("--at-once", type=int, default=1, help="networks that are called at the same time")
    options = parser.parse_args()
    engines = [
        "heddle",
        "eager",
        "eager again",
        *(name for name in options.peers if name not in ("heddle", "eager", "eager again")),
    ]
    with load(options.load):
        cases = [
            case(name, threads, engines, options.rounds, options.at_once)
            for threads in options.threads
            for name in options.networks
        ]
    mean = {
        f"mean_{key}": math.exp(sum(math.log(each[key]) for each in cases) / len(cases))
        for key in ("ratio", "over_eager", "ratio_cpu", "over_eager_cpu")
    }
    losers = [f"{each['network']} × {each['threads']}" for each in cases if each["ratio"] < 1]
    report_cases(
        "tiles",
        "the best of " + ", ".join(engines[1:]),
        cases,
        loaded=options.load,
        at_once=options.at_once,
        losers=losers,
        **mean,
    )


if __name__ == "__main__":
    main()

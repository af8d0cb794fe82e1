"""Alternating rounds: every arm is timed once a round, in an order that turns, so that drift hits all alike."""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable

Arm = Callable[[], float]  # does its work once and gives the seconds it took


def alternate(arms: dict[str, Arm], rounds: int, rank: int = 0) -> dict[str, list[float]]:
    """Time all arms `rounds` times after one round to warm up. Several ranks that call this stay in step."""
    names = list(arms)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for number in range(rounds + 1):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            taken = arms[name]()
            if number:
                seconds[name].append(taken)
        if rank == 0 and sys.stderr.isatty():
            print(f"round {number}/{rounds}", end="\r", file=sys.stderr, flush=True)
    return seconds


def speedup(seconds: dict[str, list[float]], ours: str, peer: str) -> float:
    """How many times faster we are: the median over rounds of peer / ours within a round."""
    return statistics.median(p / o for p, o in zip(seconds[peer], seconds[ours], strict=True))


def report(name: str, peer: str, seconds: dict[str, list[float]], **ratios: object) -> None:
    """One JSON line: medians of each arm and the ratios asked for (above 1 means that we are faster)."""
    medians = {arm: round(statistics.median(values), 5) for arm, values in seconds.items()}
    rounded = {key: round(value, 4) if isinstance(value, float) else value for key, value in ratios.items()}
    print(json.dumps({"benchmark": name, "peer": peer, "median_seconds": medians, **rounded}))


def report_cases(name: str, peer: str, cases: list[dict[str, object]], **facts: object) -> None:
    """One JSON line for a benchmark of several cases."""
    print(json.dumps({"benchmark": name, "peer": peer, **facts, "cases": cases}))

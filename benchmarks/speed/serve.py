"""Latency of a network under load: several clients call it at once, tiles against onnxruntime with as many threads.

Each client waits for its answer and asks again at once. Every engine is alone in its process; rounds alternate in
random order, and a second arm of tiles is the A/A arm. `ratio_p50` and `ratio_p99` are the best peer's latency over
ours, `ratio_calls` our calls per second over its. Let nothing else run.

    python -m benchmarks.speed.serve [--networks mobilenet_v2 bert_s32] [--threads 2] [--clients 1 4] [--seconds 1.5]
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import sys
import threading
import time
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import torch

from benchmarks.lib.networks import NETWORKS
from benchmarks.lib.rounds import report_cases
from heddle.tiles.peers import ENGINES, installed

PAUSE, PATIENCE = 0.2, 600.0


def serve(arm: str, network: str, threads: int, pipe: Connection) -> None:
    """An engine's process: get ready, then let clients at it when told to."""
    try:
        torch.manual_seed(0)
        module, inputs, keywords = NETWORKS[network]()
        torch.set_num_threads(threads)
        with torch.no_grad():
            run = ENGINES[arm](module, inputs, keywords, threads)
            run()
        pipe.send({})
        while (asked := pipe.recv()) is not None:
            pipe.send(_load(run, *asked))
    except EOFError:
        return
    except Exception as error:
        with suppress(OSError):
            pipe.send({"failed": f"{type(error).__name__}: {error}"[:300]})


def _load(run: Any, clients: int, seconds: float) -> list[float]:
    """What each call took, of so many clients for so long."""
    taken: list[list[float]] = [[] for _ in range(clients)]
    end = time.perf_counter() + seconds

    def client(mine: list[float]) -> None:
        with torch.no_grad():
            while (start := time.perf_counter()) < end:
                run()
                mine.append(time.perf_counter() - start)

    threads = [threading.Thread(target=client, args=(mine,)) for mine in taken]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return [each for mine in taken for each in mine[1:]]  # the first wakes threads


def cases_of(network: str, threads: int, clients: list[int], seconds: float, rounds: int) -> list[dict[str, Any]]:
    context = multiprocessing.get_context("forkserver")
    engines = {"tiles": "heddle", "tiles again": "heddle"}
    engines |= {name: name for name in installed() if name in ("eager", "onnxruntime")}
    arms: dict[str, tuple[Any, Connection]] = {}
    for name, engine in engines.items():
        here, there = context.Pipe()
        process = context.Process(target=serve, args=(engine, network, threads, there), daemon=True)
        process.start()
        there.close()
        arms[name] = (process, here)
    try:
        for name in list(arms):
            found = _answer(arms[name][1])
            if "failed" in found:
                print(name, found["failed"], file=sys.stderr)
                arms.pop(name)[0].kill()
        return [_case(network, threads, count, seconds, rounds, arms) for count in clients]
    finally:
        for process, pipe in arms.values():
            with suppress(OSError):
                pipe.send(None)
            process.join(5)
            process.kill()


def _answer(pipe: Connection) -> Any:
    try:
        return pipe.recv() if pipe.poll(PATIENCE) else {"failed": "not ready in time"}
    except EOFError:
        return {"failed": "its process ended"}


def _case(network: str, threads: int, clients: int, seconds: float, rounds: int, arms: Any) -> dict[str, Any]:
    chance, names = random.Random(0), list(arms)
    taken: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(rounds):
        chance.shuffle(names)
        for name in names:
            time.sleep(PAUSE)
            arms[name][1].send((clients, seconds))
            taken[name] += _answer(arms[name][1])
    found = {
        name: {
            "p50": round(1e3 * float(np.percentile(each, 50)), 3),
            "p99": round(1e3 * float(np.percentile(each, 99)), 3),
            "calls_per_second": round(len(each) / seconds / rounds, 1),
        }
        for name, each in taken.items()
    }
    ours, peers = found["tiles"], [each for name, each in found.items() if not name.startswith("tiles")]
    result = {
        "network": network,
        "threads": threads,
        "clients": clients,
        "milliseconds": found,
        **{f"ratio_{key}": round(min(each[key] for each in peers) / ours[key], 3) for key in ("p50", "p99")},
        "ratio_calls": round(ours["calls_per_second"] / max(each["calls_per_second"] for each in peers), 3),
        "a_a": round(found["tiles again"]["p50"] / ours["p50"], 3),
    }
    print(result, file=sys.stderr, flush=True)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--networks", nargs="+", default=["mobilenet_v2", "bert_s32", "resnet50"], choices=list(NETWORKS)
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--seconds", type=float, default=1.5)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    cases = [
        case
        for network in options.networks
        for case in cases_of(network, options.threads, options.clients, options.seconds, options.rounds)
    ]
    report_cases("serve", "the better of PyTorch and onnxruntime, called by as many threads", cases)


if __name__ == "__main__":
    main()

"""Tokens per second of a Llama on CPU cores, one at a time: tiles against llama.cpp, PyTorch, onnxruntime, OpenVINO.

Every engine is alone in its process and has the same weights in the same number of bits (bfloat16; int8 and int4 in
groups of 32, llama.cpp's Q8_0 and Q4_0). Rounds alternate in random order; a second arm of tiles is the A/A arm.
`ratio` is tiles' median rate over the best peer's, `ratio_minimum` the same of the fastest tokens, `share` the time in
which as many threads merely read the bytes of the weights over the time of a token. Let nothing else run.

    python -m benchmarks.speed.decode [--models 10M 110M] [--threads 1 2] [--weights float32 int4] [--batch 1]
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import statistics
import sys
import time
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

import torch

from benchmarks.lib.bandwidth import Reader
from benchmarks.lib.decoders import CONTEXT, ENGINES, MODELS, build, installed
from benchmarks.lib.rounds import report_cases

BYTES = {"float32": 4.0, "bfloat16": 2.0, "int8": 1.0625, "int4": 0.5625}  # of a weight with its part of a scale
TOKENS, PAUSE, PATIENCE = 24, 0.1, 600.0


def weights_read(model: Any) -> int:
    """Weights that a token meets in products: a tied head is one of them, the look-up is none."""
    return sum(each.weight.numel() for each in model.modules() if isinstance(each, torch.nn.Linear))


@torch.no_grad()
def serve(arm: str, model: str, weights: str, threads: int, batch: int, pipe: Connection) -> None:
    """An arm's process: get ready, then time some tokens when told to."""
    try:
        torch.set_num_threads(threads)
        built = build(model)
        if arm == "reading":
            reader = Reader(int(weights_read(built) * BYTES[weights]), threads)
            del built
            pipe.send({"bytes": 0})
            while pipe.recv() is not None:
                pipe.send([reader.seconds() for _ in range(3)])
            return
        decode = ENGINES[arm][0](built, weights, threads, batch)
        logits = torch.as_tensor(decode(7, CONTEXT)).float().reshape(-1)[: built.spec.vocab].clone()
        pipe.send({"logits": logits, "read": weights_read(built)})
        while pipe.recv() is not None:
            seconds = []
            for number in range(TOKENS + 2):
                start = time.perf_counter()
                decode(number, CONTEXT + number)
                seconds.append(time.perf_counter() - start)
            pipe.send(seconds[2:])  # the first wake threads
    except EOFError:
        return
    except Exception as error:
        with suppress(OSError):
            pipe.send({"failed": f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[:300]})


def case(model: str, weights: str, threads: int, batch: int, rounds: int, peers: list[str]) -> dict[str, Any]:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["benchmarks.lib.decoders", "benchmarks.lib.bandwidth"])
    arms: dict[str, tuple[Any, Connection]] = {}
    facts, missing = {}, {}
    names = ["reading", *(each for each in installed(weights) if each.startswith("tiles") or each in peers)]
    for name in names:
        here, there = context.Pipe()
        process = context.Process(target=serve, args=(name, model, weights, threads, batch, there), daemon=True)
        process.start()
        there.close()
        arms[name] = (process, here)
    try:
        for name in list(arms):
            found = _answer(arms[name][1])
            if "failed" in found:
                missing[name] = found["failed"]
                arms.pop(name)[0].kill()
            facts[name] = found
        seconds = _rounds({name: pipe for name, (_, pipe) in arms.items()}, rounds)
    finally:
        for process, pipe in arms.values():
            with suppress(OSError):
                pipe.send(None)
            process.join(10)
            process.kill()
    return _result(model, weights, threads, batch, seconds, facts, missing)


def _answer(pipe: Connection) -> Any:
    try:
        return pipe.recv() if pipe.poll(PATIENCE) else {"failed": "not ready in time"}
    except EOFError:
        return {"failed": "its process ended"}


def _rounds(pipes: dict[str, Connection], rounds: int) -> dict[str, list[float]]:
    chance, names = random.Random(0), list(pipes)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for number in range(rounds + 1):
        chance.shuffle(names)
        for name in names:
            time.sleep(PAUSE)
            pipes[name].send("go")
            found = _answer(pipes[name])
            if number:
                seconds[name] += found
    return seconds


def _result(
    model: str, weights: str, threads: int, batch: int, seconds: dict[str, list[float]], facts: Any, missing: Any
) -> dict[str, Any]:
    medians = {name: statistics.median(each) for name, each in seconds.items()}
    peers = {name: each for name, each in medians.items() if name not in ("tiles", "tiles again", "reading")}
    best = min(peers, key=lambda name: peers[name], default=None)
    least = {name: min(each) for name, each in seconds.items()}
    wanted = facts["tiles"]["logits"]
    off = {
        name: round(float((facts[name]["logits"] - wanted).abs().max() / wanted.abs().max()), 5)
        for name in medians
        if name != "reading"
    }
    read = facts["tiles"]["read"] * BYTES[weights]
    result = {
        "model": model,
        "weights": weights,
        "threads": threads,
        "batch": batch,
        "tokens_per_second": {name: round(batch / each, 1) for name, each in medians.items() if name != "reading"},
        "best_peer": best,
        "ratio": round(peers[best] / medians["tiles"], 3) if best else None,
        "ratio_minimum": round(min(least[name] for name in peers) / least["tiles"], 3) if best else None,
        "most_tokens_per_second": {name: round(batch / each, 1) for name, each in least.items() if name != "reading"},
        "a_a": round(medians["tiles again"] / medians["tiles"], 3),
        "megabytes": round(read / 1e6, 1),
        "read_gigabytes_per_second": round(read / medians["reading"] / 1e9, 1),
        "share": round(medians["reading"] / medians["tiles"], 3),
        "share_minimum": round(least["reading"] / least["tiles"], 3),
        "logits_off_tiles": off,
        "missing": missing,
    }
    print(result, file=sys.stderr, flush=True)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", default=["10M", "50M", "110M"], choices=list(MODELS))
    parser.add_argument("--threads", type=int, nargs="+", default=[2, 1])
    parser.add_argument("--weights", nargs="+", default=list(BYTES), choices=list(BYTES))
    parser.add_argument("--batch", type=int, nargs="+", default=[1])
    parser.add_argument("--peers", nargs="+", default=[name for name in ENGINES if not name.startswith("tiles")])
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    cases = [
        case(model, weights, threads, batch, options.rounds, options.peers)
        for model in options.models
        for threads in options.threads
        for batch in options.batch
        for weights in options.weights
    ]
    report_cases("decode", "the best engine with weights of as many bits", cases, context=CONTEXT)


if __name__ == "__main__":
    main()

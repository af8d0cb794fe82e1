"""Tokens per second of a GPT on CPU cores: a prompt, and token by token behind it, by PyTorch and by tiles.

Arms take turns in one process with a pause before each, so that threads which wait for more work are asleep. `ratio` is
PyTorch's time over that of tiles, `ratio_int8` over that of tiles with int8 weights, `a_a` PyTorch's over its own. CPU
time of the best call stands beside the clock: with one thread it says something on a busy machine, too.

    python -m benchmarks.speed.generate [--threads 1 2] [--contexts 64 512] [--layers 12] [--hidden 768] [--rounds 5]
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from functools import partial
from typing import Any

import torch

from benchmarks.lib.rounds import Arm, alternate, report_cases, speedup
from heddle.models.generate import Engine, KeyValueCache, newest_logits
from heddle.models.init import initialize
from heddle.models.transformer import Transformer
from heddle.spec import ModelSpec
from heddle.tiles.generate import TileEngine, weight_error

TOKENS = 16  # that are decoded in a turn
PAUSE = 0.2  # seconds


def build(layers: int, hidden: int) -> Transformer:
    """A GPT with random weights, as it would begin to train."""
    spec = ModelSpec(layers=layers, hidden=hidden, heads=hidden // 64, vocab=32000, sequence=1024)
    model = Transformer(spec)
    initialize(model, 0)
    return model.eval()


def turn(engine: Engine, ids: torch.Tensor, context: int, tokens: int, cpu: list[float]) -> float:
    """Seconds of the prompt (no tokens), or of each token behind it. `cpu` notes CPU seconds of each call."""
    time.sleep(PAUSE)
    cache = KeyValueCache(1, 1024)
    seconds = []

    def call(first: int, last: int) -> None:
        start, used = time.perf_counter(), time.process_time()
        engine(ids[first:last], cache)
        cpu.append(time.process_time() - used)
        seconds.append(time.perf_counter() - start)
        cache.length = last

    call(0, context)
    if not tokens:
        return seconds[0]
    cpu.pop()
    for place in range(context, context + tokens):
        call(place, place + 1)
    return statistics.fmean(seconds[2:])  # the first wakes threads


@torch.no_grad()
def case(model: Transformer, threads: int, context: int, rounds: int) -> dict[str, Any]:
    torch.set_num_threads(threads)
    ids = torch.randint(0, model.spec.vocab, (context + TOKENS,), generator=torch.Generator().manual_seed(0))
    tiles, int8 = TileEngine(model, threads), TileEngine(model, threads, "int8")
    plain = partial(newest_logits, model)
    engines: dict[str, Engine] = {"pytorch": plain, "pytorch again": plain, "tiles": tiles, "tiles int8": int8}
    found: dict[str, Any] = {"threads": threads, "context": context}
    for name, tokens in (("decode", TOKENS), ("prompt", 0)):
        cpu: dict[str, list[float]] = {arm: [] for arm in engines}
        arms: dict[str, Arm] = {
            arm: partial(turn, engine, ids, context, tokens, cpu[arm])
            for arm, engine in engines.items()
            if tokens or arm != "tiles int8"  # prompts are computed in float32
        }
        seconds = alternate(arms, rounds)
        share = 1 if tokens else context
        found[f"{name}_tokens_per_second"] = {
            arm: round(share / statistics.median(each), 2) for arm, each in seconds.items()
        }
        found[f"{name}_cpu_milliseconds_minimum"] = {
            arm: round(1e3 * min(each), 3) for arm, each in cpu.items() if each
        }
        found["ratio" if tokens else "ratio_prompt"] = round(speedup(seconds, "tiles", "pytorch"), 3)
        found["a_a" if tokens else "a_a_prompt"] = round(speedup(seconds, "pytorch again", "pytorch"), 3)
        if tokens:
            found["ratio_int8"] = round(speedup(seconds, "tiles int8", "pytorch"), 3)
    error = weight_error(int8, ids.tolist(), 64)
    assert error is not None
    print(found, error, file=sys.stderr, flush=True)
    return found | {"int8_logits": error.logits}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, nargs="+", default=[2, 1])
    parser.add_argument("--contexts", type=int, nargs="+", default=[64, 512])
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--hidden", type=int, default=768)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    model = build(options.layers, options.hidden)
    parameters = sum(each.numel() for each in model.parameters())
    cases = [
        case(model, threads, context, options.rounds) for threads in options.threads for context in options.contexts
    ]
    report_cases("generate", "PyTorch, float32, the same model and cache", cases, parameters=parameters)


if __name__ == "__main__":
    main()

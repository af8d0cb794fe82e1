"""Milliseconds per call of several engines: each in a process of its own, in rounds whose order changes.

Engines whose threads spin after a call disturb whoever runs next in their process; in processes of their own, with a
pause between turns, they only disturb themselves. The second eager one is the noise of the machine.
"""

from __future__ import annotations

import math
import multiprocessing
import random
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

import torch
from torch.utils import _pytree as pytree

from heddle.errors import HeddleError
from heddle.tiles.peers import ENGINES

PAUSE = 0.15  # seconds between two turns
AT_LEAST = 0.2  # seconds of calls in a turn
PATIENCE = 900.0  # seconds until an engine has to be ready

Make = Callable[[], tuple[Any, Sequence[Any], dict[str, Any]]]  # module, inputs, keywords


def bench(make: Make, threads: int, engines: Sequence[str], rounds: int = 7, at_once: int = 1) -> dict[str, Any]:
    """One case: medians and minima of all engines at so many threads, of one network or of several that run at once."""
    context = _context()
    arms: dict[str, tuple[Any, Connection]] = {}
    facts: dict[str, dict[str, Any]] = {}
    missing: dict[str, str] = {}
    try:
        for name in engines:  # they get ready at the same time, and are timed after that
            here, there = context.Pipe()
            process = context.Process(target=_engine, args=(name, make, threads, at_once, there), daemon=True)
            process.start()
            there.close()
            arms[name] = (process, here)
        for name, (process, pipe) in list(arms.items()):
            found = _answer(pipe, name, PATIENCE)
            if "failed" in found:
                missing[name] = found["failed"]
                process.kill()
                process.join()
                del arms[name]
            else:
                facts[name] = found
        seconds, cpu = _rounds({name: pipe for name, (_, pipe) in arms.items()}, rounds)
    finally:
        for process, pipe in arms.values():
            with suppress(OSError):
                pipe.send(None)
            process.join(10)
            if process.is_alive():
                process.kill()
                process.join()
    if "heddle" not in facts:
        raise HeddleError(
            "The module was not compiled.", missing.get("heddle", "It was not requested."), "See the messages above."
        )
    ours = facts["heddle"]
    return {
        "threads": threads,
        "milliseconds": {name: 1e3 * statistics.median(each) for name, each in seconds.items()},
        "minimum": {name: 1e3 * min(each) for name, each in seconds.items()},
        "cpu_minimum": {name: 1e3 * min(each) for name, each in cpu.items()},
        "max_error": ours["error"],
        "tiles": ours["tiles"],
        "fallback_operators": ours["fallback_operators"],
        "errors": {name: each["error"] for name, each in facts.items()},
        "missing": missing,
    }


def _context() -> Any:
    """Processes that are forked from one which has imported everything, where a system can: engines start at once."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    multiprocessing.set_forkserver_preload([__name__, "heddle.capturing.module_file"])
    return multiprocessing.get_context("forkserver")


def _rounds(pipes: dict[str, Connection], rounds: int) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Seconds of each call, on the clock and of CPU time: the second says something on a busy machine, too."""
    chance = random.Random(0)
    seconds: dict[str, list[float]] = {name: [] for name in pipes}
    cpu: dict[str, list[float]] = {name: [] for name in pipes}
    names = list(pipes)
    for number in range(rounds + 1):
        chance.shuffle(names)
        for name in names:
            time.sleep(PAUSE)
            pipes[name].send("go")
            found = _answer(pipes[name], name, PATIENCE)
            if number:
                seconds[name] += found["seconds"]
                cpu[name] += found["cpu"]
    return seconds, cpu


def _answer(pipe: Connection, name: str, patience: float) -> dict[str, Any]:
    try:
        if pipe.poll(patience):
            return pipe.recv()
        return {"failed": f"{name} was not ready after {patience:.0f} s"}
    except EOFError:
        return {"failed": f"{name} ended without a message"}


def _engine(name: str, make: Make, threads: int, at_once: int, pipe: Connection) -> None:
    """An engine's process: make the module, compile, then time calls when told to."""
    try:
        torch.manual_seed(0)
        module, inputs, keywords = make()
        torch.set_num_threads(threads)
        with torch.no_grad():
            wanted = _tensors(module(*inputs, **keywords))
            runs = [ENGINES[name](module, inputs, keywords, threads) for _ in range(at_once)]
            error = max(_error(wanted, _tensors(each())) for each in runs)
            pipe.send({"error": error, **_facts(runs[0])})
            run = runs[0] if at_once == 1 else _together(runs)
            while pipe.recv() is not None:
                pipe.send(_turn(run))
    except EOFError:
        return
    except Exception as error:
        with suppress(OSError):
            pipe.send({"failed": f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[:300]})


def _together(runs: Sequence[Any]) -> Callable[[], None]:
    """One call of each at the same time, each in a thread of its own."""
    threads = ThreadPoolExecutor(len(runs))

    @torch.no_grad()
    def call(run: Any) -> None:
        run()

    def both() -> None:
        list(threads.map(call, runs))

    return both


def _turn(run: Any) -> dict[str, list[float]]:
    """Some calls, each timed; the first only wakes threads and caches."""
    run()
    seconds: list[float] = []
    cpu: list[float] = []
    while sum(seconds) < AT_LEAST or len(seconds) < 3:
        start, used = time.perf_counter(), time.process_time()
        run()
        seconds.append(time.perf_counter() - start)
        cpu.append(time.process_time() - used)
    return {"seconds": seconds, "cpu": cpu}


def _facts(run: Any) -> dict[str, Any]:
    compiled = getattr(run, "compiled", None)
    if compiled is None:
        return {}
    program = next(iter(compiled.programs.values()))
    return {
        "tiles": 0 if program is None else len(program.graph.tiles),
        "fallback_operators": compiled.fallback_operators,
    }


def _tensors(value: Any) -> list[torch.Tensor]:
    return [each.clone() for each in pytree.tree_leaves(value) if isinstance(each, torch.Tensor)]


def _error(wanted: list[torch.Tensor], found: list[torch.Tensor]) -> float:
    """The largest difference, relative to the largest number of each output; infinite where one alone is NaN."""
    worst = 0.0
    for left, right in zip(wanted, found, strict=False):
        a, b = left.double(), right.double()
        same = (a == b) | (a.isnan() & b.isnan())
        if bool(same.all()):
            continue
        largest = torch.where(a.isfinite(), a.abs(), 0.0).max().clamp_min(1e-30)
        difference = torch.where(same, 0.0, (a - b).abs() / largest)
        worst = max(worst, float(difference.nan_to_num(nan=math.inf).max()))
    return worst

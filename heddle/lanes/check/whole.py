"""Whole functions beside the scalar ones: what LLVM's passes make of a function is checked like what we make of it.

Both versions are compiled once for all their functions, and called in a child process with made-up arguments: memory
behind every pointer, small integers, which are mostly lengths. Result, memory and global variables must be the same
bits. A run in which the scalar code crashes, or breaks one of its own promises, tells nothing.
"""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from heddle.lanes import ir
from heddle.lanes.check.inputs import same
from heddle.lanes.check.stage import CallSetup, reached, stage_for
from heddle.lanes.check.stubs import driver, entry, mutable, runnable, signature
from heddle.lanes.check.watched import BROKEN, FILLING, watchable, watched
from heddle.lanes.child import in_child

EQUAL, DIFFERENT, UNTOLD = b"e", b"d", b"?"
STARTS, SCALAR_RAN, END = b"r", b"s", b"\n"
TRIALS = 6
RESULT = 1024  # bytes, more than any result has
CRASHES = 2  # of the scalar code, after which its function is left alone
PREPARING = 20.0
LONGEST = 0.2  # seconds of a run of the scalar code, and …
SLOWER = 20  # … times that of the other


@dataclass
class CandidateFunction:
    """A function in one of the candidates."""

    function: ir.Function
    candidate: str
    number: int = 0


@dataclass
class Engine:
    """A module in machine code, where its functions are entered, and its variables: names, addresses and bytes."""

    keeps: Any
    entries: dict[int, Any]
    variables: dict[str, tuple[int, int]]

    def variable(self, name: str) -> np.ndarray[Any, Any]:
        at, size = self.variables[name]
        return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(at))


@dataclass
class Trial:
    """A case, ready to run: both versions, and what they are called with."""

    number: int
    reference: Engine
    other: Engine
    stage: CallSetup
    shared: list[str]  # variables of both
    trials: int


def differing(
    scalar: ir.Module, modules: dict[str, str], cases: Sequence[tuple[ir.Function, str]], seconds: int = 60
) -> set[tuple[str, str]]:
    """Those of some functions and candidates that were seen to do something else than the scalar code."""
    if not hasattr(os, "fork"):
        return set()  # nothing that may crash can be tried
    wanted = [
        CandidateFunction(f, c, k) for k, (f, c) in enumerate(cases) if watchable(f) and signature(f.head, f.written)
    ]
    if not wanted:
        return set()
    said = in_child(partial(_all, scalar, modules, wanted), seconds)
    return {(c.function.name, c.candidate) for c, v in zip(wanted, said, strict=False) if v == DIFFERENT[0]}


def _all(scalar: ir.Module, modules: dict[str, str], cases: list[CandidateFunction]) -> Iterator[bytes]:
    """One verdict a case. Every few of them run in a child of their own, as far as it gets."""
    declared: set[str] = set()
    needed = reached([c.function for c in cases], scalar)
    unwatched = {f.written for f in needed if not watchable(f)}  # who calls those is not checked
    texts = {f.name: watched(f, scalar, declared) for f in needed if f.written not in unwatched}
    extra = f"{BROKEN} = global i8 0\n{FILLING} = global i64 0\n" + "\n".join(
        sorted(d for d in declared if f"@{d.partition('@')[2].partition('(')[0]}(" not in scalar.rest)
    )
    names = {f.written for f in needed}
    reference = _engine(scalar.text(texts, extra), names - unwatched, cases)
    used = {x.candidate for x in cases}
    engines = {c: _engine(modules[c], names, [x for x in cases if x.candidate == c]) for c in used}
    jobs = []
    for case in cases:
        other, stage = engines[case.candidate], stage_for(case.function, scalar)
        shared = [n for n, (_, size) in reference.variables.items() if other.variables.get(n, (0, 0))[1] == size]
        # Not code that the passes took away, nor a variable that cannot be given the same contents in both.
        ready = case.number in other.entries and stage.variables <= set(shared) and not stage.leaks
        jobs.append(Trial(case.number, reference, other, stage, shared, TRIALS if ready else 0))
    yield from _verdicts(jobs)


def _verdicts(jobs: list[Trial]) -> Iterator[bytes]:
    """One after the other in a child, and in another behind what crashes."""
    at, trial, crashes = 0, 0, 0
    while at < len(jobs):
        *whole, rest = in_child(partial(_runs, jobs[at:], trial), 60).split(END)
        yield from (DIFFERENT if DIFFERENT in said else EQUAL if EQUAL in said else UNTOLD for said in whole)
        at += len(whole)
        if at == len(jobs):
            return
        trial, crashes = (0, 0) if whole else (trial, crashes)
        trial, crashes = trial + rest.count(STARTS), crashes + 1
        if rest.endswith(SCALAR_RAN):  # the other crashed, or did not end
            yield DIFFERENT
        elif crashes == CRASHES or not rest:
            yield UNTOLD
        else:
            continue
        at, trial, crashes = at + 1, 0, 0


def _engine(text: str, needed: set[str], cases: Iterable[CandidateFunction]) -> Engine:
    module = runnable(text, needed)
    drivers = {c.number: driver(c.number, c.function, module) for c in cases}
    parsed = ir.parse_llvm(module + "\n".join(d for d in drivers.values() if d))
    engine = ir.load(parsed, ir.machine(level=1))
    kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
    entries = {k: kind(engine.get_function_address(entry(k))) for k, d in drivers.items() if d}
    variables = {n: (engine.get_global_value_address(n[1:]), size) for n, size in mutable(module).items()}
    return Engine((engine, parsed), entries, {n: v for n, v in variables.items() if v[0]})


def _runs(jobs: list[Trial], first: int) -> Iterator[bytes]:
    for k, job in enumerate(jobs):
        for trial in range(0 if k else first, job.trials):
            yield from _trial(job, trial)
        yield END


def _trial(job: Trial, trial: int) -> Iterator[bytes]:
    reference, stage = job.reference, job.stage
    broken, filling = reference.variable(BROKEN), reference.variable(FILLING)
    random = np.random.default_rng([job.number, trial])
    signal.setitimer(signal.ITIMER_PROF, PREPARING)
    slots, memory = stage.prepare(trial, random)
    variables = _contents(reference, job.shared, trial, random)
    yield STARTS
    broken[0], results = 0, []
    for fill in (0, 0xA5):
        filling[:] = fill
        signal.setitimer(signal.ITIMER_PROF, LONGEST)
        results.append(_run(reference, job, slots, memory, variables))
    if broken[0] or not all(same(a, b) for a, b in zip(results[0], results[-1], strict=True)):
        yield UNTOLD
        return
    yield SCALAR_RAN
    signal.setitimer(signal.ITIMER_PROF, SLOWER * LONGEST)
    other = _run(job.other, job, slots, memory, variables)
    yield EQUAL if all(same(a, b) for a, b in zip(results[0], other, strict=True)) else DIFFERENT


def _contents(
    reference: Engine, shared: list[str], trial: int, random: np.random.Generator
) -> dict[str, np.ndarray[Any, Any]]:
    """Of global variables: as they begin, and numbers that are harmless as floats and as integers."""
    found = {}
    for name in shared:
        held = reference.variable(name).copy()
        if trial % 2 and held.size >= 64:
            held[: held.size // 8 * 8].view(np.float64)[:] = random.normal(size=held.size // 8)
        found[name] = held
    return found


def _run(
    engine: Engine,
    job: Trial,
    slots: np.ndarray[Any, Any],
    memory: list[np.ndarray[Any, Any]],
    contents: dict[str, np.ndarray[Any, Any]],
) -> list[np.ndarray[Any, Any]]:
    held = [*job.stage.memory, *(engine.variable(name) for name in job.shared)]
    for now, was in zip(held, [*memory, *contents.values()], strict=True):
        now[:] = was
    out = np.zeros(RESULT, dtype=np.uint8)
    engine.entries[job.number](slots.ctypes.data, out.ctypes.data)
    return [out, *(now.copy() for now in held)]

"""What the policy learns from: stretches of programs and of random kernels, with the integer program's answers."""

from __future__ import annotations

import os
import random
import re
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_all_start_methods, get_context
from pathlib import Path
from typing import Any

import numpy as np

from heddle.errors import HeddleError
from heddle.lanes import ir, packs
from heddle.lanes.choose import choice, ilp
from heddle.lanes.cost import Table
from heddle.lanes.decisions import start
from heddle.lanes.dependence import Region, regions
from heddle.lanes.policy.kernels import kernel
from heddle.lanes.policy.network import Features, features
from heddle.lanes.policy.rollout import Demands, State, roll
from heddle.lanes.portfolio import read

LONGEST = 120_000  # characters of IR of a variant: nests unrolled at every level say the same over and over
LARGEST = 5000  # productions of a graph to learn from
SOLVE = 2.0  # seconds for each answer of the integer program
NEAR = 0.1  # of the optimum: an answer is worth imitating though it is not proved
# The same program again, as compilers and users vary it: unrolled, in another type, with operands exchanged.
VARIANTS: tuple[tuple[str, ...], ...] = (
    (), ("-mllvm", "-unroll-count=2"), ("-mllvm", "-unroll-count=4", "-DDATA_TYPE_IS_FLOAT"),
)  # fmt: skip
_COMMUTING = re.compile(
    r"^(  %\S+ = (?:fadd|fmul|add|mul|and|or|xor)(?: [a-z]+)* (?:i\d+|float|double)) (%\S+), (%\S+)$"
)


@dataclass
class Lesson:
    """A state, and for each group of alternatives which of them the integer program takes."""

    features: Features
    groups: list[tuple[list[int], int]]


@dataclass
class SolvedStretch:
    """One stretch of a program, with the integer program's answer."""

    program: str
    demands: Demands
    features: Features
    scalar: int
    best: int
    answer: list[int]
    seconds: float
    lessons: list[Lesson] = field(default_factory=list)

    @property
    def graph(self) -> packs.Graph:
        return self.demands.graph


def subjects(folder: Path | None, table: Table, seeds: range) -> Iterator[SolvedStretch]:
    """All that a folder has, and kernels from the generator, solved by as many processes as there are cores."""
    for made in at_once(partial(_solved, table), _regions(folder, seeds)):
        if made is not None:
            yield made


def at_once(work: Callable[[Any], Any], tasks: Iterable[Any]) -> Iterator[Any]:
    """The results in the order of the tasks."""
    processes = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if "fork" not in get_all_start_methods():
        yield from map(work, tasks)
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # other threads hold nothing that the children touch
        pool = get_context("fork").Pool(processes)
    with pool:
        yield from pool.imap(work, tasks)


def _regions(folder: Path | None, seeds: range) -> Iterator[tuple[str, Region]]:
    """Stretches of code that differ; a function of a collection such as TSVC is a program of its own."""
    seen: set[tuple[str, ...]] = set()
    for program, text in _texts(folder, seeds):
        module = ir.take_apart(text)
        for function in module.functions:
            for region in regions(function, module):
                shape = tuple(statement.op for statement in region.statements)
                if shape not in seen:  # else it is the same code again, as inlining and unrolling leave it
                    seen.add(shape)
                    yield f"{program} {function.name}", region


def _solved(table: Table, task: tuple[str, Region]) -> SolvedStretch | None:
    """The integer program's answer; none where there is nothing to imitate."""
    program, region = task
    graph = packs.build(region, table)
    if len(graph.productions) > LARGEST or not any(p.native for p in graph.productions):
        return None
    plain = choice.used(graph, choice.scalar_choice(graph))
    scalar = choice.cost_of(graph, plain)
    found = ilp.solve(graph, SOLVE, start(graph, plain))
    if found.gap > NEAR:
        return None
    answer = sorted(found.packing.order)
    made = SolvedStretch(program, Demands(graph), features(graph), scalar, found.cost, answer, found.seconds)
    graph.flat = None  # would go from process to process
    return made


def _texts(folder: Path | None, seeds: range) -> Iterator[tuple[str, str]]:
    """Scalar IR by program; variants of one program have one name, so that none is learned from while another tests."""
    files = sorted(p for p in folder.rglob("*") if p.suffix in (".c", ".ll")) if folder is not None else []
    include = ir.includes(folder) if folder is not None else ()
    for path in files:
        for n, variant in enumerate(VARIANTS if path.suffix == ".c" else ((),)):
            try:
                source = ir.read_source(path, cflags=(*include, *variant))
                if n and len(source) > LONGEST:
                    break
                text = read(source, str(path))
            except HeddleError:
                continue
            yield str(path), text if n == 0 else commuted(text, n)
    for seed in seeds:
        yield f"made up {seed}", read(kernel(seed, 1 + seed % 3).text)


def commuted(text: str, seed: int) -> str:
    """The same IR with the operands of some operations exchanged."""
    chance = random.Random(seed)
    return "\n".join(
        f"{m[1]} {m[3]}, {m[2]}" if (m := _COMMUTING.match(line)) and chance.random() < 0.3 else line
        for line in text.splitlines()
    )


def taught(s: SolvedStretch) -> Iterator[Lesson]:
    """The states that the integer program's own decisions lead through."""
    has = set(s.answer)
    value = np.array([float(n in has) for n in range(len(s.graph.productions))])
    for state in roll(s.demands, s.features, lambda _: value)[1]:
        yield lesson(s, state, s.answer)


def lesson(s: SolvedStretch, state: State, answer: list[int]) -> Lesson:
    """All decisions that are open at a state, as the answer takes them."""
    has, groups = set(answer), []
    for i in state.open_stores():
        ways = s.graph.stores[i]
        groups.append((ways, next(k for k, n in enumerate(ways) if n in has)))
    decided = set(state.chosen)
    for makers in s.graph.makers:
        right = [k for k, n in enumerate(makers) if n in has]
        if len(makers) > 1 and right and decided.isdisjoint(makers):
            groups.append((makers, right[0]))
    return Lesson(state.marked(s.features), groups)

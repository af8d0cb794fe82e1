"""Trains the policy to imitate the programme, by DAgger. This file alone needs torch.

The programme's answers are the first lessons. Then the student decides on its own, the programme says at the states it
came to what would be best from there with all that is decided kept, and the student learns from that as well. Programs
are held out whole: no block of theirs is learned from.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import save_file

from heddle.errors import HeddleError
from heddle.lanes import cost, ir, packs, programme
from heddle.lanes.dependence import regions
from heddle.lanes.packs import Graph
from heddle.lanes.policy import WEIGHTS, decide
from heddle.lanes.policy.kernels import kernel
from heddle.lanes.policy.network import SHAPES, Arrays, Features, features, scores
from heddle.lanes.policy.rollout import State, roll
from heddle.lanes.portfolio import Options, read, start

MADE_UP = 150  # kernels from the generator
LARGEST = 2500  # productions of a graph to learn from
EPOCHS = 12
DAGGER = 2  # times the student goes first
SOLVE = 3.0  # seconds for each answer of the programme


class Torch:
    """What `network.Arrays` does, with gradients."""

    def add_at(self, values: torch.Tensor, index: torch.Tensor, size: int) -> torch.Tensor:
        return torch.zeros(size, values.shape[1]).index_add(0, index, values)

    def sigmoid(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(x)

    def tanh(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x)

    def relu(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x)

    def join(self, parts: list[torch.Tensor]) -> torch.Tensor:
        return torch.cat(parts, dim=1)


@dataclass
class Lesson:
    """A state, and for each group of alternatives which of them the programme takes."""

    features: Features
    groups: list[tuple[list[int], int]]


@dataclass
class Subject:
    """One region of a program, with the programme's answer."""

    program: str
    graph: Graph
    features: Features
    scalar: int
    best: int
    answer: list[int]
    seconds: float
    lessons: list[Lesson] = field(default_factory=list)


def train(folder: Path, options: Options, output: Path | None = None, made_up: int = MADE_UP) -> Iterator[str]:
    """Learn from the C and IR files of a folder and from kernels made at random; say how it goes."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    began = time.perf_counter()
    family = options.checked().family
    assert family is not None
    table = cost.table(family)
    subjects = list(_subjects(folder, table, made_up))
    programs = sorted({s.program for s in subjects})
    random.Random(0).shuffle(programs)
    held_out = set(programs[: max(1, len(programs) // 5)])
    learned = [s for s in subjects if s.program not in held_out]
    tested = [s for s in subjects if s.program in held_out]
    if not learned or not tested:
        raise HeddleError(
            f"{folder} has too little to learn from: {len(subjects)} stretches of code.",
            "A fifth of the programs is held out, and the others must have something to pack.",
            "Give a folder with more kernels.",
        )
    taken = time.perf_counter() - began
    yield f"{len(learned)} stretches to learn from, {len(tested)} of other programs held out; {taken:.0f} s"
    for s in learned:
        s.lessons = [_lesson(s, state, s.answer) for state in _states(s)]
    w = {name: _start(shape) for name, shape in SHAPES.items()}
    optimizer = torch.optim.Adam(list(w.values()), lr=3e-3)
    for turn in range(DAGGER + 1):
        if turn:
            for s in learned:
                s.lessons += list(_corrected(s, w))
        loss = _learn(learned, w, optimizer, EPOCHS if turn else 2 * EPOCHS)
        plain = {k: v.detach().numpy() for k, v in w.items()}
        share, taken = _share(tested, plain), time.perf_counter() - began
        yield f"turn {turn}: loss {loss:.3f}, {share:.1%} of the programme's reduction held out; {taken:.0f} s"
    path = output or WEIGHTS
    save_file({k: np.ascontiguousarray(v.detach().numpy()) for k, v in w.items()}, path)
    yield f"written {path}"


def _start(shape: tuple[int, ...]) -> torch.Tensor:
    made = torch.randn(shape) / (shape[0] ** 0.5) if len(shape) > 1 else torch.zeros(shape)
    return made.requires_grad_()


def _subjects(folder: Path, table: cost.Table, made_up: int) -> Iterator[Subject]:
    sources = [(str(p), p) for p in sorted(folder.rglob("*")) if p.suffix in (".c", ".ll")]
    seen: set[tuple[int, int, int]] = set()
    texts: list[tuple[str, str]] = []
    for name, path in sources:
        try:
            texts.append((name, ir.read_source(path, cflags=(f"-I{folder}", f"-I{folder}/polybench/utilities"))))
        except HeddleError:
            continue
    texts += [(f"made up {seed}", kernel(10_000 + seed, 1 + seed % 3).text) for seed in range(made_up)]
    for name, text in texts:
        module = ir.take_apart(read(text, name))
        for function in module.functions:
            for region in regions(function, module):
                graph = packs.build(region, table)
                if len(graph.productions) > LARGEST or not any(p.native for p in graph.productions):
                    continue
                plain = programme.used(graph, programme.scalar_choice(graph))
                found = programme.solve(graph, SOLVE, start(graph, plain))
                scalar = programme.cost_of(graph, plain)
                shape = (len(graph.productions), scalar, found.cost)
                if shape in seen:
                    continue  # the same code again, as inlining leaves it
                seen.add(shape)
                # A function of a collection such as TSVC is a program of its own.
                answer = sorted(found.packing.order)
                yield Subject(
                    f"{name} {function.name}", graph, features(graph), scalar, found.cost, answer, found.seconds
                )


def _states(s: Subject) -> Iterator[State]:
    """The states at which the network looks, when the programme decides."""
    has = set(s.answer)

    def score(_: Features) -> np.ndarray[Any, Any]:
        return np.array([1.0 if n in has else 0.0 for n in range(len(s.graph.productions))])

    yield from roll(s.graph, s.features, score)[1]


def _lesson(s: Subject, state: State, answer: list[int]) -> Lesson:
    has = set(answer)
    groups = []
    for i, ways in s.graph.stores.items():
        if i not in state.stored:
            groups.append((ways, next(k for k, n in enumerate(ways) if n in has)))
    for makers in s.graph.makers:
        right = [k for k, n in enumerate(makers) if n in has]
        if len(makers) > 1 and right and not state.has.intersection(makers):
            groups.append((makers, right[0]))
    return Lesson(state.marked(s.features), groups)


def _corrected(s: Subject, w: dict[str, torch.Tensor]) -> Iterator[Lesson]:
    """The student decides; at a state it came to by itself, the programme goes on from there."""
    plain = {k: v.detach().numpy() for k, v in w.items()}
    state, seen = roll(s.graph, s.features, lambda f: scores(plain, f, Arrays()))
    chosen = programme.used(s.graph, state.chosen)
    if programme.cost_of(s.graph, chosen) <= s.best or len(seen) < 2:
        return
    at = seen[1 + (len(seen) - 2) // 2]
    found = programme.solve(s.graph, SOLVE, None, at.chosen)
    if found.facts["status"] == "optimal" and set(at.chosen) <= set(found.packing.order) | set(at.chosen):
        yield _lesson(s, at, [*found.packing.order, *at.chosen])


def _learn(subjects: list[Subject], w: dict[str, torch.Tensor], optimizer: torch.optim.Optimizer, epochs: int) -> float:
    xp = Torch()
    lessons = [lesson for s in subjects for lesson in s.lessons if lesson.groups]
    order = random.Random(1)
    loss_now = 0.0
    for _ in range(epochs):
        order.shuffle(lessons)
        total = 0.0
        for k in range(0, len(lessons), 8):
            optimizer.zero_grad()
            batch = lessons[k : k + 8]
            for lesson in batch:
                value = scores(w, _tensors(lesson.features), xp)
                each = [torch.logsumexp(value[ways], 0) - value[ways[right]] for ways, right in lesson.groups]
                loss = torch.stack(each).mean() / len(batch)
                loss.backward()
                total += float(loss.detach()) * len(batch)
            optimizer.step()
        loss_now = total / max(1, len(lessons))
    return loss_now


def _tensors(f: Features) -> Any:
    parts = (f.items, f.productions, f.gives, f.need_of, f.need_item)
    return Features(*(torch.from_numpy(p) for p in parts))  # type: ignore[arg-type]


def _share(subjects: list[Subject], w: dict[str, Any]) -> float:
    """How much of the programme's reduction the policy reaches, as a mean over what can be reduced."""
    shares = [(s.scalar - decide(s.graph, w).cost) / (s.scalar - s.best) for s in subjects if s.best < s.scalar]
    return float(np.mean(shares)) if shares else 0.0

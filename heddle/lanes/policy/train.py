"""Trains the policy to imitate the integer program, by DAgger. This file alone needs torch.

The integer program's answers are the first lessons. Then the student decides on its own. At the states that it
reaches, the integer program finds the best way on, with everything decided so far kept, and the student learns from
that as well. Programs are held out whole: no block of theirs is learned from.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import save_file

from heddle.errors import HeddleError
from heddle.lanes import cost
from heddle.lanes.choose import choice, ilp
from heddle.lanes.policy.decide import decide
from heddle.lanes.policy.network import EXCESS, HIDDEN, ROUNDS, SHAPES, Features
from heddle.lanes.policy.rollout import roll
from heddle.lanes.policy.scores import scores
from heddle.lanes.policy.subjects import SOLVE, Lesson, SolvedStretch, at_once, lesson, subjects, taught

MADE_UP = 400  # kernels from the generator, …
FIRST = 10_000  # … from this seed on
EPOCHS = 6
DAGGER = 2  # times the student goes first
RATE = 3e-3
DECAY = 0.01
BATCH = 8


def train(folder: Path | None, family: str, output: Path, made_up: int = MADE_UP) -> Iterator[str]:
    """Learn from the C and IR files of a folder and from kernels made at random; say how it goes."""
    if folder is not None and not any(p.suffix in (".c", ".ll") for p in folder.rglob("*")):
        raise HeddleError(
            f"{folder} has no .c or .ll file.",
            "The policy learns from the kernels of a folder, besides generated ones.",
            "Give a folder with C files or LLVM IR; without a folder it learns only from generated kernels.",
        )
    began = time.perf_counter()
    yield f"solving {'' if folder is None else f'what {folder} has, and '}{made_up} generated kernels, to learn from"
    found = list(subjects(folder, cost.table(family), range(FIRST, FIRST + made_up)))
    learned, tested = split(found)
    if not learned or not tested:
        raise HeddleError(
            f"{folder} has too little to learn from: {len(found)} regions of code.",
            "A fifth of the programs is held out, and the others must have something to pack.",
            "Give a folder with more kernels.",
        )
    taken = time.perf_counter() - began
    yield f"{len(learned)} regions to learn from, {len(tested)} of other programs held out; {taken:.0f} s"
    for line in learn(learned, tested, output):
        yield f"{line}; {time.perf_counter() - began:.0f} s"
    yield f"written {output}"


def split(found: list[SolvedStretch]) -> tuple[list[SolvedStretch], list[SolvedStretch]]:
    """By program: a fifth is held out."""
    programs = sorted({s.program for s in found})
    random.Random(0).shuffle(programs)
    held_out = set(programs[: max(1, len(programs) // 5)])
    return [s for s in found if s.program not in held_out], [s for s in found if s.program in held_out]


def learn(learned: list[SolvedStretch], tested: list[SolvedStretch], output: Path) -> Iterator[str]:
    """Turns of learning and of going first; the weights that did best on programs held out are written."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    for s in learned:
        s.lessons = list(taught(s))
    w = start_weights()
    optimizer = torch.optim.AdamW(list(w.values()), lr=RATE, weight_decay=DECAY)
    best = -1.0  # whatever comes first is written
    for turn in range(DAGGER + 1):
        if turn:
            for s, more in zip(learned, at_once(partial(_corrected, _plain(w), turn), learned), strict=True):
                s.lessons += more
        for group in optimizer.param_groups:
            group["lr"] = RATE * 0.5**turn
        loss = _epochs(learned, w, optimizer, EPOCHS if turn else 2 * EPOCHS, turn)
        plain = _plain(w)
        reached = share(tested, plain)
        if reached > best:
            best = reached
            save_file(plain, output)
        lessons = sum(len(s.lessons) for s in learned)
        yield f"turn {turn}: {lessons} lessons, loss {loss:.3f}, {reached:.1%} of the exact reduction, held out"


def _plain(w: dict[str, torch.Tensor]) -> dict[str, np.ndarray[Any, Any]]:
    return {k: np.ascontiguousarray(v.detach().numpy()).copy() for k, v in w.items()}


def start_weights() -> dict[str, torch.Tensor]:
    """At random, but that all begin with the greedy choice: what looks cheapest."""
    w = {}
    for name, shape in SHAPES.items():
        made = torch.randn(shape) / (shape[0] ** 0.5) if len(shape) > 1 else torch.zeros(shape)
        w[name] = (made * 0.1 if name == "score.out" else made).requires_grad_()
    w["score.price"] = torch.full(SHAPES["score.price"], -10.0).requires_grad_()
    return w


def _corrected(w: dict[str, Any], turn: int, s: SolvedStretch) -> list[Lesson]:
    """The student decides; at a state it came to by itself, the integer program goes on from there."""
    state, seen = roll(s.demands, s.features, partial(scores, w))
    chosen = choice.used(s.graph, state.chosen)
    if choice.cost_of(s.graph, chosen) <= s.best or len(seen) < 2:
        return []
    at = seen[random.Random(turn).randrange(1, len(seen))]
    found = ilp.solve(s.graph, SOLVE, None, at.chosen)
    return [lesson(s, at, [*found.packing.order, *at.chosen])] if found.facts["status"] == "optimal" else []


def _epochs(
    learned: list[SolvedStretch], w: dict[str, torch.Tensor], optimizer: torch.optim.Optimizer, epochs: int, turn: int
) -> float:
    lessons = [one for s in learned for one in s.lessons if one.groups]
    order = random.Random(turn)
    loss_now = 0.0
    for _ in range(epochs):
        order.shuffle(lessons)
        total = 0.0
        for k in range(0, len(lessons), BATCH):
            optimizer.zero_grad()
            loss = loss_of(lessons[k : k + BATCH], w)
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(list(w.values()), 1.0)
            optimizer.step()
            total += float(loss.detach())
        loss_now = total / max(1, -(-len(lessons) // BATCH))
    return loss_now


def loss_of(lessons: list[Lesson], w: dict[str, torch.Tensor]) -> torch.Tensor:
    """Mean cross-entropy over the open decisions of some lessons, as one graph of several parts."""
    seen = _tensors(joined([one.features for one in lessons]))
    value = with_gradients(w, seen)
    members, group, right = [], [], []
    before = groups = 0
    for one in lessons:
        for ways, k in one.groups:
            members += [before + n for n in ways]
            group += [groups] * len(ways)
            right.append(before + ways[k])
            groups += 1
        before += len(one.features.productions)
    at, of = torch.tensor(members), torch.tensor(group)
    highest = torch.full((groups,), -torch.inf).scatter_reduce(0, of, value[at].detach(), "amax")
    total = torch.zeros(groups).index_add(0, of, (value[at] - highest[of]).exp())
    return torch.mean(total.log() + highest - value[torch.tensor(right)])


def with_gradients(w: dict[str, torch.Tensor], f: Any) -> torch.Tensor:
    """What `network.c` does, with gradients. `f` has the state in it."""
    h = torch.tanh(f.items @ w["item.in"])
    g = torch.tanh(f.productions @ w["production.in"])
    for _ in range(ROUNDS):
        wanted = _mean_at(h[f.need_item], f.need_of, f.asks)
        both = g @ w["production.self"] + (h @ w["production.gives"])[f.gives] + wanted @ w["production.needs"]
        g = _gated(g, both + w["production.bias"])
        makers, readers = _mean_at(g, f.gives, f.made_by), _mean_at(g[f.need_of], f.need_item, f.read_by)
        both = h @ w["item.self"] + makers @ w["item.makers"] + readers @ w["item.readers"]
        h = _gated(h, both + w["item.bias"])
    seen = torch.cat([g, h[f.gives], f.productions], dim=1)
    judged = (torch.relu(seen @ w["score.hidden"] + w["score.bias"]) @ w["score.out"])[:, 0]
    on_top: torch.Tensor = judged + f.productions[:, EXCESS] * w["score.price"]  # of the greedy choice
    return on_top


def _mean_at(rows: torch.Tensor, index: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    """Rows averaged by their place in `index`."""
    return torch.zeros(len(counts), rows.shape[1]).index_add(0, index, rows) / counts


def _gated(old: torch.Tensor, both: torch.Tensor) -> torch.Tensor:
    """Some of the old, some of the new."""
    gate = torch.sigmoid(both[:, :HIDDEN])
    return old * (1 - gate) + torch.tanh(both[:, HIDDEN:]) * gate


def joined(parts: list[Features]) -> Features:
    """Several graphs side by side, with no edge between them."""
    items = np.cumsum([0, *(len(f.items) for f in parts)])
    productions = np.cumsum([0, *(len(f.productions) for f in parts)])
    each = list(zip(parts, items, productions, strict=False))
    return Features(
        np.concatenate([f.items for f in parts]),
        np.concatenate([f.productions for f in parts]),
        np.concatenate([f.gives + i for f, i, _ in each]),
        np.concatenate([f.need_of + p for f, _, p in each]),
        np.concatenate([f.need_item + i for f, i, _ in each]),
        *(np.concatenate([getattr(f, name) for f in parts]) for name in ("made_by", "read_by", "asks")),
    )


def _tensors(f: Features) -> Any:
    parts = (f.items, f.productions, f.gives, f.need_of, f.need_item, f.made_by, f.read_by, f.asks)
    return Features(*(torch.from_numpy(p) for p in parts))  # type: ignore[arg-type]


def share(tested: list[SolvedStretch], w: dict[str, Any]) -> float:
    """How much of the integer program's reduction the policy reaches: of the mean reduction, not a mean of shares."""
    ours = [1 - decide(s.graph, w).cost / s.scalar for s in tested]
    theirs = [1 - s.best / s.scalar for s in tested]
    return float(sum(ours) / max(1e-9, sum(theirs)))

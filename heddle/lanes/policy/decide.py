"""What the policy chooses: deterministic, legal, and the best of a few attempts."""

from __future__ import annotations

import time
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from heddle.lanes.choose import choice
from heddle.lanes.choose.schedule import Cycle, arrange
from heddle.lanes.packs import Graph
from heddle.lanes.policy.network import Arrays, Features, features, read_weights, scores
from heddle.lanes.policy.polish import polished
from heddle.lanes.policy.rollout import NOISE, Demands, State, roll

WEIGHTS = Path(__file__).parent / "weights.safetensors"
WORK = 130_000  # productions that all attempts may look at together: large graphs get fewer attempts
PER_STATEMENT = 20  # productions, which is what one takes to decide about
MOST, FEWEST = 48, 8  # attempts: the greedy one, and with noise; the cheapest is kept
HOPELESS = 1.6  # times the cost of the best: no polish makes good for that
REPAIRS = 6  # of decisions that wait for each other


def shipped() -> Path | None:
    """The weights that come with Heddle."""
    return WEIGHTS if WEIGHTS.exists() else None


@cache
def weights(path: Path | None = None) -> dict[str, Any]:
    """The weights of a file, or those that come with Heddle."""
    return read_weights(path or WEIGHTS)


def attempts(graph: Graph) -> int:
    return max(FEWEST, min(MOST, WORK // (len(graph.productions) + PER_STATEMENT * len(graph.region.statements))))


def decide(graph: Graph, w: dict[str, Any] | None = None, tries: int | None = None) -> choice.Solution:
    """What the policy chooses: the same every time."""
    began = time.perf_counter()
    w = weights() if w is None else w
    xp, f, demands = Arrays(), features(graph), Demands(graph)

    def score(seen: Features) -> Any:
        return scores(w, seen, xp)

    best = choice.used(graph, choice.scalar_choice(graph))
    packing = arrange(graph, best)
    simple = polished(demands, choice.greedy(graph))
    if choice.cost_of(graph, simple) < choice.cost_of(graph, best):
        with suppress(Cycle):
            packing, best = arrange(graph, simple), simple
    first = score(State.first(demands).marked(f))
    left = attempts(graph) if tries is None else tries
    for attempt in range(left):
        noise = np.random.default_rng(attempt) if attempt else None
        banned: frozenset[int] = frozenset()
        for _ in range(min(REPAIRS, left)):
            left -= 1
            state, _ = roll(demands, f, score, banned, noise, first, NOISE[attempt % len(NOISE)], looks=1)
            rough = choice.used(graph, state.chosen)
            if choice.cost_of(graph, rough) > HOPELESS * choice.cost_of(graph, best):
                break
            chosen = polished(demands, rough)
            if choice.cost_of(graph, chosen) >= choice.cost_of(graph, best):
                break
            try:
                packing = arrange(graph, chosen)
            except Cycle as cycle:
                wide = [n for n in cycle.productions if len(graph.productions[n].members) > 1]
                banned |= frozenset(wide or cycle.productions)
                continue
            best = chosen
            break
    cost = choice.cost_of(graph, best)
    return choice.Solution(packing, cost, 0.0, time.perf_counter() - began, "policy")

"""The learned policy. Nothing here needs torch but `train`."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from heddle.lanes.packs import Graph
    from heddle.lanes.programme import Solution

WEIGHTS = Path(__file__).parent / "weights.safetensors"
TRIES = 4  # the greedy one, and with noise; the cheapest is kept
REPAIRS = 6  # of decisions that wait for each other


@cache
def weights() -> dict[str, Any] | None:
    """The weights that ship, or none."""
    from heddle.lanes.policy.network import read_weights

    return read_weights(WEIGHTS) if WEIGHTS.exists() else None


def decide(graph: Graph, w: dict[str, Any] | None = None, tries: int = TRIES) -> Solution:
    """What the policy chooses: the same every time."""
    import time

    import numpy as np

    from heddle.lanes import programme
    from heddle.lanes.policy.network import Arrays, Features, features, scores
    from heddle.lanes.policy.rollout import roll
    from heddle.lanes.schedule import Cycle, arrange

    began = time.perf_counter()
    w = weights() if w is None else w
    assert w is not None, "no weights"
    xp, f = Arrays(), features(graph)

    def score(seen: Features) -> Any:
        return scores(w, seen, xp)

    best = programme.used(graph, programme.scalar_choice(graph))
    packing = arrange(graph, best)
    first = score(f)
    for attempt in range(tries):
        noise = np.random.default_rng(attempt) if attempt else None
        banned: frozenset[int] = frozenset()
        for _ in range(REPAIRS):
            state, _ = roll(graph, f, score, banned, noise, first)
            chosen = programme.used(graph, state.chosen)
            if programme.cost_of(graph, chosen) >= programme.cost_of(graph, best):
                break
            try:
                packing = arrange(graph, chosen)
            except Cycle as cycle:
                wide = [n for n in cycle.productions if len(graph.productions[n].members) > 1]
                banned |= frozenset(wide or cycle.productions)
                continue
            best = chosen
            break
    cost = programme.cost_of(graph, best)
    return programme.Solution(packing, cost, 0.0, time.perf_counter() - began, "policy")

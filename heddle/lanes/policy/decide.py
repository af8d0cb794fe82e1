"""What the policy chooses: deterministic, legal, and the best of a few attempts."""

from __future__ import annotations

import time
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from heddle.lanes.choose import choice
from heddle.lanes.choose.schedule import Cycle, arrange
from heddle.lanes.packs import Graph
from heddle.lanes.policy.network import Arrays, Features, features, read_weights, scores
from heddle.lanes.search import flat

WEIGHTS = Path(__file__).parent / "weights.safetensors"
ATTEMPTS = 800  # at most: the greedy one, and with noise; the cheapest is kept
WORK = 2_000_000  # productions that all attempts may look at together


def shipped() -> Path | None:
    """The weights that come with Heddle."""
    return WEIGHTS if WEIGHTS.exists() else None


@cache
def weights(path: Path | None = None) -> dict[str, Any]:
    """The weights of a file, or those that come with Heddle."""
    return read_weights(path or WEIGHTS)


def decide(graph: Graph, w: dict[str, Any] | None = None, tries: int = ATTEMPTS, work: int = WORK) -> choice.Solution:
    """What the policy chooses: the same every time."""
    began = time.perf_counter()
    best = choice.used(graph, choice.scalar_choice(graph))
    packing = arrange(graph, best)
    simple = choice.greedy(graph)
    if choice.cost_of(graph, simple) < choice.cost_of(graph, best):
        with suppress(Cycle):
            packing, best = arrange(graph, simple), simple
    score = scores(weights() if w is None else w, first_look(graph), Arrays())
    found = flat(graph).search(score, best, tries, work)
    if found != best:
        packing, best = arrange(graph, found), found
    return choice.Solution(packing, choice.cost_of(graph, best), 0.0, time.perf_counter() - began, "policy")


def first_look(graph: Graph) -> Features:
    """What the network sees at first: nothing is decided, but what is read beyond the region is asked for."""
    f = features(graph)
    f.items[graph.required, -3] = 1
    return f

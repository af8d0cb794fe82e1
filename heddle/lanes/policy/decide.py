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
from heddle.lanes.policy.network import Features, features, read_weights
from heddle.lanes.policy.scores import scores
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
    start = choice.used(graph, choice.scalar_choice(graph))
    simple, packing = choice.greedy(graph), None
    if choice.cost_of(graph, simple) < choice.cost_of(graph, start):
        with suppress(Cycle):
            packing, start = arrange(graph, simple), simple
    found = flat(graph).search(scores(weights() if w is None else w, first_look(graph)), start, tries, work)
    if packing is None or found != start:
        packing = arrange(graph, found)
    return choice.Solution(packing, choice.cost_of(graph, found), 0.0, time.perf_counter() - began, "policy")


def first_look(graph: Graph) -> Features:
    """What the network sees at first: nothing is decided, but what is read beyond the region is asked for."""
    f = features(graph)
    f.items[graph.required, -3] = 1
    return f

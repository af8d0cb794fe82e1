"""Which layers each pipeline chunk has, in torchtitan's words: the names of its modules."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import accumulate

from heddle.errors import HeddleError, shorten

FIRST, LAST = ("tok_embeddings",), ("norm", "output")


def modules_of(stages: Sequence[int]) -> list[list[str]]:
    """The modules of each chunk, in model order."""
    bounds = [0, *accumulate(stages)]
    chunks = [[f"layers.{layer}" for layer in range(bounds[at], bounds[at + 1])] for at in range(len(stages))]
    chunks[0] = [*FIRST, *chunks[0]]
    chunks[-1] = [*chunks[-1], *LAST]
    return chunks


def stages_in(modules: Sequence[Sequence[str]]) -> list[int]:
    """Layers of each chunk."""
    lists = [modules, *modules] if isinstance(modules, list) else [modules]
    if not all(isinstance(each, list) for each in lists) or not all(
        isinstance(n, str) for each in modules for n in each
    ):
        raise HeddleError(
            f"parallelism.module_fqns_per_model_part = {shorten(modules)} does not list modules.",
            "It is a list of names for each chunk of the pipeline.",
            'For example [["tok_embeddings", "layers.0"], ["layers.1", "norm", "output"]].',
        )
    return [sum(bool(re.fullmatch(r"layers\.\d+", name)) for name in chunk) for chunk in modules]


def usual_stages(layers: int, chunks: int, first_less: int, last_less: int) -> list[int]:
    """The split that torchtitan makes unasked: both ends count as so many layers, and early chunks take more."""
    if chunks == 1:
        return [layers]
    small, extra = divmod(layers + first_less + last_less, chunks)
    found = [small + (at < extra) for at in range(chunks)]
    found[0] -= first_less
    found[-1] -= last_less
    return found

"""Which layers each pipeline chunk has, in Megatron's words: `--pipeline-model-parallel-layout "Et*3|t*4|t*3L"`.

E is the embedding, L the output layer and the loss, t a layer; a bar ends a chunk, `(t|)*3` repeats. Chunks are in
model order, as in `plan.stages`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby

from heddle.errors import HeddleError

_REPEATED = re.compile(r"\(([^()]*)\)\*(\d+)|([A-Za-z])\*(\d+)")
MOST = 100_000  # letters: far more layers than any model has


def layout_of(stages: Sequence[int]) -> str:
    """The layout of so many layers in each chunk."""
    parts = []
    inner = [*stages]
    first, last = inner[0], inner[-1]
    if len(inner) == 1:
        return f"E{_layers(first)}L"
    for count, group in groupby(inner[1:-1]):
        times = len([*group])
        parts.append(f"{_layers(count)}|" if times == 1 else f"({_layers(count)}|)*{times}")
    return f"E{_layers(first)}|{''.join(parts)}{_layers(last)}L"


def _layers(count: int) -> str:
    return "t" if count == 1 else f"t*{count}" if count else ""


def stages_of(layout: str) -> list[int]:
    """Layers of each chunk."""
    text = layout.replace(",", "").replace(" ", "").strip("\"'")
    while (match := _REPEATED.search(text)) is not None:
        part, count = (match[1], match[2]) if match[2] else (match[3], match[4])
        times = int(count) if len(count) < 9 else MOST + 1
        if len(part) * times > MOST:
            raise _unknown(layout)
        text = text[: match.start()] + part * times + text[match.end() :]
    if not re.fullmatch(r"[EtmL|]+", text):
        raise _unknown(layout)
    return [chunk.count("t") for chunk in text.split("|")]


def _unknown(layout: str) -> HeddleError:
    return HeddleError(
        f"--pipeline-model-parallel-layout {layout[:60]!r} is not understood.",
        "It is made of E, t, m, L and bars, each of which may be repeated.",
        'For example "Et*3|(t*4|)*6t*3L".',
    )

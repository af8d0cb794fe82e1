"""What `heddle plan --explain` prints of a fine-tuning: full, LoRA and QLoRA beside each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from heddle.format import GIB, duration, figures, short_figures

if TYPE_CHECKING:
    from rich.console import Console

    from heddle.planning.methods import Method


def show_methods(console: Console, methods: Sequence[Method]) -> None:
    """A line for each: what learns, what it needs at least, and what its best plan holds and takes."""
    from heddle.planning.search.describe import in_words

    console.print("\nFull, LoRA or QLoRA", style="bold")
    rows: list[tuple[str, ...]] = [
        ("method", "learns", "least GiB", "GiB", "step s", "training", "h per M tokens", "best plan")
    ]
    for method in methods:
        found = method.found
        if found is None:
            rows.append((method.name, short_figures(method.learned), *["–"] * 5, f"none fits: {method.why}"))
            continue
        rows.append(
            (
                method.name,
                short_figures(method.learned),
                f"{method.least / GIB:.1f}",
                f"{found.worst / GIB:.1f}",
                figures(found.step_seconds),
                duration(86_400 * found.days(method.tokens)),
                figures(24 * found.days(1e6)),
                in_words(found.plan),
            )
        )
    wide = [max(len(row[column]) for row in rows) for column in range(7)]
    for row in rows:
        cells = "  ".join(f"{cell:>{width}}" for cell, width in zip(row[1:7], wide[1:], strict=True))
        console.print(f"  {row[0]:<{wide[0]}}  {cells}  {row[7]}", soft_wrap=True, markup=False, highlight=False)

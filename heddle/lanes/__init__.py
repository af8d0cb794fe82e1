"""Superword packing: instructions that do the same on neighboring data, in the lanes of one vector.

The way through: `ir` reads, `dependence` finds stretches and who waits for whom, `packs` finds every way to make
what is needed, `ilp`, `policy` and `pairs` choose, `schedule` orders, `emit` writes, `check` runs both versions,
and `portfolio` keeps the best.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from heddle.lanes.callable import CompiledFunction, compile  # noqa: A004

__all__ = ["CompiledFunction", "compile"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from importlib import import_module

        return getattr(import_module("heddle.lanes.callable"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

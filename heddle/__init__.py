"""Heddle plans, simulates, trains and explains the parallel training of large transformer models."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from heddle.capture import capture, place
    from heddle.simulate.simulation import Simulation, simulate

__all__ = ["Simulation", "__version__", "capture", "place", "simulate"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """`heddle.simulate(job)` and the like, imported when first asked for: `import heddle` stays light."""
    import importlib

    if name in ("simulate", "capture"):
        return importlib.import_module(f"heddle.{name}")
    if name == "place":
        return importlib.import_module("heddle.capture").place
    if name == "Simulation":
        return importlib.import_module("heddle.simulate.simulation").Simulation
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

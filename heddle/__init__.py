"""Heddle plans, simulates, trains and explains the parallel training of large transformer models."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from heddle.simulate.simulation import Simulation, simulate

__all__ = ["Simulation", "__version__", "simulate"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """`heddle.simulate(job)`, imported when it is first asked for: `import heddle` stays light."""
    import importlib

    if name == "simulate":
        return importlib.import_module("heddle.simulate")
    if name == "Simulation":
        return importlib.import_module("heddle.simulate.simulation").Simulation
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

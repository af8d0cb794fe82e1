"""Heddle plans, simulates, trains and explains the parallel training of large transformer models."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from heddle.capture import capture, place
    from heddle.plan.search import Search
    from heddle.plan.search import search as plan
    from heddle.simulate.simulation import Simulation, simulate

__all__ = ["Search", "Simulation", "__version__", "capture", "place", "plan", "simulate"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """What is asked for is imported then: `import heddle` stays light."""
    from importlib import import_module

    match name:
        case "capture" | "plan" | "simulate":  # packages that can be called
            return import_module(f"heddle.{name}")
        case "place":
            return import_module("heddle.capture").place
        case "Search":
            return import_module("heddle.plan.search").Search
        case "Simulation":
            return import_module("heddle.simulate.simulation").Simulation
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""Schedule and cost in, trace out, before anything is spent: `heddle.simulate`.

`replay` and `step_time` put a schedule on a clock; `simulate` prices one job exactly, and
`heddle.simulate.closed_form` many plans at once.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from heddle.simulate.replay import jitter, replay, step_time
    from heddle.simulate.simulation import Simulation, simulate

__all__ = ["Simulation", "jitter", "replay", "simulate", "step_time"]


def __getattr__(name: str) -> Any:
    """Imported by who needs it: NumPy is not needed to draw a schedule, nor either to show help."""
    if name in ("Simulation", "simulate"):
        from heddle.simulate import simulation

        return getattr(simulation, name)
    if name in ("jitter", "replay", "step_time"):
        from heddle.simulate import replay as events

        return getattr(events, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

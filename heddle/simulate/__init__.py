"""Schedule and cost in, trace out, before anything is spent.

`replay` and `step_time` put a schedule on a clock; `simulate` prices one job exactly, and
`heddle.simulate.closed_form` many plans at once.
"""

from typing import TYPE_CHECKING, Any

from heddle.callable import make_callable
from heddle.simulate.events import jitter, replay, step_time

if TYPE_CHECKING:
    from heddle.simulate.simulation import Simulation, simulate

__all__ = ["Simulation", "jitter", "replay", "simulate", "step_time"]


def __getattr__(name: str) -> Any:
    """NumPy is imported by who needs it: drawing a schedule does not."""
    if name in ("Simulation", "simulate"):
        from heddle.simulate import simulation

        return getattr(simulation, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


make_callable(__name__, "heddle.simulate.simulation", "simulate")

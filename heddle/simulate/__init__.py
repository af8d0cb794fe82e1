"""Schedule and cost in, trace out, before anything is spent.

`replay` and `step_time` put a schedule on a clock; `simulate` prices one job exactly, and
`heddle.simulate.closed_form` many plans at once.
"""

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

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


class _Simulate(ModuleType):
    """The package can be called: `heddle.simulate(job)` predicts, `heddle.simulate.replay` lies in the package."""

    def __call__(self, job: Any) -> Any:
        from heddle.simulate.simulation import simulate

        return simulate(job)


sys.modules[__name__].__class__ = _Simulate

"""Schedule and cost in, trace out, before anything is spent."""

from heddle.simulate.events import replay, step_time

__all__ = ["replay", "step_time"]

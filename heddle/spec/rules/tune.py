"""Which jobs may keep their frozen weights in four bits."""

from __future__ import annotations

from heddle.errors import HeddleError
from heddle.spec.model import ModelSpec
from heddle.spec.tune import Tune


def check_base(tune: Tune | None, model: ModelSpec, compiled: bool) -> None:
    """Refuse what base = "nf4" does not go with."""
    if tune is None or tune.base is None:
        return
    if any(model.expert_counts):
        raise HeddleError(
            f"tune.base = '{tune.base}' cannot be combined with experts.",
            "Experts' matrices are multiplied in groups, for which there is no product in four bits.",
            "Leave base out: frozen experts then stay in the precision of the job.",
        )
    if compiled:
        raise HeddleError(
            f"tune.base = '{tune.base}' cannot be combined with train.compile.",
            "Compiled layers would keep the numbers that a product makes of four bits.",
            "Use compile = false.",
        )

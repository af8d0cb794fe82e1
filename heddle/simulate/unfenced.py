"""Steps that no stage begins later because of the others: updates are checked after the fact, and can be undone."""

from __future__ import annotations

from collections.abc import Sequence

from heddle.cost.memory import MASTER, MOMENTS, MemoryBreakdown
from heddle.spec.plan import Plan
from heddle.trace.trace import Trace


def step_seconds(plan: Plan, trace: Trace) -> float:
    """Of a pipeline's step that is followed by others: all of it, or the longest that a stage has work in.

    Where steps follow each other without a barrier, a late start is that of every step, and costs nothing.
    """
    return trace.period if plan.check_step == "after" else trace.duration


def with_undo(bills: Sequence[MemoryBreakdown], plan: Plan, element: int) -> tuple[MemoryBreakdown, ...]:
    """What each stage holds, with what its update can be undone from: masters and moments once more."""
    if plan.check_step != "after":
        return tuple(bills)
    share = (MASTER + MOMENTS) / (MOMENTS + (MASTER if element < 4 else 0))  # of what the optimizer has
    found = []
    for bill in bills:
        more = share * bill.optimizer
        slack = bill.slack * (bill.total + more) / bill.total
        found.append(bill._replace(optimizer=bill.optimizer + more, slack=slack))
    return tuple(found)

"""What one piece of work takes: seconds and bytes. Pure functions of a `Work` and a `Cluster`, no torch."""

from heddle.cost.work import Work, work_of
from heddle.schedule.rule import Column, Mask

__all__ = ["Column", "Mask", "Work", "work_of"]

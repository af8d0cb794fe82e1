"""What one piece of work takes: seconds and bytes. Pure functions of a `Work` and a `Cluster`, no torch."""

from heddle.cost.work import Column, Work, work_of

__all__ = ["Column", "Work", "work_of"]

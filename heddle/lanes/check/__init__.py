"""Packed code run beside the code it came from."""

from heddle.lanes.check.check import Verdict, check

__all__ = ["Verdict", "check"]

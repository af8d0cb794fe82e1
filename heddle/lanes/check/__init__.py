"""Packed code run beside the code it came from."""

from heddle.lanes.check.check import Verdict, check, in_child

__all__ = ["Verdict", "check", "in_child"]

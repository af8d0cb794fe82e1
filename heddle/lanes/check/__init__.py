"""Packed code run beside the code it came from."""

from heddle.lanes.check.check import Verdict, check, check_all

__all__ = ["Verdict", "check", "check_all"]

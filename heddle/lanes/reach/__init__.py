"""How far compiled code reaches from the pointers that it is given."""

from heddle.lanes.reach.reach import Pointer, Reach
from heddle.lanes.reach.spans import IntegerRange

__all__ = ["IntegerRange", "Pointer", "Reach"]

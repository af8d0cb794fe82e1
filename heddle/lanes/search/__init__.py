"""The policy's search in machine code: `search.c`, compiled by `make.py` into `search.ll`, which ships."""

from heddle.lanes.search.flat import Flat, code, flat

__all__ = ["Flat", "code", "flat"]

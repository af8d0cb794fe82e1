"""Traces: spans on one clock, and the ways to keep and to show them."""

from heddle.trace.perfetto import to_perfetto
from heddle.trace.png import to_png
from heddle.trace.svg import to_svg
from heddle.trace.trace import COMPUTE, Span, Trace

__all__ = ["COMPUTE", "Span", "Trace", "to_perfetto", "to_png", "to_svg"]

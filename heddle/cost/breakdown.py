"""The items that a step's time and a device's memory are made of: what each is called, and how it is shown.

The one table of them: the cost model fills it in, the explanation and the report speak of it, bars and page color it.
"""

from __future__ import annotations

from typing import NamedTuple

from heddle.schedule.rule import Column


class BarItem(NamedTuple):
    """One part of a bar."""

    letter: str  # that fills its part of a bar; no two items of one bar share it
    words: str
    style: str  # in the terminal
    color: str  # on a page; such that people who see few colors tell them apart, too (Okabe and Ito)
    meaning: str = ""  # where the words alone do not say it
    seldom: bool = False  # shown where it is not 0

    @property
    def explained(self) -> str:
        """The words, with what they mean."""
        return f"{self.words}: {self.meaning}" if self.meaning else self.words


class Breakdown(NamedTuple):
    """Where the seconds of a step go, as a mean over ranks; they add up to the step."""

    compute: Column
    recompute: Column
    tensor: Column
    pipeline: Column
    data: Column  # what is not hidden of it
    optimizer: Column
    bubble: Column
    jitter: Column
    context: Column = 0.0  # what is not hidden of keys and values, where ranks share tokens
    expert: Column = 0.0  # tokens on their way to the experts of other ranks, and back
    offload: Column = 0.0  # what is not hidden of copies to other tiers, and back


STEP = {
    "compute": BarItem("c", "compute", "white on blue", "#0072b2"),
    "recompute": BarItem("r", "recomputing", "black on yellow", "#e69f00"),
    "tensor": BarItem("t", "tensor-parallel communication", "white on magenta", "#cc79a7"),
    "pipeline": BarItem("p", "messages between stages", "black on bright_magenta", "#8f4c86"),
    "data": BarItem("d", "exchange between replicas", "black on bright_cyan", "#56b4e9"),
    "optimizer": BarItem("o", "optimizer", "white on red", "#d55e00"),
    "bubble": BarItem("b", "bubble", "black on white", "#b4b8bc", "idle, or waiting for a neighbor"),
    "jitter": BarItem("j", "waiting for the slowest node", "white on bright_black", "#70767c"),
    "context": BarItem(
        "k", "exchange of keys and values", "black on bright_blue", "#3b5b92", "that attention waits for", seldom=True
    ),
    "expert": BarItem(
        "x", "exchange with experts", "black on bright_red", "#882255", "tokens to experts of other ranks", seldom=True
    ),
    "offload": BarItem(
        "h", "offload", "black on bright_green", "#009e73", "copies to host or disk that are not hidden", seldom=True
    ),
}
# of a measured step only: what happens between two of them
MEASURED = {
    "outside": BarItem("a", "around the step", "black on bright_yellow", "#c9b458", "data, metrics, checkpoints")
}


def exchanged(replicas: int, tied_stages: int) -> str | None:
    """What the item `data` is of a plan with so many replicas, whose tied embedding lies on so many stages.

    None where nothing is exchanged between steps.
    """
    ends = "the sum of the tied embedding's gradient over the first and last stage" if tied_stages > 1 else None
    if replicas > 1:
        return STEP["data"].words + (f", and {ends}" if ends else "")
    return ends


MEMORY = {
    "weights": BarItem("w", "weights", "white on blue", "#0072b2"),
    "gradients": BarItem("g", "gradients", "black on bright_cyan", "#56b4e9"),
    "optimizer": BarItem("o", "optimizer", "white on red", "#d55e00"),
    "fetched": BarItem("f", "fetched", "black on bright_magenta", "#8f4c86", "weights in use, sharded or offloaded"),
    "activations": BarItem("a", "activations", "white on green", "#009e73"),
    "buffers": BarItem("b", "buffers", "black on yellow", "#e69f00"),
    "slack": BarItem("s", "slack", "black on white", "#b4b8bc"),
}

ITEMS = STEP | MEASURED | MEMORY

"""The items that a step's time and a device's memory are made of: what each is called, and how it is shown.

The one table of them: the cost model fills it in, the explanation and the report speak of it, bars and page colour it.
"""

from __future__ import annotations

from typing import NamedTuple

from heddle.cost.work import Column


class Item(NamedTuple):
    """One part of a bar. Its letter is the first of its name; no two items of one bar share it."""

    words: str
    style: str  # in the terminal
    colour: str  # on a page; such that people who see few colours tell them apart, too (Okabe and Ito)
    meaning: str = ""  # where the words alone do not say it

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
    moved: Column = 0.0  # what is not hidden of copies to other tiers, and back


STEP = {
    "compute": Item("compute", "white on blue", "#0072b2"),
    "recompute": Item("recomputing", "black on yellow", "#e69f00"),
    "tensor": Item("tensor-parallel communication", "white on magenta", "#cc79a7"),
    "pipeline": Item("messages between stages", "black on bright_magenta", "#8f4c86"),
    "data": Item("exchange between replicas", "black on bright_cyan", "#56b4e9"),
    "optimizer": Item("optimizer", "white on red", "#d55e00"),
    "bubble": Item("bubble", "black on white", "#b4b8bc", "idle, or waiting for a neighbour"),
    "jitter": Item("waiting for the slowest node", "white on bright_black", "#70767c"),
    "moved": Item("offload", "black on bright_green", "#009e73", "copies to host memory or disk that are not hidden"),
}
# of a measured step only: what happens between two of them
MEASURED = {"outside": Item("around the step", "black on bright_yellow", "#c9b458", "data, metrics, checkpoints")}

MEMORY = {
    "weights": Item("weights", "white on blue", "#0072b2"),
    "gradients": Item("gradients", "black on bright_cyan", "#56b4e9"),
    "optimizer": Item("optimizer", "white on red", "#d55e00"),
    "activations": Item("activations", "white on green", "#009e73"),
    "buffers": Item("buffers", "black on yellow", "#e69f00"),
    "slack": Item("slack", "black on white", "#b4b8bc"),
}

ITEMS = STEP | MEASURED | MEMORY

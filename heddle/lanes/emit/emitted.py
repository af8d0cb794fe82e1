"""What is written for a region: its lines, and what goes before, behind and round the loop that it is."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Emitted:
    lines: list[str]
    declarations: set[str] = field(default_factory=set)
    early: list[str] = field(default_factory=list)  # for the block before: what the loop around it does not change, …
    first: list[str] = field(default_factory=list)  # … and what vectors that go round the loop are before it
    again: list[Again] = field(default_factory=list)  # what is loaded again, there or where the region begins
    phis: list[Phi] = field(default_factory=list)  # those vectors
    dropped: frozenset[str] = frozenset()  # phis that are lanes of those, and needed no more
    behind: dict[str, str] = field(default_factory=dict)  # scalars taken out of vectors behind the loop
    label: str = ""  # of a new block for those

    @property
    def reloaded(self) -> list[str]:
        return [f"{a.name} = {a.load}" for a in self.again]


@dataclass(frozen=True)
class Again:
    """A vector of what the block before loaded lane by lane."""

    name: str
    load: str
    type: str
    lanes: tuple[str, ...]


@dataclass(frozen=True)
class Phi:
    """A vector that goes round a loop: its lanes by their scalar names, and what it is in the next turn."""

    name: str
    type: str
    lanes: tuple[str, ...]
    first: str
    following: str

    def text(self, preheader: str, here: str) -> str:
        return f"{self.name} = phi {self.type} [ {self.first}, %{preheader} ], [ {self.following}, %{here} ]"

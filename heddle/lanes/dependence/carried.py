"""What goes round a loop of one block: its phis, which may be lanes of one vector, and the way out of it."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

from heddle.lanes.dependence.loops import LABEL
from heddle.lanes.ir import BITS, BasicBlock, Statement

Readers = dict[str, set[tuple[str, int]]]  # who reads a value, as block and place in it


@dataclass(frozen=True)
class Carried:
    """A phi: what it is the first time round, and what it is in the next one."""

    first: str
    following: str


def carried(
    block: BasicBlock, preheader: str, types: dict[str, str], readers: Readers, inside: range
) -> dict[str, Carried]:
    """Phis that may be vectors: what they read and what reads them in their block lies `inside` one stretch of it.

    Those of which there is only one of a type have no partner, and what goes into addresses has to be a scalar.
    """
    place = {s.name: s.index for s in block.statements if s.name}
    phis: dict[str, Carried] = {}
    for s in block.statements:
        if s.op == "phi" and s.name and types.get(s.name) in BITS and (c := _incoming(s, preheader, block.label)):
            phis[s.name] = c

    def fits(name: str) -> bool:
        following = place.get(phis[name].following)
        at = [i for label, i in readers.get(name, ()) if label == block.label]
        known = following is None or following in inside or phis[name].following in phis
        return known and all(i in inside or block.statements[i].name in phis for i in at) and not addresses(at)

    def addresses(at: list[int]) -> bool:
        return any(block.statements[i].op == "getelementptr" for i in at)

    while True:
        several = Counter(types[name] for name in phis)
        wrong = [name for name in phis if several[types[name]] < 2 or not fits(name)]
        if not wrong:
            return phis
        for name in wrong:
            del phis[name]


def _incoming(s: Statement, preheader: str, here: str) -> Carried | None:
    pairs = re.findall(rf"\[ (.*?), %{LABEL} \]", s.text)
    by_label = {label: value.strip() for value, label in pairs}
    if len(pairs) != 2 or set(by_label) != {preheader, here}:
        return None
    return Carried(by_label[preheader], by_label[here])


def way_out(block: BasicBlock) -> str:
    """The block behind a loop of one block; nothing if there are several, or none."""
    m = re.match(rf"br i1 .*, label %{LABEL}, label %{LABEL}", block.statements[-1].text)
    others = {m[1], m[2]} - {block.label} if m else set()
    return others.pop() if len(others) == 1 else ""

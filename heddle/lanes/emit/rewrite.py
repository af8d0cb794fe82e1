"""A function's text with its packed regions in it: their lines, what goes round loops, and what comes out of them."""

from __future__ import annotations

import re

from heddle.lanes.dependence import Region
from heddle.lanes.emit import Emitted
from heddle.lanes.ir import Block, Function

Made = list[tuple[Region, Emitted]]


def replace_regions(function: Function, made: Made) -> str:
    """The function's text with other lines for some of its regions."""
    ways_out = {region.block.label: _way_out(region.block, made) for region, _ in made}
    lines = [function.head]
    for block in function.blocks:
        here = [(region, emitted) for region, emitted in made if region.block is block]
        texts: list[str | None] = [s.text for s in block.statements]
        early = [
            line
            for region, emitted in made
            if region.preheader == block.label
            for line in (*emitted.reloaded, *emitted.early, *emitted.first)
        ]
        texts[-1] = "\n  ".join([*early, block.statements[-1].text])
        dropped = frozenset[str]().union(*(emitted.dropped for _, emitted in here))
        for i, s in enumerate(block.statements):
            if s.op == "phi":
                texts[i] = None if s.name in dropped else _from_new_blocks(s.text, block.label, ways_out)
        for region, emitted in here:
            again = [] if region.preheader else emitted.reloaded  # before anything is stored
            texts[region.start] = "\n  ".join([*again, *emitted.lines])
            for i in range(region.start + 1, region.start + len(region.statements)):
                texts[i] = None
        lines.append(f"{block.label}:")
        lines += [f"  {phi.text(r.preheader, block.label)}" for r, emitted in here for phi in emitted.phis]
        lines += [f"  {text}" for text in texts if text]
        if way := ways_out.get(block.label):
            label, behind = way
            target = here[0][0].way_out
            lines[-1] = re.sub(rf"label %{re.escape(target)}(?=[,\s]|$)", f"label %{label}", lines[-1])
            lines += [f"{label}:", *(f"  {line}" for line in behind), f"  br label %{target}"]
    return "\n".join([*lines, "}"])


def _way_out(block: Block, made: Made) -> tuple[str, list[str]] | None:
    """A block of its own on the way out of a loop, for what is taken out of vectors there."""
    here = [emitted for region, emitted in made if region.block is block and emitted.behind]
    return (here[0].label, [line for emitted in here for line in emitted.behind.values()]) if here else None


def _from_new_blocks(phi: str, label: str, ways_out: dict[str, tuple[str, list[str]] | None]) -> str:
    """A phi behind a loop, which is now reached by the new block; the loop's own phis are not."""
    for loop, way in ways_out.items():
        if way is not None and loop != label:
            phi = phi.replace(f", %{loop} ]", f", %{way[0]} ]")
    return phi

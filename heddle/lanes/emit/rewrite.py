"""A function's text with its packed regions in it: their lines, what goes round loops, and what comes out of them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from heddle.lanes.dependence import Region
from heddle.lanes.dependence.carried import way_out
from heddle.lanes.emit import Emitted
from heddle.lanes.ir import BasicBlock, Function

Made = list[tuple[Region, Emitted]]


@dataclass
class Way:
    """A block of its own on the way out of a loop: what is taken out of vectors there, and made for the next loop."""

    label: str
    target: str
    lines: list[str]


def replace_regions(function: Function, made: Made) -> str:
    """The function's text with other lines for some of its regions."""
    early: dict[str, list[str]] = {}  # by the block at whose end it goes
    by_block: dict[str, Made] = {}
    for region, emitted in made:
        by_block.setdefault(region.block.label, []).append((region, emitted))
        if region.preheader:
            early.setdefault(region.preheader, []).extend((*emitted.reloaded, *emitted.early, *emitted.first))
    ways = _ways_out(function, made, by_block, early)
    lines = [function.head]
    for block in function.blocks:
        here, way = by_block.get(block.label, []), ways.get(block.label)
        texts: list[str | None] = [s.text for s in block.statements]
        last = block.statements[-1].text
        if way is not None:
            last = re.sub(rf"label %{re.escape(way.target)}(?=[,\s]|$)", f"label %{way.label}", last)
        texts[-1] = "\n  ".join([*([] if way is not None else early.get(block.label, [])), last])
        dropped = frozenset[str]().union(*(emitted.dropped for _, emitted in here))
        for i, s in enumerate(block.statements):
            if s.op == "phi":
                texts[i] = None if s.name in dropped else _from_new_blocks(s.text, block.label, ways)
        for region, emitted in here:
            again = [] if region.preheader else emitted.reloaded  # before anything is stored
            texts[region.start] = "\n  ".join([*again, *emitted.lines])
            for i in range(region.start + 1, region.start + len(region.statements)):
                texts[i] = None
        lines.append(f"{block.label}:")
        for region, emitted in here:
            before = ways[region.preheader].label if region.preheader in ways else region.preheader
            lines += [f"  {phi.text(before, block.label)}" for phi in emitted.phis]
        lines += [f"  {text}" for text in texts if text]
        if way is not None:
            lines += [f"{way.label}:", *(f"  {line}" for line in way.lines), f"  br label %{way.target}"]
    return "\n".join([*lines, "}"])


def _ways_out(function: Function, made: Made, by_block: dict[str, Made], early: dict[str, list[str]]) -> dict[str, Way]:
    """By loop: those out of which something comes, and those before another loop that needs something made."""
    found: dict[str, Way] = {}
    for block in function.blocks:
        here = by_block.get(block.label, [])
        behind = [line for _, emitted in here for line in emitted.behind.values()]
        target = here[0][0].way_out if behind else way_out(block) if _is_loop(block) else ""
        lines = [*behind, *early.get(block.label, [])]
        if target and lines:
            following = next((e.label for r, e in made if r.preheader == block.label), "")
            found[block.label] = Way(here[0][1].label if here else f"{following}.in", target, lines)
    return found


def _is_loop(block: BasicBlock) -> bool:
    return re.search(rf"label %{re.escape(block.label)}(?=[,\s]|$)", block.statements[-1].text) is not None


def _from_new_blocks(phi: str, label: str, ways: dict[str, Way]) -> str:
    """A phi behind a loop, which is now reached by the new block; the loop's own phis are not."""
    for loop, way in ways.items():
        if loop != label:
            phi = phi.replace(f", %{loop} ]", f", %{way.label} ]")
    return phi

"""Which blocks of a function lie in loops, how deep, and what does not change there."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from heddle.lanes.ir import Function, Statement

LABEL = r'("[^"]*"|[-a-zA-Z$._0-9]+)'  # of a block, as LLVM prints it


@dataclass(frozen=True)
class Loops:
    """For each block how many loops it is in, the blocks of the innermost of them, and the block that leads there."""

    depth: dict[str, int]
    innermost: dict[str, frozenset[str]] = field(default_factory=dict)
    preheader: dict[str, str] = field(default_factory=dict)  # none where there are several

    def weight(self, label: str) -> int:
        """How often a block runs, as compilers guess it: ten times for each loop around it."""
        return int(10 ** min(self.depth.get(label, 0), 6))


def loops(function: Function) -> Loops:
    """By strongly connected parts, and theirs without the block through which they are entered."""
    follow = _follow(function)
    order = [b.label for b in function.blocks]
    depth = dict.fromkeys(order, 0)
    innermost: dict[str, frozenset[str]] = {}
    before: dict[str, str] = {}
    todo = [frozenset(order)]
    while todo:
        for part in _parts(follow, todo.pop()):
            leading = [label for label in order if label not in part and not part.isdisjoint(follow[label])]
            for label in part:
                depth[label] += 1
                innermost[label] = part
                before[label] = leading[0] if len(leading) == 1 else ""
            entry = next(label for label in order if label in part)
            todo.append(part - {entry})
    return Loops(depth, innermost, {label: leads for label, leads in before.items() if leads})


def only_before(function: Function) -> dict[str, str]:
    """The block before each that has only one, and is no loop of its own."""
    leading: dict[str, list[str]] = {}
    for label, following in _follow(function).items():
        for target in dict.fromkeys(following):
            leading.setdefault(target, []).append(label)
    return {label: some[0] for label, some in leading.items() if len(some) == 1 and some[0] != label}


def _follow(function: Function) -> dict[str, list[str]]:
    return {b.label: re.findall(rf"label %{LABEL}", _last(b.statements)) for b in function.blocks}


def _last(statements: list[Statement]) -> str:
    return statements[-1].text if statements else ""


def _parts(follow: dict[str, list[str]], within: Iterable[str]) -> list[frozenset[str]]:
    """Strongly connected parts that have a cycle, by Tarjan without recursion."""
    inside = set(within)
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    on_stack: set[str] = set()
    found = []
    for root in sorted(inside):
        if root in number:
            continue
        work = [(root, iter([t for t in follow.get(root, ()) if t in inside]))]
        number[root] = low[root] = len(number)
        stack.append(root)
        on_stack.add(root)
        while work:
            label, targets = work[-1]
            following = next(targets, None)
            if following is not None:
                if following not in number:
                    number[following] = low[following] = len(number)
                    stack.append(following)
                    on_stack.add(following)
                    work.append((following, iter([t for t in follow.get(following, ()) if t in inside])))
                elif following in on_stack:
                    low[label] = min(low[label], number[following])
                continue
            work.pop()
            if work:
                low[work[-1][0]] = min(low[work[-1][0]], low[label])
            if low[label] == number[label]:
                part = set()
                while True:
                    top = stack.pop()
                    on_stack.discard(top)
                    part.add(top)
                    if top == label:
                        break
                if len(part) > 1 or label in follow.get(label, ()):
                    found.append(frozenset(part))
    return found

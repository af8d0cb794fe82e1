"""Code that keeps its promises whatever goes in: made-up inputs must not make it undefined.

Each instruction becomes one that does the same wherever the other is defined, and something definite elsewhere. Scalar
and packed code are treated alike, lane by lane, so that they are equal after it just where they were before.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from heddle.lanes.ir import BITS, split_commas

FLAGS = re.compile(
    r"\b(?:nuw|nsw|exact|disjoint|nneg|samesign|fast|nnan|ninf|nsz|arcp|contract|afn|reassoc|nusw|inbounds|noundef|"
    r"range\([^)]*\)|nofpclass\([^)]*\)) "
)
_TYPE = r"<\d+ x \w+>|\w+"
_SHIFT = re.compile(rf"^(.* = )(shl|lshr|ashr) ({_TYPE}) (.*)$")
_CONVERT = re.compile(rf"^(.* = )(fptosi|fptoui) ({_TYPE}) (.*) to ({_TYPE})$")
_OR_POISON = re.compile(r"(@llvm\.(?:abs|ctlz|cttz)\.\w+\(.*), i1 true\)")


def kept_by_all(lines: Iterable[str]) -> tuple[list[str], set[str]]:
    """The lines, and what they declare beyond what they did before."""
    out: list[str] = []
    declared: set[str] = set()
    for k, line in enumerate(lines):
        out += _kept(FLAGS.sub("", line), k, declared)
    return out, declared


def _kept(line: str, number: int, declared: set[str]) -> Iterator[str]:
    if m := _SHIFT.match(line):
        value, amount = split_commas(m[4])
        width, element = _parts(m[3])
        most = f"{BITS.get(element, 64) - 1}"
        limit = most if width is None else f"splat ({element} {most})"
        yield f"%heddle.amount.{number} = and {m[3]} {amount}, {limit}"
        line = f"{m[1]}{m[2]} {m[3]} {value}, %heddle.amount.{number}"
    elif m := _CONVERT.match(line):
        name = f"@llvm.{m[2]}.sat.{_suffix(m[5])}.{_suffix(m[3])}"
        declared.add(f"declare {m[5]} {name}({m[3]})")
        line = f"{m[1]}call {m[5]} {name}({m[3]} {m[4]})"
    yield _OR_POISON.sub(r"\1, i1 false)", line)


def _parts(kind: str) -> tuple[int | None, str]:
    m = re.fullmatch(r"<(\d+) x (\w+)>", kind)
    return (int(m[1]), m[2]) if m else (None, kind)


def _suffix(kind: str) -> str:
    width, element = _parts(kind)
    short = {"float": "f32", "double": "f64"}.get(element, element)
    return short if width is None else f"v{width}{short}"

"""Modules put together from packed regions, and one module from the candidates that were chosen."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from heddle.errors import HeddleError
from heddle.lanes import ir
from heddle.lanes.emit.rewrite import replace_regions
from heddle.lanes.reports import Packed

Made = dict[str, dict[str, list[Packed]]]  # by method, by function
BARE = "heddle-bare"  # marks functions that LLVM's passes must leave alone, with the group of attributes they had


def through_llvm(text: str, target: Any) -> str:
    module = ir.parse_llvm(text)
    ir.optimize(module, slp=True, target=target)
    return ir.named(module, target)


def is_bare(choice: str) -> bool:
    """Whether a candidate is code as it is, with none of LLVM's passes behind it."""
    return choice in ("scalar", "ilp", "policy", "pairs")


def combine(scalar: ir.Module, made: Made, chosen: dict[str, str], target: Any) -> str:
    """One module with the chosen candidate of every function, some of them out of reach of LLVM's passes."""
    texts: dict[str, str] = {}
    declarations: set[str] = set()
    groups = scalar.groups
    marks: dict[str, str] = {}
    for function in scalar.functions:
        choice = chosen.get(function.name, "llvm")
        method = choice.partition("+")[0]
        text = function.text()
        if method in made:
            text = _function_with(function, made[method][function.name], declarations)
        if is_bare(choice):
            head, _, body = text.partition("\n")
            text = f"{_marked(head, groups, marks)}\n{body}"
        texts[function.name] = text
    added = [f"attributes {new} = {{{inside}}}" for new, inside in marks.items()]
    module = scalar.text(texts, "\n".join([_declared(scalar, declarations), *added, ""]))
    found = through_llvm(module, target)
    if marks:

        def restored(line: re.Match[str]) -> str:
            return f"attributes {line[1]} = {{{groups.get(line[2], ' ')}}}"

        found = re.sub(rf'^attributes (#\d+) = \{{.*"{BARE}"="(#\d*)".*\}}$', restored, found, flags=re.M)
    return str(ir.parse_llvm(found))


def _marked(head: str, groups: dict[str, str], marks: dict[str, str]) -> str:
    """The head of a function with attributes that keep the passes away, in place of its own.

    LLVM prints all attributes of a function as one group, behind the parameters; what `optnone` may not stand beside is
    left out for the time being.
    """
    end = _behind_parameters(head)
    m = re.match(r"((?: (?:local_)?unnamed_addr| addrspace\(\d+\))*)(?: (#\d+))?(.*)$", head[end:], re.S)
    assert m is not None
    old = m[2] or "#"
    known = [int(n[1:]) for n in (*groups, *marks)]
    own = groups.get(old, " ")
    inside = re.sub(r"\b(?:optsize|minsize|optdebug|alwaysinline|noinline|optnone) ", "", own)
    inside = f'{inside.rstrip()} noinline optnone "{BARE}"="{old}" '
    new = next((n for n, i in marks.items() if i == inside), f"#{max(known, default=-1) + 1}")
    marks[new] = inside
    return f"{head[:end]}{m[1]} {new}{m[3]}"


def _behind_parameters(head: str) -> int:
    start = re.search(r'@(?:[-a-zA-Z$._0-9]+|"[^"]*")\(', head)
    assert start is not None, head
    depth, quoted = 1, False
    for at in range(start.end(), len(head)):
        c = head[at]
        quoted ^= c == '"'
        depth += 0 if quoted else (c == "(") - (c == ")")
        if depth == 0:
            return at + 1
    raise AssertionError(head)


def with_regions(module: ir.Module, by_function: dict[str, list[Packed]]) -> tuple[str, dict[str, str]]:
    """The module with packed regions in it, and why some functions had to stay as they were."""
    try:
        return _with(module, by_function), {}
    except HeddleError:
        whole, failed = dict(by_function), dict[str, str]()
    for name, packed in by_function.items():
        try:
            if any(p.emitted is not None for p in packed):
                _with(module, {name: packed})
        except HeddleError as error:
            failed[name] = f"LLVM's verifier: {error.what[:200]}"
            del whole[name]
    try:
        return _with(module, whole), failed
    except HeddleError as error:  # each may stand alone, but not all together
        return module.text(), dict.fromkeys(by_function, f"LLVM's verifier: {error.what[:200]}")


def _with(module: ir.Module, by_function: dict[str, list[Packed]]) -> str:
    declarations: set[str] = set()
    texts = {f.name: _function_with(f, by_function.get(f.name, []), declarations) for f in module.functions}
    return ir.named(ir.parse_llvm(module.text(texts, _declared(module, declarations)), "The packed code"))


def _declared(module: ir.Module, declarations: Iterable[str]) -> str:
    known = module.declarations
    return "\n".join(sorted(d for d in declarations if f"@{d.split('@')[1].split('(')[0]}" not in known)) + "\n"


def _function_with(function: ir.Function, packed: list[Packed], declarations: set[str]) -> str:
    kept = [(p.region, p.emitted) for p in packed if p.emitted is not None]
    declarations |= {d for _, e in kept for d in e.declarations}
    return replace_regions(function, kept) if kept else function.text()

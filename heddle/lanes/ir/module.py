"""A module taken apart into functions, blocks and statements, and put together again.

llvmlite parses and verifies; what it does not tell about an instruction (flags, predicates, alignment) is read from the
canonical text that LLVM prints, one instruction a line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from heddle.errors import HeddleError, nearest
from heddle.lanes.ir.statement import Statement, parse_statement
from heddle.native.llvm import parse_llvm


@dataclass
class BasicBlock:
    label: str
    statements: list[Statement]  # with the terminator


@dataclass
class Function:
    name: str
    head: str  # the `define` line
    blocks: list[BasicBlock]
    types: dict[str, str] = field(default_factory=dict)  # of every named value
    noalias: frozenset[str] = frozenset()
    arguments: tuple[str, ...] = ()

    @cached_property
    def written(self) -> str:
        """Its name as in the text, with the @, and in quotes where LLVM needs them."""
        found = re.search(r'@(?:[-a-zA-Z$._0-9]+|"[^"]*")(?=\()', self.head)
        assert found is not None, self.head
        return found[0]

    @cached_property
    def definitions(self) -> dict[str, Statement]:
        """The statement of every value that is no argument."""
        return {s.name: s for b in self.blocks for s in b.statements if s.name}

    @cached_property
    def indices(self) -> frozenset[str]:
        """Values that go into addresses as they are, or made wider or narrower."""
        every = [s for b in self.blocks for s in b.statements]
        found = {v for s in every if s.op == "getelementptr" for v in s.uses}
        for s in reversed(every):  # a cast stands before what reads it, but for loops, round which few go
            if s.op in ("zext", "sext", "trunc", "freeze") and s.name in found:
                found.update(s.uses)
        return frozenset(found)

    def text(self) -> str:
        lines = [self.head]
        for block in self.blocks:
            lines.append(f"{block.label}:")
            lines += [f"  {s.text}" for s in block.statements]
        return "\n".join([*lines, "}"])


@dataclass
class Module:
    """A module, its functions taken apart, and everything between them as printed."""

    pieces: list[str | Function]

    @property
    def functions(self) -> list[Function]:
        return [p for p in self.pieces if isinstance(p, Function)]

    def text(self, changed: dict[str, str] | None = None, declarations: str = "") -> str:
        """The module again, with other text for some functions."""
        made = [p if isinstance(p, str) else (changed or {}).get(p.name, p.text()) for p in self.pieces]
        return "\n".join(made) + "\n" + declarations

    @cached_property
    def rest(self) -> str:
        """What lies between the functions."""
        return "\n".join(p for p in self.pieces if isinstance(p, str))

    @cached_property
    def metadata(self) -> dict[str, str]:
        return dict(re.findall(r"^(![0-9]+) = (?:distinct )?(.*)$", self.rest, re.M))

    @cached_property
    def groups(self) -> dict[str, str]:
        """Attributes of functions, by the number of their group."""
        return dict(re.findall(r"^attributes (#\d+) = \{(.*)\}$", self.rest, re.M))

    def attributes(self, function: Function) -> str:
        """What is said of a function behind its parameters."""
        number = re.search(r" (#\d+)(?: |$)", function.head)
        return self.groups.get(number[1], "") if number else ""

    @cached_property
    def globals(self) -> frozenset[str]:
        """Variables that are objects of their own, not aliases."""
        return frozenset(re.findall(r'^(@(?:[-a-zA-Z$._0-9]+|"[^"]*")) = (?!.*\b(?:alias|ifunc)\b)', self.rest, re.M))

    @cached_property
    def structures(self) -> dict[str, str]:
        """Types that have a name."""
        return dict(re.findall(r'^(%(?:[-a-zA-Z$._0-9]+|"[^"]*")) = type (.*)$', self.rest, re.M))

    @cached_property
    def declarations(self) -> dict[str, str]:
        """The functions that are only declared, without their attributes."""
        found = re.findall(r"^(declare .*?(@[-a-zA-Z$._0-9]+)\(.*)$", self.rest, re.M)
        return {name: re.sub(r" #\d+.*$", "", line) for line, name in found}


def take_apart(text: str) -> Module:
    """A module's printed text as functions and what lies between; values have names already (`named`)."""
    parsed = parse_llvm(text)
    pieces: list[str | Function] = []
    between: list[str] = []
    defined = (f for f in parsed.functions if not f.is_declaration)  # in the order of the text
    lines = iter(text.splitlines())
    for line in lines:
        if not line.startswith("define "):
            between.append(line)
            continue
        pieces.append("\n".join(between))
        between = []
        pieces.append(_function(line, lines, next(defined)))
    pieces.append("\n".join(between))
    return Module(pieces)


def _function(head: str, lines: Iterator[str], llvm_function: Any) -> Function:
    blocks: list[BasicBlock] = []
    for line in lines:
        if line == "}":
            break
        if not line.strip() or line.lstrip().startswith(("#dbg_", ";")):
            continue
        if not line.startswith(" "):
            blocks.append(BasicBlock(re.sub(r":(\s*;.*)?$", "", line), []))
        elif blocks[-1].statements and (line.startswith("    ") or line.strip() == "]"):
            last = blocks[-1].statements[-1]  # a switch, or what follows an invoke: one statement of several lines
            blocks[-1].statements[-1] = parse_statement(f"{last.text}\n{line}", last.index)
        else:
            block = blocks[-1]
            block.statements.append(parse_statement(line, len(block.statements)))
    types, arguments, noalias = {}, [], set()
    for argument in llvm_function.arguments:
        key = f"%{argument.name}"
        types[key] = str(argument.type)
        arguments.append(key)
        if any(b"noalias" in a for a in argument.attributes):
            noalias.add(key)
    for b in llvm_function.blocks:
        for i in b.instructions:
            if i.name:
                types[f"%{i.name}"] = str(i.type)
    for block in blocks:  # labels, and names of types in addresses, are no values
        block.statements = [
            s if all(u in types for u in s.uses) else replace(s, uses=tuple(u for u in s.uses if u in types))
            for s in block.statements
        ]
    found = Function("", head, blocks, types, frozenset(noalias), tuple(arguments))
    return replace(found, name=spoken(found.written))


def spoken(written: str) -> str:
    """A name for people, without the @: LLVM writes bytes that are not plain as two hexadecimal digits."""

    def byte(found: re.Match[str]) -> str:
        return "\\" if found[0] == "\\\\" else chr(int(found[1], 16))

    plain = re.sub(r"\\(?:\\|([0-9A-F]{2}))", byte, written[1:].strip('"'))
    return plain.encode("latin-1").decode("utf-8", "backslashreplace")


def choose_functions(module: Module, wanted: str | None) -> list[Function]:
    """The functions asked for; all that have a body if none was named."""
    if not module.functions:
        raise HeddleError(
            "There is no function with a body in this IR.",
            "Lanes pack the instructions of functions that are defined, not declared.",
            "clang drops static functions that nothing calls: remove `static`.",
        )
    if wanted is None:
        return module.functions
    found = [f for f in module.functions if f.name == wanted]
    if not found:
        raise HeddleError(
            f"There is no function '{wanted}' with a body here.",
            "A function is named as in the IR.",
            nearest(wanted, [f.name for f in module.functions]),
        )
    return found

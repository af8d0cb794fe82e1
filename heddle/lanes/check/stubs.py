"""A module made ready to run by itself: what it only declares is put in, and its functions get entries by slots."""

from __future__ import annotations

import re

from heddle.lanes.dependence.addresses import TypeSizes
from heddle.lanes.ir import Function, for_this_machine, split_commas, typed

SLOT = 64  # bytes for each argument
# Of the C library: what only computes, or works on the memory it is given.
_LIBRARY = re.compile(
    r"(?:a?(?:sin|cos|tan)h?|exp(?:2|m1)?|log(?:2|10|1p)?|pow|sqrt|cbrt|hypot|fma|f?abs|fmin|fmax|fdim|fmod|atan2|floor|"
    r"ceil|trunc|l?l?round|l?l?rint|nearbyint|copysign|erfc?|[lt]gamma|scalbn|ldexp)f?|mem(?:cpy|move|set|cmp)"
)
_NAME = r'@(?:[-a-zA-Z$._0-9]+|"[^"]*")'
_TRAP = "  call void @llvm.trap()\n  unreachable\n}"
_SPECIAL = re.compile(
    r"\b(?:byval|sret|inalloca|preallocated|byref|range|nofpclass)\(|\b(?:nest|swift\w+|inreg|allocptr)\b|\.\.\."
)


def signature(head: str, written: str) -> tuple[str, str, list[tuple[str, str]]] | None:
    """Convention, result, and the arguments' types and extensions; None if made-up values cannot be passed."""
    before, _, behind = head.partition(f"{written}(")
    result = re.search(r"(<[^>]*>|\{[^}]*\}|\w+) $", before)
    convention = re.search(r"\b(\w*cc|cc \d+) ", before)
    inside = _inside(behind)
    if result is None or inside is None or _SPECIAL.search(inside) or " range(" in before:
        return None
    kinds = []
    for part in split_commas(inside) if inside else []:
        extension = re.search(r"\b(?:signext|zeroext)\b", part)
        kinds.append((typed(part)[0], extension[0] if extension else ""))
    simple = re.compile(r"i1|i8|i16|i32|i64|float|double|ptr|<\d+ x (?:float|double|i8|i16|i32|i64)>")
    if not all(simple.fullmatch(kind) for kind, _ in kinds) or not re.fullmatch(r"[\w{}<>, ]+", result[1]):
        return None
    return (convention[1] if convention else "", result[1], kinds)


def _inside(behind: str) -> str | None:
    depth = 1
    for at, c in enumerate(behind):
        depth += (c == "(") - (c == ")")
        if depth == 0:
            return behind[:at]
    return None


def entry(number: int) -> str:
    return f"heddle.entry.{number}"


def driver(number: int, function: Function, module: str) -> str:
    """A function that takes arguments from slots and puts the result into memory; nothing if there is none to call.

    LLVM's passes may give a function that only its module calls other arguments: vectors in place of pointers to them.
    """
    written = function.written
    head = re.search(rf"^define [^\n]*{re.escape(written)}\([^\n]*$", module, re.M)
    found = signature(head[0], written) if head else None
    if found is None or found != signature(function.head, written):
        return ""
    convention, result, kinds = found
    lines = [f"define void @{entry(number)}(ptr %slots, ptr %out) {{"]
    for k, (kind, _) in enumerate(kinds):
        lines.append(f"  %p{k} = getelementptr i8, ptr %slots, i64 {SLOT * k}")
        lines.append(f"  %a{k} = load {kind}, ptr %p{k}, align 1")
    given = ", ".join(f"{kind} {extension} %a{k}" for k, (kind, extension) in enumerate(kinds))
    call = f"call {convention} {result} {written}({given})"
    lines += [f"  {call}"] if result == "void" else [f"  %r = {call}", f"  store {result} %r, ptr %out, align 1"]
    return "\n".join([*lines, "  ret void", "}", ""])


def runnable(text: str, needed: set[str]) -> str:
    """The module for this machine: some of its functions, and nothing that LLVM would look for elsewhere."""
    text = for_this_machine(text)

    def kept(found: re.Match[str]) -> str:
        return found[0] if found[2] in needed else f"{found[1]}\n{_TRAP}"

    text = re.sub(rf"^(define [^\n]*?({_NAME})\([^\n]*)\n.*?^\}}$", kept, text, flags=re.M | re.S)
    text = re.sub(r"^module asm .*\n", "", text, flags=re.M)
    text = re.sub(rf"^({_NAME} = .*?)\bthread_local(?:\(\w+\))? ", r"\1", text, flags=re.M)
    text = re.sub(rf"^({_NAME} = )(?:private|internal) (?=[^\n]*\bglobal )", r"\1", text, flags=re.M)
    text = re.sub(
        rf"^({_NAME}) = (?:external|extern_weak|available_externally) [^\n]*\b(?:global|constant) [^\n]*$",
        r"\1 = constant [65536 x i8] zeroinitializer, align 64",
        text,
        flags=re.M,
    )
    return re.sub(rf"^declare ([^\n]*?({_NAME})\([^\n]*)$", _stub, text, flags=re.M) + "\ndeclare void @llvm.trap()\n"


def _stub(found: re.Match[str]) -> str:
    """A function that is only declared ends the run, which then tells nothing; but not what LLVM or C brings."""
    name = found[2][1:].strip('"')
    if name == "llvm.trap":
        return ""
    if name.startswith("llvm.") or _LIBRARY.fullmatch(name):
        return found[0]
    bare = re.sub(r"^(?:extern_weak |dso_local |dllimport )+", "", found[1])
    bare = re.sub(r" #\d+.*$|(?<=\)) !.*$", "", bare)
    return f"define {bare} {{\n{_TRAP}"


def mutable(module: str) -> dict[str, int]:
    """Global variables that code may change, of plain names and numbers only, and how large they are."""
    structures = dict(re.findall(r'^(%(?:[-a-zA-Z$._0-9]+|"[^"]*")) = type (.*)$', module, re.M))
    layout = TypeSizes(structures)
    found = {}
    for name, what in re.findall(r"^(@[-a-zA-Z$._0-9]+) = [^\n]*?\bglobal ([^\n]*)$", module, re.M):
        size = layout.size(typed(what)[0])
        if size is not None and not _has_pointers(typed(what)[0], structures):
            found[name] = size[0]
    return found


def _has_pointers(kind: str, structures: dict[str, str]) -> bool:
    """Whether a type holds addresses, which are others in every module."""
    inside = re.findall(r'%(?:[-a-zA-Z$._0-9]+|"[^"]*")', kind)
    return bool(re.search(r"\bptr\b", kind)) or any(_has_pointers(structures.get(n, "ptr"), structures) for n in inside)

"""One printed instruction, understood as far as packing needs it. The rest stays text, and stays in its place."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

BINARY = {"add", "sub", "mul", "and", "or", "xor", "shl", "lshr", "ashr", "fadd", "fsub", "fmul", "fdiv"}
DIVISIONS = {"sdiv", "udiv", "srem", "urem"}  # by a constant they cannot end the program; by a value they can
COMMUTATIVE = {"add", "mul", "and", "or", "xor", "fadd", "fmul"}
CASTS = {"zext", "sext", "trunc", "fpext", "fptrunc", "sitofp", "uitofp", "fptosi", "fptoui", "bitcast"}
COMPARES = {"icmp", "fcmp"}
# Intrinsics that do the same in every lane, with how many of their arguments are lanes. The rest are immediates.
INTRINSICS = {
    "llvm.sqrt": 1, "llvm.fabs": 1, "llvm.floor": 1, "llvm.ceil": 1, "llvm.trunc": 1, "llvm.rint": 1,
    "llvm.nearbyint": 1, "llvm.roundeven": 1, "llvm.maxnum": 2, "llvm.minnum": 2, "llvm.maximum": 2,
    "llvm.minimum": 2, "llvm.copysign": 2, "llvm.fma": 3, "llvm.fmuladd": 3, "llvm.smax": 2, "llvm.smin": 2,
    "llvm.umax": 2, "llvm.umin": 2, "llvm.abs": 1, "llvm.ctpop": 1, "llvm.bswap": 1, "llvm.sadd.sat": 2,
    "llvm.uadd.sat": 2, "llvm.ssub.sat": 2, "llvm.usub.sat": 2, "llvm.fshl": 3, "llvm.fshr": 3,
}  # fmt: skip
COMMUTATIVE_INTRINSICS = {"llvm.smax", "llvm.smin", "llvm.umax", "llvm.umin", "llvm.sadd.sat", "llvm.uadd.sat"}
# Intrinsics that are never packed, since LLVM was not asked what they cost as vectors, but end no region.
ALONE = {
    "llvm.ctlz", "llvm.cttz", "llvm.bitreverse", "llvm.sadd.with.overflow", "llvm.uadd.with.overflow",
    "llvm.ssub.with.overflow", "llvm.usub.with.overflow", "llvm.smul.with.overflow", "llvm.umul.with.overflow",
}  # fmt: skip
# Neither touch memory nor trap, nor may they end the program: free to move, never packed.
PURE = {
    "getelementptr", "extractvalue", "insertvalue", "extractelement", "insertelement", "shufflevector", "freeze",
    "inttoptr", "ptrtoint", "addrspacecast", "ptrtoaddr", "frem",
}  # fmt: skip
BITS = {"i1": 1, "i8": 8, "i16": 16, "i32": 32, "i64": 64, "float": 32, "double": 64}
MEMORY_BYTES = {"i8": 1, "i16": 2, "i32": 4, "i64": 8, "float": 4, "double": 8, "ptr": 8}
NAME = re.compile(r'%(?:[-a-zA-Z$._0-9]+|"[^"]*")')
_FLAGS = {
    "nuw", "nsw", "exact", "disjoint", "nneg", "samesign", "fast", "nnan", "ninf", "nsz", "arcp", "contract", "afn",
    "reassoc", "inbounds", "nusw",
}  # fmt: skip
_RESULT = re.compile(r"^(?:(?:noundef|signext|zeroext|range\([^)]*\)|nofpclass\([^)]*\)) )+")  # said of a result
_INTRINSIC = re.compile(r"@(llvm\.[a-z.]+?)(?:\.(?:v\d+)?[if]\d+)+\(")


@dataclass(frozen=True)
class Statement:
    """One instruction. `lanes` are the operands that become vectors when it is packed."""

    text: str
    name: str | None
    op: str  # opcode, or the intrinsic's name without its type; "opaque" if not understood
    type: str  # of the result; of the value for a store; "" if not understood
    lanes: tuple[str, ...] = ()
    operand_type: str = ""  # of the lanes: a cast's source, what is compared
    uses: tuple[str, ...] = ()  # named values it reads
    flags: frozenset[str] = frozenset()
    predicate: str = ""
    pointer: str = ""
    align: int = 0
    rest: str = ""  # an intrinsic's immediates
    metadata: str = ""
    pure: bool = False
    index: int = -1  # in its block

    @property
    def memory(self) -> bool:
        return self.op in ("load", "store")

    @property
    def signature(self) -> tuple[str, ...]:
        """What must be the same in all lanes of one instruction."""
        return self.op, self.type, self.operand_type, self.predicate, self.rest

    @property
    def packable(self) -> bool:
        return self.op != "opaque" and self.op not in PURE and self.type in BITS and self.op != "phi"


# What may stand before an argument of a call, such as `noundef` or `range(i32 0, 256)`.
_ATTRIBUTES = re.compile(
    r"^(?:(?:noundef|signext|zeroext|immarg|nonnull|inreg|returned|noalias|readonly|readnone|writeonly|align \d+"
    r"|(?:range|nofpclass|captures|dereferenceable|dereferenceable_or_null|align|initializes)\([^%@]*?\)) )+"
)


def split_commas(text: str) -> list[str]:
    """What lies between commas that are inside no bracket and no string."""
    parts, depth, start, quoted = [], 0, 0, False
    for i, c in enumerate(text):
        if c == '"':
            quoted = not quoted
        elif quoted:
            continue
        elif c in "([{<":
            depth += 1
        elif c in ")]}>":
            depth -= 1
        elif c == "," and depth == 0:
            parts.append(text[start:i].strip())
            start = i + 1
    parts.append(text[start:].strip())
    return parts


def typed(text: str) -> tuple[str, str]:
    """A type, and the value behind it: '<4 x float> %x' → ('<4 x float>', '%x'). Attributes between are dropped."""
    if text[0] in "<[{":
        depth, end = 0, 0
        for c in text:
            depth += (c in "<[{(") - (c in ">]})")
            end += 1
            if depth == 0:
                break
        kind, value = text[:end], text[end:].strip()
    else:
        kind, _, value = text.partition(" ")
    return kind, _ATTRIBUTES.sub("", value)


def parse_statement(line: str, index: int = -1) -> Statement:
    """One printed instruction. What is not understood is opaque: kept, never moved across memory, never packed."""
    text = line.strip()
    uses = tuple(dict.fromkeys(NAME.findall(text.partition(" = ")[2] if re.match(r"^%[^=]*= ", text) else text)))
    name, body = None, text
    if (m := re.match(r'^(%(?:[-a-zA-Z$._0-9]+|"[^"]*")) = (.*)$', text, re.S)) is not None:
        name, body = m[1], m[2]
    opaque = Statement(text, name, "opaque", "", uses=uses, index=index)
    try:
        return _understood(opaque, body) or opaque
    except (ValueError, IndexError):
        return opaque


def _flags(words: str) -> tuple[frozenset[str], str]:
    found = set()
    while (part := words.partition(" "))[0] in _FLAGS:
        found.add(part[0])
        words = part[2]
    return frozenset(found), words


def _divides(op: str, value: str) -> bool:
    """Whether any number can be divided by a constant: not by 0, and the smallest one not by -1."""
    return bool(re.fullmatch(r"-?\d+", value)) and value != "0" and (value != "-1" or op[0] == "u")


def _understood(base: Statement, body: str) -> Statement | None:
    op, _, rest = body.partition(" ")
    if op == "phi":
        return replace(base, op="phi")
    if op in BINARY or op in DIVISIONS or op == "fneg":
        flags, rest = _flags(rest)
        first, *others = split_commas(rest)
        kind, a = typed(first)
        lanes = (a, *[o for o in others if not o.startswith("!")])
        safe = op not in DIVISIONS or _divides(op, lanes[1])
        return replace(base, op=op, type=kind, operand_type=kind, lanes=lanes, flags=flags, pure=safe)
    if op in CASTS:
        flags, rest = _flags(rest)
        source, _, target = split_commas(rest)[0].rpartition(" to ")
        kind, a = typed(source)
        if op == "bitcast" and (kind not in BITS or target not in BITS):
            return replace(base, op=op, pure=True)  # of vectors, which are not packed again
        return replace(base, op=op, type=target, operand_type=kind, lanes=(a,), flags=flags, pure=True)
    if op in COMPARES:
        flags, rest = _flags(rest)
        predicate, _, rest = rest.partition(" ")
        first, b = split_commas(rest)[:2]
        kind, a = typed(first)
        return replace(
            base, op=op, type="i1" + ("" if kind[0] != "<" else f" {kind}"), operand_type=kind, lanes=(a, b),
            flags=flags, predicate=predicate, pure=True,
        )  # fmt: skip
    if op == "select":
        flags, rest = _flags(rest)
        condition, yes, no = (typed(part) for part in split_commas(rest)[:3])
        if condition[0] != "i1" and yes[0][0] != "<":
            return None
        lanes = (condition[1], yes[1], no[1])
        return replace(base, op=op, type=yes[0], operand_type=condition[0], lanes=lanes, flags=flags, pure=True)
    if op in ("load", "store"):
        if rest.startswith(("volatile", "atomic")):
            return None
        parts = split_commas(rest)
        tail = [p for p in parts[2:] if not p.startswith("!")]
        if len(tail) != 1 or not tail[0].startswith("align ") or not re.match(r"ptr (?!addrspace)", parts[1]):
            return None  # another address space, or a syntax we do not know
        tbaa = re.search(r"!tbaa (![0-9]+)", rest)
        kind, value = (parts[0], "") if op == "load" else typed(parts[0])
        return replace(
            base, op=op, type=kind, operand_type=kind, lanes=(value,) if op == "store" else (),
            pointer=typed(parts[1])[1], align=int(tail[0][6:]), metadata=tbaa[1] if tbaa else "",
        )  # fmt: skip
    if op in ("call", "tail") and (m := _INTRINSIC.search(body)) is not None:
        return _intrinsic(base, body, m)
    if op in PURE:
        return replace(base, op=op, pure=True)
    return None


def _intrinsic(base: Statement, body: str, m: re.Match[str]) -> Statement | None:
    arity = INTRINSICS.get(m[1])
    head = re.sub(r"^(tail )?call ", "", body[: m.start()]).strip()
    flags, kind = _flags(head + " ")
    kind = _RESULT.sub("", kind)
    inside = body[m.end() : body.rindex(")")]
    arguments = [typed(a) for a in split_commas(inside)]
    if m[1] in ALONE and arguments[0][0] in BITS and " [" not in body[body.rindex(")") :]:
        return replace(base, op=m[1], pure=True)
    if arity is None or kind.strip() != arguments[0][0] or " [" in body[body.rindex(")") :]:
        return None
    return replace(
        base, op=m[1], type=arguments[0][0], operand_type=arguments[0][0], flags=flags, pure=True,
        lanes=tuple(a[1] for a in arguments[:arity]), rest="".join(f", {a} {b}" for a, b in arguments[arity:]),
    )  # fmt: skip

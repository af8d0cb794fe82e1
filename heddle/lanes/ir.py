"""LLVM IR as statements: read, brought to one form, taken apart line by line, and put together again.

llvmlite parses and verifies; what it does not tell about an instruction (flags, predicates, alignment) is read from the
canonical text that LLVM prints, one instruction a line. Whatever is not understood stays text, and stays in its place.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from heddle.errors import HeddleError, how_to_install, nearest

BINARY = {"add", "sub", "mul", "and", "or", "xor", "shl", "lshr", "ashr", "fadd", "fsub", "fmul", "fdiv"}
COMMUTATIVE = {"add", "mul", "and", "or", "xor", "fadd", "fmul"}
CASTS = {"zext", "sext", "trunc", "fpext", "fptrunc", "sitofp", "uitofp", "fptosi", "fptoui"}
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
# Neither touch memory nor trap, nor may they end the program: free to move, never packed.
PURE = {
    "getelementptr", "extractvalue", "insertvalue", "extractelement", "insertelement", "shufflevector", "freeze",
    "bitcast", "inttoptr", "ptrtoint", "addrspacecast", "ptrtoaddr", "frem",
}  # fmt: skip
BITS = {"i1": 1, "i8": 8, "i16": 16, "i32": 32, "i64": 64, "float": 32, "double": 64}
MEMORY_BYTES = {"i8": 1, "i16": 2, "i32": 4, "i64": 8, "float": 4, "double": 8, "ptr": 8}

NAME = re.compile(r'%(?:[-a-zA-Z$._0-9]+|"[^"]*")')
_FLAGS = {
    "nuw", "nsw", "exact", "disjoint", "nneg", "samesign", "fast", "nnan", "ninf", "nsz", "arcp", "contract", "afn",
    "reassoc", "inbounds", "nusw",
}  # fmt: skip
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
    def packable(self) -> bool:
        return self.op != "opaque" and self.op not in PURE and self.type in BITS and self.op != "phi"


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
    while (word := value.partition(" "))[0] in ("noundef", "signext", "zeroext", "immarg", "nonnull"):
        value = word[2]
    return kind, value


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


def _understood(base: Statement, body: str) -> Statement | None:
    op, _, rest = body.partition(" ")
    if op == "phi":
        return replace(base, op="phi")
    if op in BINARY or op == "fneg":
        flags, rest = _flags(rest)
        first, *others = split_commas(rest)
        kind, a = typed(first)
        lanes = (a, *[o for o in others if not o.startswith("!")])
        return replace(base, op=op, type=kind, operand_type=kind, lanes=lanes, flags=flags, pure=True)
    if op in CASTS:
        flags, rest = _flags(rest)
        source, _, target = split_commas(rest)[0].rpartition(" to ")
        kind, a = typed(source)
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
        arity = INTRINSICS.get(m[1])
        head = re.sub(r"^(tail )?call ", "", body[: m.start()]).strip()
        flags, kind = _flags(head + " ")
        inside = body[m.end() : body.rindex(")")]
        arguments = [typed(a) for a in split_commas(inside)]
        if arity is None or kind.strip() != arguments[0][0] or " [" in body[body.rindex(")") :]:
            return None
        return replace(
            base, op=m[1], type=arguments[0][0], operand_type=arguments[0][0], flags=flags, pure=True,
            lanes=tuple(a[1] for a in arguments[:arity]), rest="".join(f", {a} {b}" for a, b in arguments[arity:]),
        )  # fmt: skip
    if op in PURE:
        return replace(base, op=op, pure=True)
    return None


@dataclass
class Block:
    label: str
    statements: list[Statement]  # with the terminator


@dataclass
class Function:
    name: str
    head: str  # the `define` line
    blocks: list[Block]
    types: dict[str, str] = field(default_factory=dict)  # of every named value
    noalias: frozenset[str] = frozenset()
    arguments: tuple[str, ...] = ()

    def text(self) -> str:
        lines = [self.head]
        for block in self.blocks:
            lines.append(f"{block.label}:")
            lines += [f"  {s.text}" for s in block.statements]
        return "\n".join([*lines, "}"])


@dataclass
class Module:
    """A module, its functions taken apart; `rest` is everything between them, as printed."""

    pieces: list[str | Function]

    @property
    def functions(self) -> list[Function]:
        return [p for p in self.pieces if isinstance(p, Function)]

    def text(self, changed: dict[str, str] | None = None, declarations: str = "") -> str:
        """The module again, with other text for some functions."""
        made = [p if isinstance(p, str) else (changed or {}).get(p.name, p.text()) for p in self.pieces]
        return "\n".join(made) + "\n" + declarations

    def metadata(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for piece in self.pieces:
            if isinstance(piece, str):
                found.update(re.findall(r"^(![0-9]+) = (?:distinct )?(.*)$", piece, re.M))
        return found

    def globals(self) -> frozenset[str]:
        """Variables that are objects of their own, not aliases."""
        text = "\n".join(p for p in self.pieces if isinstance(p, str))
        return frozenset(re.findall(r'^(@(?:[-a-zA-Z$._0-9]+|"[^"]*")) = (?!.*\b(?:alias|ifunc)\b)', text, re.M))


def binding() -> Any:
    """Llvmlite's binding, made ready; a user without it is told how to get it."""
    try:
        import llvmlite.binding as llvm
    except ImportError as error:
        raise HeddleError(
            "Lanes need llvmlite, which is not installed.",
            "It reads and compiles LLVM IR.",
            f"To get it: {how_to_install('lanes')}.",
        ) from error
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm


def parse_llvm(text: str, source: str = "The IR") -> Any:
    """A verified llvmlite module."""
    llvm = binding()
    try:
        module = llvm.parse_assembly(text)
        module.verify()
    except RuntimeError as error:
        version = ".".join(map(str, llvm.llvm_version_info))
        first = " ".join(str(error).replace("LLVM IR parsing error", "").split())[:200]
        raise HeddleError(
            f"{source} is not IR that LLVM {version} reads: {first}",
            "Lanes read the textual IR of that version; older and newer versions print some of it differently.",
            f"Make it with clang {llvm.llvm_version_info[0]}: clang -O1 -S -emit-llvm kernel.c, or give the C file.",
        ) from error
    return module


def machine(cpu: str | None = None) -> Any:
    """The machine to compile for: this one, or another CPU of its kind."""
    llvm = binding()
    target = llvm.Target.from_default_triple()
    if cpu is None:
        features = llvm.get_host_cpu_features().flatten()
        return target.create_target_machine(cpu=llvm.get_host_cpu_name(), features=features, opt=3, jit=True)
    return target.create_target_machine(cpu=cpu, opt=3, jit=True)


def optimise(module: Any, *, slp: bool, target: Any = None, level: int = 3) -> None:
    """LLVM's own -O3 without its loop vectoriser and unroller, with or without its superword pass."""
    llvm = binding()
    tuning = llvm.create_pipeline_tuning_options(speed_level=level)
    tuning.loop_vectorization = False
    tuning.loop_interleaving = False
    tuning.loop_unrolling = False
    tuning.slp_vectorization = slp
    tuning.inlining_threshold = -1000  # functions stay what they are, so that each can be compared with itself
    builder = llvm.create_pass_builder(target or machine(), tuning)
    builder.getModulePassManager().run(module, builder)


def named(module: Any, target: Any = None) -> str:
    """The module's text with a name for every value and block."""
    llvm = binding()
    builder = llvm.create_pass_builder(target or machine(), llvm.create_pipeline_tuning_options())
    manager = llvm.create_new_module_pass_manager()
    manager.add_instruction_namer_pass()
    manager.run(module, builder)
    return str(module)


def take_apart(text: str) -> Module:
    """A module's printed text as functions and what lies between; values have names already (`named`)."""
    parsed = parse_llvm(text)
    pieces: list[str | Function] = []
    between: list[str] = []
    lines = iter(text.splitlines())
    for line in lines:
        if not line.startswith("define "):
            between.append(line)
            continue
        pieces.append("\n".join(between))
        between = []
        pieces.append(_function(line, lines, parsed))
    pieces.append("\n".join(between))
    return Module(pieces)


def _function(head: str, lines: Iterator[str], parsed: Any) -> Function:
    name = re.search(r'@([-a-zA-Z$._0-9]+|"[^"]*")\(', head)
    assert name is not None, head
    bare = name[1].strip('"')
    blocks: list[Block] = []
    for line in lines:
        if line == "}":
            break
        if not line.strip() or line.lstrip().startswith(("#dbg_", ";")):
            continue
        if not line.startswith(" "):
            blocks.append(Block(re.sub(r":(\s*;.*)?$", "", line), []))
        elif blocks[-1].statements and (line.startswith("    ") or line.strip() == "]"):
            last = blocks[-1].statements[-1]  # a switch, or what follows an invoke: one statement of several lines
            blocks[-1].statements[-1] = parse_statement(f"{last.text}\n{line}", last.index)
        else:
            block = blocks[-1]
            block.statements.append(parse_statement(line, len(block.statements)))
    llvm_function = parsed.get_function(bare)
    types, arguments, noalias = {}, [], set()
    for argument in llvm_function.arguments:
        key = _key(argument.name)
        types[key] = str(argument.type)
        arguments.append(key)
        if any(b"noalias" in a for a in argument.attributes):
            noalias.add(key)
    for b in llvm_function.blocks:
        for i in b.instructions:
            if i.name:
                types[_key(i.name)] = str(i.type)
    return Function(bare, head, blocks, types, frozenset(noalias), tuple(arguments))


def _key(name: str) -> str:
    return f"%{name}" if re.fullmatch(r"[-a-zA-Z$._][-a-zA-Z$._0-9]*", name) else f'%"{name}"'


def read_source(path: Path, cpu: str | None = None, cflags: tuple[str, ...] = ()) -> str:
    """The IR of a file: C through clang, anything else as it is."""
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise HeddleError(
            f"{path} cannot be read: {getattr(error, 'strerror', None) or 'it is not text'}.",
            "Lanes read C (.c) and textual LLVM IR (.ll).",
            "Bitcode becomes text with llvm-dis.",
        ) from error
    return from_c(path, cpu, cflags) if path.suffix == ".c" else text


def from_c(path: Path, cpu: str | None, cflags: tuple[str, ...]) -> str:
    """What clang makes of C: optimised, not vectorised, and strict about floating point."""
    version = binding().llvm_version_info[0]
    clang = shutil.which(f"clang-{version}") or shutil.which("clang")
    if clang is None:
        raise HeddleError(
            f"{path} is C, and there is no clang-{version} or clang here.",
            "Only reading C needs a compiler.",
            f"Install clang-{version}, or give the IR that clang -O3 -S -emit-llvm makes elsewhere.",
        )
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "kernel.ll"
        command = [
            clang, "-O3", "-fno-vectorize", "-fno-slp-vectorize", "-ffp-contract=off", "-S", "-emit-llvm",
            f"-march={cpu or 'native'}", *cflags, str(path), "-o", str(made),
        ]  # fmt: skip
        ran = subprocess.run(command, capture_output=True, text=True, timeout=120)
        if ran.returncode:
            errors = [line for line in ran.stderr.splitlines() if "error:" in line] or ran.stderr.splitlines()
            raise HeddleError(
                f"clang cannot compile {path}: {(errors or ['it gave no reason'])[0][:200]}",
                "Lanes start from what clang makes of a C file.",
                "Pass what it needs after --cflags, such as --cflags=-Iinclude.",
            )
        return made.read_text()


def from_numba(function: Callable[..., Any]) -> str:
    """The optimised IR of a Numba function that has been compiled for some types."""
    made = list(function.inspect_llvm().values())  # type: ignore[attr-defined]
    if not made:
        raise HeddleError(
            f"{function!r} has not been compiled yet.",
            "A Numba function has IR once it was called, or was given its signature.",
            "Call it once, or write @njit('void(float32[::1])').",
        )
    return str(made[0])


def choose_functions(module: Module, wanted: str | None) -> list[Function]:
    """The functions asked for; all that have a body if none was named."""
    if not module.functions:
        raise HeddleError(
            "There is no function with a body in this IR.",
            "Lanes pack the instructions of functions that are defined, not declared.",
            "static functions that nothing calls are dropped by clang: make them visible.",
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

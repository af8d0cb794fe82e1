"""What instructions cost: LLVM's reciprocal throughputs, from the table of a family of CPUs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from heddle.errors import HeddleError, nearest
from heddle.files import read_json
from heddle.lanes.ir import BITS, CASTS, COMPARES, DIVISIONS, INTRINSICS, Function, Statement, split_commas, typed

# Width in bits of the registers that compilers use by default; most CPUs with 512 bits prefer 256.
REGISTER = {"znver4": 512, "neoverse-n1": 128, "neoverse-v1": 128, "neoverse-v2": 128}
ROTATIONS = ("llvm.fshl", "llvm.fshr")
BY_CONSTANT = ("mul", "shl", "lshr", "ashr", *sorted(DIVISIONS), *ROTATIONS)  # cheaper where the last operand is known
# CPUs without a table of their own, by the one that is nearest.
NEAREST = {
    "haswell": "skylake", "broadwell": "skylake", "cascadelake": "skylake-avx512", "cooperlake": "skylake-avx512",
    "icelake-client": "icelake-server", "tigerlake": "icelake-server", "rocketlake": "icelake-server",
    "sapphirerapids": "icelake-server", "emeraldrapids": "icelake-server", "graniterapids": "icelake-server",
    "alderlake": "skylake", "raptorlake": "skylake", "znver1": "znver3", "znver2": "znver3", "znver5": "znver4",
}  # fmt: skip

INTO_ADDRESS = (
    2  # more for an extract into an address: the access waits for it to go from one file of registers to another
)

COSTS = Path(__file__).parent / "costs"  # one file for each family of CPUs


def families() -> list[str]:
    return sorted(path.stem for path in COSTS.glob("*.json"))


def family_here() -> str:
    """The family whose table is nearest to this machine's CPU."""
    from heddle.lanes.ir import binding

    llvm = binding()
    cpu = llvm.get_host_cpu_name()
    if cpu in families():
        return str(cpu)
    if cpu in NEAREST:
        return NEAREST[cpu]
    if llvm.get_default_triple().startswith(("aarch64", "arm64")):
        return "neoverse-n1"
    return "x86-64-v4" if llvm.get_host_cpu_features().get("avx512vl") else "x86-64-v3"


@cache
def table(family: str) -> Table:
    """The table of a family of CPUs."""
    if family not in families():
        raise HeddleError(
            f"There is no table of costs for '{family}'.",
            "Costs are LLVM's own, one table per CPU family.",
            nearest(family, families()),
        )
    body = read_json(COSTS / f"{family}.json", "costs of instructions")
    return Table(family, {key: int(cost) for cost, keys in body["costs"].items() for key in keys})


def vector(kind: str, width: int) -> str:
    return kind if width == 1 else f"<{width} x {kind}>"


def parts(kind: str) -> tuple[int, str]:
    """Width and element: '<4 x float>' → (4, 'float')."""
    m = re.fullmatch(r"<(\d+) x (.*)>", kind) if kind[:1] == "<" else None
    return (int(m[1]), m[2]) if m else (1, kind)


def is_constant(value: str) -> bool:
    return value[:1] not in ("%", "@")


@dataclass(frozen=True)
class Table:
    """Costs by key: opcode, types, and what else LLVM looks at."""

    family: str
    costs: dict[str, int]
    shuffled: dict[tuple[str, int, tuple[int, ...]], int] = field(default_factory=dict)  # masks come again and again

    @property
    def register(self) -> int:
        return REGISTER.get(self.family, 256)

    def get(self, key: str, default: int | None = None) -> int:
        return self.costs.get(key, 1 if default is None else default)

    def knows(self, key: str) -> bool:
        return key in self.costs

    def operation(self, s: Statement, width: int, second: Sequence[str] = (), loaded: bool = False) -> int | None:
        """A packable statement in `width` lanes; None if LLVM was not asked. `second` are its last operand's lanes."""
        kind = vector(s.type.split(" ")[0], width)
        if s.op in BY_CONSTANT and second and all(is_constant(v) for v in second):
            return self.costs.get(f"{s.op} {kind} {_mark(second, s.op in ROTATIONS)}", self.costs.get(f"{s.op} {kind}"))
        if s.op in COMPARES:
            return self.costs.get(f"{s.op} {s.predicate} {vector(s.operand_type, width)}")
        if s.op == "bitcast":
            return 0
        if s.op in CASTS:
            key = f"{s.op} {vector(s.operand_type, width)} {kind}"
            return self.costs.get(f"{key} m" if loaded else key, self.costs.get(key))
        return self.costs.get(f"{s.op} {kind}")

    def gather(self, kind: str, width: int) -> int:
        """Lanes from anywhere, by LLVM's rule: their loads, and two for each register of addresses.

        No CPU gathers bytes or halves: each address is extracted, and each value inserted.
        """
        if BITS.get(kind, 64) < 32:
            return width * (self.get(f"load {kind}") + 2 + INTO_ADDRESS)
        registers = -(-width * max(64, BITS.get(kind, 64)) // self.register)
        return self.get(f"gather {vector(kind, width)}", 2 * registers + width * self.get(f"load {kind}"))

    def shuffle(self, kind: str, width: int, mask: Sequence[int]) -> int:
        """`mask` over one or two vectors of `width` lanes; -1 is any lane."""
        key = kind, width, tuple(mask)
        known = self.shuffled.get(key)
        if known is None:
            known = self.shuffled[key] = self._whole_shuffle(kind, width, mask)
        return known

    def _whole_shuffle(self, kind: str, width: int, mask: Sequence[int]) -> int:
        lanes = self.register // BITS.get(kind, 64)
        whole = self._shuffle(kind, width, mask)
        if max(width, len(mask)) <= lanes or width % lanes:
            return whole
        return min(whole, self._by_registers(kind, lanes, mask))

    def _by_registers(self, kind: str, lanes: int, mask: Sequence[int]) -> int:
        """Vectors of several registers: each register that comes out, of those it is made of, two at a time.

        The table knows one typical mask for each width. This is how LLVM prices the others, such as every fourth lane.
        """
        total = 0
        for start in range(0, len(mask), lanes):
            own = mask[start : start + lanes]
            sources = list(dict.fromkeys(i // lanes for i in own if i >= 0))
            if len(sources) < 2:
                total += self._shuffle(kind, lanes, [i % lanes if i >= 0 else -1 for i in own])
            else:
                pair = [i % lanes + lanes * (sources.index(i // lanes) % 2) if i >= 0 else -1 for i in own]
                total += -(-len(sources) // 2) * self._shuffle(kind, lanes, pair)
        return total

    def _shuffle(self, kind: str, width: int, mask: Sequence[int]) -> int:
        t = vector(kind, width)
        used = [i for i in mask if i >= 0]
        if not used or all(i < width and i in (-1, k) for k, i in enumerate(mask)):
            return 0  # nothing moves: the low part, or padding
        first, second = min(used) < width, max(used) >= width
        if first and second:
            if len(mask) == 2 * width and all(i in (-1, k) for k, i in enumerate(mask)):
                return self.get(f"concat {t}")
            if len(mask) > width:
                return self._grown(kind, len(mask), [i if i < width else i - width + len(mask) for i in mask])
            if all(i in (-1, k, k + width) for k, i in enumerate(mask)):
                return self.get(f"blend {t}")
            return self.get(f"permute2 {t}")
        own = [i - width if i >= width else i for i in mask]
        if len(mask) > width:
            return self._grown(kind, len(mask), own)
        if all(i <= 0 for i in own) and len(mask) == width:
            return self.get(f"broadcast {t}")
        start = next(i - k for k, i in enumerate(own) if i >= 0)
        if all(i in (-1, start + k) for k, i in enumerate(own)) and len(mask) < width:
            return self.get(f"part {len(mask)} {start} {t}", self.get(f"permute {t}"))
        if all(i in (-1, width - 1 - k) for k, i in enumerate(own)) and len(mask) == width:
            return self.get(f"reverse {t}")
        if all(i < 0 or i // 2 == k // 2 for k, i in enumerate(own)) and len(mask) == width:
            return self.get(f"local {t}", self.get(f"permute {t}"))
        return self.get(f"permute {t}")

    def _grown(self, kind: str, width: int, mask: Sequence[int]) -> int:
        """A mask that also widens: padding is free, the rest moves as in the wider vector.

        `opt` prints the cost of taking such a vector apart and inserting every lane, which no back end does.
        """
        return self._shuffle(kind, width, mask)


def _mark(values: Sequence[str], rotation: bool) -> str:
    """How LLVM sees constants: one power of two in every lane, one value, or several."""
    if len(set(values)) > 1:
        return "c"
    return "p" if not rotation and re.fullmatch(r"\d+", values[0]) and int(values[0]).bit_count() == 1 else "k"


def address_is_free(s: Statement) -> bool:
    """Whether a getelementptr disappears into the addresses of loads and stores: base + scale × index + constant."""
    behind = s.text.partition(", ptr %")[2].partition(", ")[2]  # the pointer, which has no comma in its name
    if behind and "%" not in behind and "@" not in behind:
        return True  # only constants, as in most
    rest = re.sub(r"^.*?getelementptr (?:(?:inbounds|nuw|nusw|inrange\([^)]*\)) )*", "", s.text)
    element, *indices = split_commas(rest)
    indices = indices[1:]  # behind the pointer
    variable = [(k, i) for k, i in enumerate(indices) if i.startswith("i") and not is_constant(typed(i)[1])]
    if not variable:
        return True
    if len(variable) > 1 or len(indices) > 1:
        return len(variable) == 1 and variable[0][0] == len(indices) - 1 and _scale(element) in (1, 2, 4, 8)
    return _scale(element) in (1, 2, 4, 8)


def _scale(element: str) -> int:
    while m := re.fullmatch(r"\[\d+ x (.*)\]", element):
        element = m[1]
        return 0  # an index over rows: a multiplication
    return BITS.get(element, 64 if element == "ptr" else 0) // 8


def statement_cost(t: Table, s: Statement, defs: dict[str, Statement]) -> int:
    """One printed instruction, scalar or vector."""
    if s.op == "phi":
        return 0
    if s.op == "getelementptr":
        return 0 if address_is_free(s) else 1
    if s.op in ("load", "store"):
        cost = t.get(f"{s.op} {s.type}", max(1, _registers(t, s.type)))
        # A floating-point constant is itself loaded first.
        return cost + (s.op == "store" and s.type in ("float", "double") and is_constant(s.lanes[0]))
    if s.op == "insertelement":
        first, value, lane = split_commas(s.text.partition(" insertelement ")[2])[:3]
        kind, base = typed(first)
        at = lane.split()[-1]
        if is_constant(typed(value)[1]):
            return 0
        return t.get(f"{'first' if base in ('poison', 'undef') else 'insert'} {kind} {at}")
    if s.op == "extractelement":
        first, lane = split_commas(s.text.partition(" extractelement ")[2])[:2]
        return t.get(f"extract {typed(first)[0]} {lane.split()[-1]}")
    if s.op == "shufflevector":
        a, b, mask = split_commas(s.text.partition(" shufflevector ")[2])[:3]
        width, element = parts(typed(a)[0])
        return t.shuffle(element, width, _mask(mask, width, typed(b)[1] in ("poison", "undef")))
    if "@llvm." in s.text and (known := _vector_call(t, s.text)) is not None:
        return known
    if s.op in PURE_FREE or s.op == "opaque":
        return 0 if s.op in PURE_FREE or _free(s.text) else 1
    width, _ = parts(s.operand_type if s.op in COMPARES else s.type)
    if s.op == "select" and width > 1 and s.operand_type == "i1":
        return t.get(f"select i1 {s.type}")
    scalar = _scalar(s, width)
    last = s.lanes[-1] if s.lanes else ""
    constants = _constants(last, width) if s.op in BY_CONSTANT and is_constant(last) else ()
    source = defs.get(s.lanes[0]) if s.op in CASTS else None
    known = t.operation(scalar, width, constants, loaded=source is not None and source.op == "load")
    return known if known is not None else max(1, width * (t.operation(scalar, 1) or 1))


def _vector_call(t: Table, text: str) -> int | None:
    """What an intrinsic costs that only vectors have."""
    if m := re.search(r"@llvm\.vector\.reduce\.(\w+)\.(v\d+\w+)\((<[^>]*>)", text):
        return t.get(f"reduce.{m[1]} {m[3]}", 4)
    if m := re.search(r"@llvm\.masked\.load\.[\w.]+\(.*?, <(\d+) x i1>.*?, <\d+ x (\w+)> \S+\)", text):
        # Odd widths as the next power of two, which is what they become.
        return t.get(f"masked {vector(m[2], 1 << (int(m[1]) - 1).bit_length())}", 4)
    if m := re.search(r"@llvm\.masked\.(?:gather|scatter)\.v(\d+)(\w+)\.", text):
        return t.gather({"f32": "float", "f64": "double"}.get(m[2], m[2]), int(m[1]))
    return None


PURE_FREE = ("freeze", "bitcast", "inttoptr", "ptrtoint", "addrspacecast", "extractvalue", "insertvalue")


def _free(text: str) -> bool:
    return (
        text.startswith(("br ", "ret ", "unreachable"))
        or " = alloca " in text
        or "@llvm.assume" in text
        or "@llvm.lifetime" in text
    )


def _scalar(s: Statement, width: int) -> Statement:
    if width == 1:
        return s
    from dataclasses import replace

    kind = "i1" if s.op in COMPARES else parts(s.type)[1]
    return replace(s, type=kind, operand_type=parts(s.operand_type)[1])


def _constants(text: str, width: int) -> tuple[str, ...]:
    if width == 1:
        return (text,)
    if m := re.fullmatch(r"splat \(\w+ (.*)\)", text):
        return (m[1],) * width
    if text.startswith("<"):
        return tuple(typed(part)[1] for part in split_commas(text[1:-1]))
    return ("0",) * width


def _mask(text: str, width: int, single: bool) -> list[int]:
    kind, body = typed(text)
    count = parts(kind)[0]
    if body == "zeroinitializer":
        return [0] * count
    if body in ("poison", "undef"):
        return [-1] * count
    if m := re.fullmatch(r"splat \(i32 (\d+)\)", body):
        return [int(m[1])] * count
    lanes = [part.split()[-1] for part in split_commas(body[1:-1])]
    found = [-1 if lane in ("poison", "undef") else int(lane) for lane in lanes]
    return [-1 if single and i >= width else i for i in found]


def _registers(t: Table, kind: str) -> int:
    width, element = parts(kind)
    return -(-width * BITS.get(element, 64) // t.register)


def block_cost(t: Table, statements: Iterable[Statement], defs: dict[str, Statement]) -> int:
    return sum(statement_cost(t, s, defs) for s in statements)


def definitions(function: Function) -> dict[str, Statement]:
    return function.definitions


def costs_of_blocks(t: Table, function: Function) -> dict[str, int]:
    """The cost of each block."""
    defs, indices = definitions(function), function.indices
    return {
        b.label: block_cost(t, b.statements, defs)
        + INTO_ADDRESS * sum(s.op == "extractelement" and s.name in indices for s in b.statements)
        for b in function.blocks
    }


__all__ = [
    "INTO_ADDRESS", "INTRINSICS", "Table", "block_cost", "costs_of_blocks", "definitions", "families", "family_here",
    "is_constant", "parts", "statement_cost", "table", "vector",
]  # fmt: skip

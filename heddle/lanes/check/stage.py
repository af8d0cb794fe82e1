"""Arguments and memory for whole functions: random and at the edges; overlapping where nothing forbids it."""

from __future__ import annotations

import ctypes
import itertools
import mmap
import re
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from heddle.lanes.check.inputs import fill
from heddle.lanes.check.stubs import SLOT, signature
from heddle.lanes.dependence import Addresses
from heddle.lanes.ir import BITS, Function, Module, Statement

BUFFER = 1 << 16  # bytes behind each pointer, which points into the middle
PATTERN = 1 << 12  # bytes that are made up; they repeat
LENGTHS = (0, 1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 33)
_ARENA: list[np.ndarray[Any, Any]] = []  # of the child in which functions run
_KEPT: list[mmap.mmap] = []


@dataclass
class CallSetup:
    """What a function is called with."""

    kinds: list[str]
    holds: list[str]  # what is behind each argument that is a pointer
    distances: dict[tuple[int, int], list[int]]  # of two pointers that may overlap
    sober: bool  # no NaN and the like: its bits would become numbers
    variables: set[str]  # global ones that it may read or change
    leaks: bool  # addresses of its own become results, which are others in every module
    memory: list[np.ndarray[Any, Any]]  # one buffer for each pointer

    def prepare(
        self, trial: int, random: np.random.Generator
    ) -> tuple[np.ndarray[Any, Any], list[np.ndarray[Any, Any]]]:
        """Arguments, and what memory holds. The first trials are tame; from the third on wild, from the fourth near."""
        pointers = [k for k, kind in enumerate(self.kinds) if kind == "ptr"]
        edge = 0.0 if self.sober else (0.0, 0.0, 0.3, 0.0, 1.0, 0.1)[trial]
        contents: list[np.ndarray[Any, Any]] = []
        where: dict[int, int] = {}
        for n, k in enumerate(pointers):
            pattern = np.zeros(PATTERN, np.uint8)
            _hold(pattern, self.holds[k], random, edge, tame=trial == 0, positive=self.sober)
            contents.append(np.resize(pattern, BUFFER))
            where[k] = self.memory[n].ctypes.data + BUFFER // 2
            near = [j for j in pointers[:n] if self.distances.get((j, k))]
            if trial >= 3 and near:
                j = near[int(random.integers(0, len(near)))]
                distances = self.distances[j, k]
                where[k] = where[j] + distances[int(random.integers(0, len(distances)))]
        slots = np.zeros(SLOT * (len(self.kinds) + 1), np.uint8)
        for k, kind in enumerate(self.kinds):
            slot = slots[SLOT * k : SLOT * (k + 1)]
            if kind == "ptr":
                slot[:8] = np.frombuffer(np.int64(where[k]).tobytes(), np.uint8)
            elif kind in BITS and kind[0] == "i" and BITS[kind] >= 16:
                number = int(random.choice(LENGTHS)) if trial else 16
                slot[:8] = np.frombuffer(np.int64(-number if trial == 4 else number).tobytes(), np.uint8)
            else:
                _hold(slot, kind, random, edge, tame=False, positive=self.sober)
        return slots, contents


def _hold(
    held: np.ndarray[Any, Any], kind: str, random: np.random.Generator, edge: float, *, tame: bool, positive: bool
) -> None:
    if not tame or kind in ("float", "double"):
        fill(held, kind, random, edge, small=False)
        if positive and kind in ("float", "double"):
            np.abs(held.view(np.float32 if kind == "float" else np.float64), out=held.view(f"f{BITS[kind] // 8}"))
        return
    step = max(1, BITS.get(kind, 8) // 8)
    held[:] = 0
    held[::step] = random.integers(0, 7, size=held[::step].size, dtype=np.uint8)


def reached(functions: list[Function], module: Module) -> list[Function]:
    """Functions, and those they call or take the address of."""
    known = {f.written: f for f in module.functions}
    found = {f.written: f for f in functions}
    stack = list(functions)
    while stack:
        for name in set(re.findall(r'@(?:[-a-zA-Z$._0-9]+|"[^"]*")', stack.pop().text())) & set(known):
            if name not in found:
                found[name] = known[name]
                stack.append(known[name])
    return list(found.values())


def stage_for(function: Function, module: Module) -> CallSetup:
    found = signature(function.head, function.written)
    assert found is not None
    kinds = [kind for kind, _ in found[2]]
    text = function.text()
    every = reached([function], module)
    everything = "\n".join(f.text() for f in every)
    changing = set(re.findall(r"^(@[-a-zA-Z$._0-9]+) = [^\n]*?\bglobal ", module.rest, re.M))
    holds, distances = _behind(function, module, text, calls=len(every) > 1)
    return CallSetup(
        kinds,
        holds,
        distances,
        bool(re.search(r"\bbitcast\b|copysign|llvm\.is\.fpclass", everything)),
        changing & set(re.findall(r"@[-a-zA-Z$._0-9]+", everything)),
        _leaks(everything),
        _guarded(kinds.count("ptr")),
    )


def _leaks(text: str) -> bool:
    shown = re.search(r"\b(?:store|ret) (?:ptr|<\d+ x ptr>) |\bptrto(?:int|addr)\b|\bicmp [us]\w\w ptr ", text)
    bodies = re.sub(r"^define .*$", "", text, flags=re.M)
    own = " = alloca " in bodies or re.search(r'@(?:[-a-zA-Z$._0-9]+|"[^"]*")(?!\(|[-a-zA-Z$._0-9])', bodies)
    return bool(shown and own)


def _behind(
    function: Function, module: Module, text: str, *, calls: bool
) -> tuple[list[str], dict[tuple[int, int], list[int]]]:
    """What pointers point to, and how far two of them may lie apart where they may overlap."""
    addresses = Addresses(function, module)
    accesses = [s for b in function.blocks for s in b.statements if s.memory]
    by_base: dict[str, list[tuple[int, Statement]]] = {}
    for s in accesses:
        for base in addresses.objects(s.pointer):
            by_base.setdefault(base, []).append((addresses.address(s.pointer).offset, s))
    usual = _most([s.type for s in accesses], "i8")
    holds = [_most([s.type for _, s in by_base.get(a, ())], usual) for a in function.arguments]
    distances = {}
    if not calls and _may_overlap(function, addresses, text):
        for (j, a), (k, b) in itertools.combinations(enumerate(function.arguments), 2):
            if not addresses.apart(a, b):
                distances[j, k] = _distances(by_base.get(a, []), by_base.get(b, []), holds[j])
    return holds, distances


def _most(kinds: list[str], otherwise: str) -> str:
    found = Counter(k for k in kinds if k in BITS).most_common(1)
    return found[0][0] if found else otherwise


def _may_overlap(function: Function, addresses: Addresses, text: str) -> bool:
    """Whether nothing but `noalias` keeps memory apart: neither scopes nor types."""
    if re.search(r"!(?:alias\.scope|noalias|invariant\.\w+) |llvm\.invariant|llvm\.mem", text):
        return False
    tags = {s.metadata for b in function.blocks for s in b.statements if s.memory}
    return all(addresses.types_may_alias(a, b) for a, b in itertools.combinations(tags, 2))


def _distances(here: list[tuple[int, Statement]], there: list[tuple[int, Statement]], usual: str) -> list[int]:
    """How far the second base may lie behind the first for accesses to meet, or to be neighbors."""
    align = max([1, *(s.align for _, s in (*here, *there))])
    size = BITS[usual] // 8 or 1
    offsets = {x - y for x, _ in here[:32] for y, _ in there[:32]} | {0, size, -size, 4 * size}
    near = {d + e for d in offsets for e in (0, size, -size) if abs(d) < BUFFER // 8}
    return sorted(d for d in near if d % align == 0)


def _guarded(count: int) -> list[np.ndarray[Any, Any]]:
    """Memory for some buffers, each with as much behind it that nobody may touch: code that goes too far crashes."""
    if len(_ARENA) < count:
        whole = mmap.mmap(-1, BUFFER * (2 * max(8, count) + 1))
        start = ctypes.addressof(ctypes.c_char.from_buffer(whole))
        protect = ctypes.CDLL(None).mprotect
        _ARENA.clear()
        for k in range(max(8, count)):
            protect(ctypes.c_void_p(start + 2 * BUFFER * k), ctypes.c_size_t(BUFFER), 0)
            at = start + BUFFER * (2 * k + 1)
            _ARENA.append(np.ctypeslib.as_array((ctypes.c_uint8 * BUFFER).from_address(at)))
        _KEPT.append(whole)
    return _ARENA[:count]

"""Loops made at random whose sums and states go round side by side, as in filters, hashes and dot products."""

from __future__ import annotations

import random

FLOATS = ("fadd", "fmul", "fsub", "fadd")
WHOLE = ("add", "xor", "sub", "mul", "or")
SIZE = {"float": 4, "double": 8, "i32": 4, "i64": 8, "i16": 2}


def looped(seed: int) -> tuple[str, str]:
    """IR of a function `kernel(out, a, b, c, s)` with one loop of a few turns, and the type it works on."""
    chance = random.Random(seed)
    kind = chance.choice(["float", "float", "double", "i32", "i32", "i64", "i16"])
    lanes = chance.choice([2, 2, 3, 4, 4, 6, 8])
    body = _Body(chance, kind, lanes)
    following = body.turn()
    if chance.random() < 0.3:  # a delay line: some lanes are what others were
        cut = chance.randint(1, lanes - 1)
        following = following[:cut] + [f"%s{k}" for k in range(lanes - cut)]
    start = [chance.choice(["0", "1"]) + (".0" if body.floating else "") for _ in range(lanes)]
    if chance.random() < 0.4:
        start = [f"%b{k}" for k in range(lanes)]
    arguments = ", ".join(f"ptr {'noalias ' if chance.random() < 0.7 else ''}%p{k}" for k in range(4))
    lines = [f"define void @kernel({arguments}, {kind} %s) {{", "entry:"]
    for k in range(lanes):
        lines += body.load(f"%b{k}", "%p3", k, f"%bp{k}")
    lines += ["  br label %loop", "loop:", "  %i = phi i64 [ 0, %entry ], [ %i2, %loop ]"]
    for k in range(lanes):
        lines.append(f"  %s{k} = phi {kind} [ {start[k]}, %entry ], [ {following[k]}, %loop ]")
    lines += [*body.lines, "  %i2 = add nuw nsw i64 %i, 1", "  %c = icmp eq i64 %i2, 5"]
    lines += ["  br i1 %c, label %done, label %loop", "done:"]
    for k in range(lanes):
        if chance.random() < 0.9:
            value = chance.choice([following[k], following[k], f"%s{k}"])
            lines += body.store(value, "%p0", k, f"%dp{k}")
    return "\n".join([*lines, "  ret void", "}"]) + "\n", kind


class _Body:
    def __init__(self, chance: random.Random, kind: str, lanes: int) -> None:
        self.chance, self.kind, self.lanes = chance, kind, lanes
        self.floating = kind in ("float", "double")
        self.lines: list[str] = []
        self.count = 0

    def turn(self) -> list[str]:
        """One turn of the loop: what every state is in the next one."""
        chance, kind, lanes = self.chance, self.kind, self.lanes
        self.lines += [f"  %row{n} = getelementptr inbounds [{lanes} x {kind}], ptr %p{n}, i64 %i" for n in (1, 2)]
        ops = [chance.choice(FLOATS if self.floating else WHOLE) for _ in range(chance.randint(1, 3))]
        shift, second, writes = chance.choice([0, 0, 0, 1]), chance.random() < 0.5, chance.random() < 0.4
        made = []
        for k in range(lanes):
            value = f"%x{k}"
            self.lines += self.load(value, "%row1", k, f"%xp{k}")
            if second:
                self.lines += self.load(f"%y{k}", "%row2", k, f"%yp{k}")
                value = self._new("mul", value, f"%y{k}")
            for n, op in enumerate(ops):
                other = f"%s{(k + shift) % lanes}" if n == 0 else chance.choice([f"%s{k}", "%s", f"%x{k}"])
                a, b = (other, value) if chance.random() < 0.8 else (value, other)
                value = self._new(op.removeprefix("f"), a, b)
            made.append(value)
        if writes:
            self.lines += [f"  %row0 = getelementptr inbounds [{lanes} x {kind}], ptr %p0, i64 %i"]
            for k, value in enumerate(made):
                self.lines += self.store(value, "%row0", k, f"%wp{k}")
        return made

    def _new(self, op: str, a: str, b: str) -> str:
        self.count += 1
        self.lines.append(f"  %v{self.count} = {'f' if self.floating else ''}{op} {self.kind} {a}, {b}")
        return f"%v{self.count}"

    def load(self, name: str, base: str, k: int, at: str) -> list[str]:
        size = SIZE[self.kind]
        place = f"  {at} = getelementptr inbounds i8, ptr {base}, i64 {k * size}"
        return [place, f"  {name} = load {self.kind}, ptr {at}, align {size}"]

    def store(self, value: str, base: str, k: int, at: str) -> list[str]:
        size = SIZE[self.kind]
        place = f"  {at} = getelementptr inbounds i8, ptr {base}, i64 {k * size}"
        return [place, f"  store {self.kind} {value}, ptr {at}, align {size}"]

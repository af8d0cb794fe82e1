"""The CPU that kernels are written for: how wide its vectors are, how many it has, and what its caches hold."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from heddle.errors import HeddleError
from heddle.native.llvm import binding

DEPTH = 768  # of a product that is always done at once
CHOICE = "HEDDLE_TILES_CPU"  # "x86-64-v3" makes a machine with AVX-512 write what one without it would run


@dataclass(frozen=True)
class Target:
    """What the generator knows about a CPU."""

    triple: str
    cpu: str
    features: str
    lanes: int  # fp32 numbers of a vector
    registers: int  # vectors
    l1: int = 32 << 10  # bytes
    l2: int = 1 << 20

    def has(self, feature: str) -> bool:
        """Whether a CPU has some instructions, by LLVM's name for them."""
        return f"+{feature}" in self.features.split(",")

    def register_rows(self, vectors: int) -> int:
        """Rows of a register tile that is `vectors` wide: the rest holds those vectors and one broadcast."""
        if self.registers >= 32:
            return {1: 16, 2: 12, 3: 8, 4: 6}[vectors]
        return {1: 8, 2: 6, 3: 4, 4: 2}[vectors]

    def block_rows(self, vectors: int, rows: int) -> int:
        """Rows of a register tile for a matrix of so many: blocks of one height, as far as they can be."""
        most = self.register_rows(vectors)
        return -(-rows // -(-rows // most))

    def panel_vectors(self, columns: int) -> int:
        """How many vectors wide the panels of a matrix are: what pads least, and of those what fills registers."""
        preferred = (3, 4, 2, 1) if self.registers >= 32 else (2, 3, 1)
        wide = -(-columns // self.lanes)

        def rank(vectors: int) -> tuple[bool, int, int]:
            padding = -wide % vectors
            return padding > wide // 16, padding if wide < 16 else 0, preferred.index(vectors)

        return min(preferred, key=rank)

    def depth_part(self, depth: int, vectors: int, taps: int = 0) -> int:
        """How much of the depth (of a convolution: how many taps) is multiplied at a time; all where that is little.

        A part of a panel is at work while the next one is fetched, beside the rows that it is multiplied with: they
        have to fit the second cache. Sums of an earlier part wait in the output.
        """
        most = max(DEPTH, int(0.12 * self.l2) // (4 * vectors * self.lanes))
        if taps:
            return -(-taps // -(-taps // max(1, most // depth)))
        even = -(-depth // -(-depth // most))
        return min(depth, -(-even // 4) * 4)


def from_features(triple: str, cpu: str, features: dict[str, bool], l1: int, l2: int) -> Target:
    """The vectors of a CPU from what LLVM says about it."""
    flat = ",".join(f"{'+' if on else '-'}{name}" for name, on in sorted(features.items()))
    if triple.startswith("x86_64"):
        if features.get("avx512f") and features.get("avx512vl"):
            return Target(triple, cpu, flat, 16, 32, l1, l2)
        if features.get("avx2") and features.get("fma"):
            return Target(triple, cpu, flat, 8, 16, l1, l2)
        raise HeddleError(
            f"This CPU ({cpu}) has no AVX2.",
            "Tiles are written for x86-64-v3 (AVX2 and FMA), x86-64-v4 (AVX-512) and 64-bit Arm.",
            "Run the module with PyTorch here.",
        )
    if triple.startswith(("aarch64", "arm64")):
        return Target(triple, cpu, flat, 4, 32, l1, l2)
    raise HeddleError(
        f"Tiles cannot be compiled for {triple}.",
        "Kernels are generated for 64-bit x86 and Arm.",
        "Run the module with PyTorch here.",
    )


@cache
def this_cpu() -> Target:
    """The CPU of this machine, or the smaller one that HEDDLE_TILES_CPU names."""
    llvm = binding()
    triple, l1, l2 = llvm.get_default_triple(), _cache_size(1, 32 << 10), _cache_size(2, 1 << 20)
    chosen = os.environ.get(CHOICE, "")
    if chosen:
        if chosen not in ("x86-64-v3", "x86-64-v4"):
            raise HeddleError(
                f"{CHOICE} is {chosen!r}.", "It sets which instructions kernels may use.", "Use x86-64-v3 or x86-64-v4."
            )
        wide = {"avx512f": True, "avx512vl": True} if chosen == "x86-64-v4" else {"avx2": True, "fma": True}
        target = from_features(triple, chosen, wide, l1, l2)
        return Target(triple, chosen, "", target.lanes, target.registers, l1, l2)
    return from_features(triple, llvm.get_host_cpu_name(), dict(llvm.get_host_cpu_features()), l1, l2)


def _cache_size(level: int, otherwise: int) -> int:
    """Bytes of the data cache of a core, as Linux tells it."""
    for index in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"):
        try:
            if (index / "level").read_text().strip() != str(level):
                continue
            if (index / "type").read_text().strip() == "Instruction":
                continue
            text = (index / "size").read_text().strip()
            return int(text.rstrip("KM")) << (20 if text.endswith("M") else 10)
        except (OSError, ValueError):
            continue
    return otherwise

"""Packs `fused.c` into `fused.ll`: `python -m heddle.models.kernels.make`. Only this needs clang."""

from __future__ import annotations

import re
from pathlib import Path

from heddle.lanes.ir import parse_llvm, read_source
from heddle.lanes.portfolio import Options, improve

HERE = Path(__file__).parent
FAMILY = "x86-64-v3"  # vectors of 256 bits, which other CPUs take in halves


def packed() -> str:
    """The kernels as the portfolio chose them, for whatever machine will compile them."""
    found = improve(read_source(HERE / "fused.c", FAMILY), Options(family=FAMILY), None, "fused.c")
    text = re.sub(r"^(?:target |; ModuleID|source_filename|!llvm\.ident).*\n", "", found.text, flags=re.M)
    text = re.sub(r' "(?:target-cpu|target-features|tune-cpu)"="[^"]*"', "", text)
    return str(parse_llvm(text))


if __name__ == "__main__":
    (HERE / "fused.ll").write_text(packed(), encoding="utf-8")

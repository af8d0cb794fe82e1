"""Compiles what is written in C into IR that ships: `python -m heddle.lanes.search.make`. Only this needs clang."""

from __future__ import annotations

import re
from pathlib import Path

from heddle.lanes.ir import parse_llvm, read_source

LANES = Path(__file__).parents[1]
SOURCES = (LANES / "packs" / "nearest.c", LANES / "policy" / "network.c", LANES / "search" / "search.c")


def compiled(source: Path) -> str:
    """Code for whatever machine will run it: small, because it is compiled again wherever it is used."""
    text = read_source(source, "x86-64", cflags=("-Os", "-fno-unroll-loops"))
    text = re.sub(r"^(?:target |; ModuleID|source_filename|!llvm\.ident).*\n", "", text, flags=re.M)
    text = re.sub(r' "(?:target-cpu|target-features|tune-cpu)"="[^"]*"', "", text)
    return str(parse_llvm(text))


if __name__ == "__main__":
    for path in SOURCES:
        path.with_suffix(".ll").write_text(compiled(path), encoding="utf-8")

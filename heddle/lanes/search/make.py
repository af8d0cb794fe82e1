"""Compiles `search.c` into `search.ll`: `python -m heddle.lanes.search.make`. Only this needs clang."""

from __future__ import annotations

import re
from pathlib import Path

from heddle.lanes.ir import parse_llvm, read_source

HERE = Path(__file__).parent


def compiled() -> str:
    """The search for whatever machine will run it: small, because it is compiled again wherever it is used."""
    text = read_source(HERE / "search.c", "x86-64", cflags=("-Os", "-fno-unroll-loops"))
    text = re.sub(r"^(?:target |; ModuleID|source_filename|!llvm\.ident).*\n", "", text, flags=re.M)
    text = re.sub(r' "(?:target-cpu|target-features|tune-cpu)"="[^"]*"', "", text)
    return str(parse_llvm(text))


if __name__ == "__main__":
    (HERE / "search.ll").write_text(compiled(), encoding="utf-8")

"""Where IR comes from: a file, C through clang, or a Numba function."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from heddle.errors import HeddleError
from heddle.files import read_text
from heddle.native.llvm import binding

COMPILED = (".c", ".cc", ".cpp", ".cxx", ".C")  # what clang reads
SLOWEST = 300  # seconds that clang may take
LARGEST = 16 << 20  # bytes of a file: LLVM takes a minute for them


def read_source(path: Path, cpu: str | None = None, cflags: tuple[str, ...] = ()) -> str:
    """The IR of a file: C and C++ through clang, anything else as it is."""
    if path.suffix in COMPILED and path.is_file():  # in whatever encoding: clang will say
        return from_c(path, cpu, cflags)
    return read_text(path, "C (.c), or LLVM IR as llvm-dis prints it (.ll)", LARGEST)


def includes(folder: Path) -> tuple[str, ...]:
    """What clang must be told so that the files of a folder find its headers."""
    return tuple(f"-I{p}" for p in sorted({p.parent for p in folder.rglob("*.h")}))


def from_c(path: Path, cpu: str | None, cflags: tuple[str, ...]) -> str:
    """What clang makes of C: optimized, not vectorized, and strict about floating point."""
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
        try:
            ran = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=SLOWEST)
        except subprocess.TimeoutExpired as error:
            raise HeddleError(
                f"clang did not finish {path} in {SLOWEST} seconds.",
                "Lanes start from the IR that clang makes of a C file.",
                "Give it in smaller files, or as IR: clang -O3 -S -emit-llvm.",
            ) from error
        if ran.returncode:
            errors = [line for line in ran.stderr.splitlines() if "error:" in line] or ran.stderr.splitlines()
            raise HeddleError(
                f"clang cannot compile {path}: {(errors or ['it gave no reason'])[0][:200]}",
                "Lanes start from the IR that clang makes of a C file.",
                "Pass what it needs after --cflags, such as --cflags=-Iinclude.",
            )
        return read_text(made, "LLVM IR", LARGEST)

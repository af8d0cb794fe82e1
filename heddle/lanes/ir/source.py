"""Where IR comes from: a file, C through clang, or a Numba function."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from heddle.errors import HeddleError
from heddle.lanes.ir.llvm import binding


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

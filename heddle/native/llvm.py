"""LLVM, by llvmlite: parsing and verifying IR, the machine to compile for, and code in this process's memory."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from heddle.errors import HeddleError, how_to_install


@cache
def binding() -> Any:
    """Llvmlite's binding, ready to write code for this machine; a user without it is told how to get it."""
    try:
        import llvmlite.binding as llvm
    except ImportError as error:
        raise HeddleError(
            "llvmlite is not installed.",
            "It brings LLVM, which compiles machine code for this CPU.",
            f"For lanes: {how_to_install('lanes')}; for tiles, '.[tiles]'.",
        ) from error
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm


def parse_llvm(text: str, source: str = "The IR") -> Any:
    """A verified module."""
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


def machine(cpu: str | None = None, features: str | None = None, level: int = 3) -> Any:
    """The machine to compile for: this one, or another CPU of its kind."""
    llvm = binding()
    if cpu is None:
        cpu, features = llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=cpu, features=features or "", opt=level, jit=True
    )


def load(module: Any, target: Any = None) -> Any:
    """A module's machine code in memory, for as long as what is returned here lives."""
    engine = binding().create_mcjit_compiler(module, target or machine())
    engine.finalize_object()
    return engine


def for_this_machine(text: str) -> str:
    """IR that says nothing about a machine, so that it is compiled for the one it will run on."""
    text = re.sub(r'^target (?:triple|datalayout) = ".*"\n', "", text, flags=re.M)
    return re.sub(r' ?"(?:target-cpu|tune-cpu|target-features)"="[^"]*"', "", text)

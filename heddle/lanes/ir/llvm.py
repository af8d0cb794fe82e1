"""LLVM itself, by llvmlite: parsing, verifying, passes, and the machine to compile for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import Any

from heddle.errors import HeddleError, how_to_install
from heddle.lanes.child import in_child

PARSED, OPTIMISED, DONE = b"p", b"o", b"\0"  # how far LLVM got
SLOWEST = 600  # seconds of CPU time for that: the largest files take a minute
_ODD = re.compile(r'^(?:  %"[^"]*" = |"[^"]*":|define .* %"[^"]*"[,)])', re.M)  # values and labels with quotes


def binding() -> Any:
    """Llvmlite's binding, made ready; a user without it is told how to get it."""
    try:
        import llvmlite.binding as llvm
    except ImportError as error:
        raise HeddleError(
            "Lanes need llvmlite, which is not installed.",
            "It reads and compiles LLVM IR.",
            f"To get it: {how_to_install('lanes')}.",
        ) from error
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm


def parse_foreign(text: str, source: str = "The IR") -> Any:
    """A verified module of what a user gives: LLVM ends the process over what it cannot do, so a child tries."""
    llvm = binding()
    done = in_child(partial(_tried, llvm, text), SLOWEST)
    if not done:
        raise HeddleError(
            f"{source} is not IR: LLVM's parser crashes on it.",
            "LLVM reads what LLVM wrote; of other text it does not notice every mistake.",
            f"Make it with clang {llvm.llvm_version_info[0]}: clang -O1 -S -emit-llvm kernel.c, or give the C file.",
        )
    module = _opened(parse_llvm(text, source))
    if done != PARSED + OPTIMISED:
        raise _crashes("passes", source)
    return module


def _tried(llvm: Any, text: str) -> Iterator[bytes]:
    try:
        module = llvm.parse_assembly(text)
        module.verify()
    except RuntimeError:  # said when it is parsed again
        yield PARSED + OPTIMISED
        return
    yield PARSED
    optimise(_opened(module), slp=True)
    yield OPTIMISED


def _opened(module: Any) -> Any:
    """Without `optnone`, which clang -O0 writes: it would keep every pass away, and names with them."""
    text = str(module)  # as LLVM prints it: attributes are in groups of their own, one a line

    def opened(line: re.Match[str]) -> str:
        return re.sub(r'"[^"]*"|\boptnone ?', lambda m: m[0] if m[0][0] == '"' else "", line[0])

    changed = re.sub(r"^attributes #\d+ = .*$", opened, text, flags=re.M)
    return module if changed == text else parse_llvm(changed)


def assembly(text: str, source: str = "The IR") -> str:
    """A module for this machine, by a child as well: not all that LLVM reads and optimises it can compile."""
    written = in_child(lambda: [machine().emit_assembly(parse_llvm(text, source)).encode(), DONE], SLOWEST)
    if not written.endswith(DONE):
        raise _crashes("code generator", source)
    return written.removesuffix(DONE).decode()


def _crashes(what: str, source: str) -> HeddleError:
    return HeddleError(
        f"LLVM cannot compile {source} for this machine: its {what} crashes.",
        "Not everything that is IR can run everywhere: vectors of unknown width (vscale) need SVE, for example.",
        "Take out the functions that use what this machine does not have.",
    )


def parse_llvm(text: str, source: str = "The IR") -> Any:
    """A verified llvmlite module."""
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


def machine(cpu: str | None = None) -> Any:
    """The machine to compile for: this one, or another CPU of its kind."""
    llvm = binding()
    target = llvm.Target.from_default_triple()
    if cpu is None:
        features = llvm.get_host_cpu_features().flatten()
        return target.create_target_machine(cpu=llvm.get_host_cpu_name(), features=features, opt=3, jit=True)
    return target.create_target_machine(cpu=cpu, opt=3, jit=True)


def optimise(module: Any, *, slp: bool, target: Any = None, level: int = 3) -> None:
    """LLVM's own -O3 without its loop vectoriser and unroller, with or without its superword pass."""
    llvm = binding()
    tuning = llvm.create_pipeline_tuning_options(speed_level=level)
    tuning.loop_vectorization = False
    tuning.loop_interleaving = False
    tuning.loop_unrolling = False
    tuning.slp_vectorization = slp
    tuning.inlining_threshold = -1000  # functions stay what they are, so that each can be compared with itself
    builder = llvm.create_pass_builder(target or machine(), tuning)
    builder.getModulePassManager().run(module, builder)


def named(module: Any, target: Any = None) -> str:
    """The module's text with a plain name for every value and block: none that LLVM would print in quotes."""
    llvm = binding()
    builder = llvm.create_pass_builder(target or machine(), llvm.create_pipeline_tuning_options())
    manager = llvm.create_new_module_pass_manager()
    manager.add_instruction_namer_pass()
    manager.run(module, builder)
    text = str(module)
    if _ODD.search(text) is None:
        return text
    for function in module.functions:
        for argument in function.arguments:
            argument.name = "value"  # LLVM adds a number where there is one already
        for block in function.blocks:
            block.name = "block"
            for instruction in block.instructions:
                if str(instruction.type) != "void":
                    instruction.name = "value"
    return str(module)

"""What lanes ask of LLVM beside machine code: IR of users read without a crash, passes, and names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import Any

from heddle.errors import HeddleError
from heddle.lanes.child import in_child
from heddle.native.llvm import binding, machine, parse_llvm

PARSED, OPTIMIZED, DONE = b"p", b"o", b"\0"  # how far LLVM got
SLOWEST = 600  # seconds of CPU time for that: the largest files take a minute
_ODD = re.compile(r'^(?:  %"[^"]*" = |"[^"]*":|define .* %"[^"]*"[,)])', re.M)  # values and labels with quotes


def parse_foreign(text: str, source: str = "The IR") -> Any:
    """A verified module of what a user gives: LLVM ends the process over what it cannot do, so a child tries."""
    llvm = binding()
    done = in_child(partial(_tried, llvm, text), SLOWEST)
    if not done:
        raise HeddleError(
            f"{source} is not IR: LLVM's parser crashes on it.",
            "LLVM's parser is for IR that LLVM wrote; hand-written IR may crash it.",
            f"Make it with clang {llvm.llvm_version_info[0]}: clang -O1 -S -emit-llvm kernel.c, or give the C file.",
        )
    module = _opened(parse_llvm(text, source))
    if done != PARSED + OPTIMIZED:
        raise _crashes("passes", source)
    return module


def _tried(llvm: Any, text: str) -> Iterator[bytes]:
    try:
        module = llvm.parse_assembly(text)
        module.verify()
    except RuntimeError:  # said when it is parsed again
        yield PARSED + OPTIMIZED
        return
    yield PARSED
    optimize(_opened(module), slp=True)
    yield OPTIMIZED


def _opened(module: Any) -> Any:
    """Without `optnone`, which clang -O0 writes: it would keep every pass away, and names with them."""
    text = str(module)  # as LLVM prints it: attributes are in groups of their own, one a line

    def opened(line: re.Match[str]) -> str:
        return re.sub(r'"[^"]*"|\boptnone ?', lambda m: m[0] if m[0][0] == '"' else "", line[0])

    changed = re.sub(r"^attributes #\d+ = .*$", opened, text, flags=re.M)
    return module if changed == text else parse_llvm(changed)


def assembly(text: str, source: str = "The IR") -> str:
    """A module for this machine, by a child as well: not all that LLVM reads and optimizes it can compile."""
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


def optimize(module: Any, *, slp: bool, target: Any = None, level: int = 3) -> None:
    """LLVM's own -O3 without its loop vectorizer and unroller, with or without its superword pass."""
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

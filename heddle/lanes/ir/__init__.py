"""LLVM IR as statements: read, brought to one form, taken apart line by line, and put together again."""

from heddle.lanes.ir.llvm import assembly, named, optimize, parse_foreign
from heddle.lanes.ir.module import BasicBlock, Function, Module, choose_functions, take_apart
from heddle.lanes.ir.source import COMPILED, includes, read_source
from heddle.lanes.ir.statement import (
    BINARY,
    BITS,
    CASTS,
    COMMUTATIVE,
    COMMUTATIVE_INTRINSICS,
    COMPARES,
    DIVISIONS,
    INTRINSICS,
    MEMORY_BYTES,
    NAME,
    PURE,
    Statement,
    parse_statement,
    split_commas,
    typed,
)
from heddle.lanes.ir.target import fitted
from heddle.native.llvm import binding, for_this_machine, load, machine, parse_llvm

__all__ = [
    "BINARY",
    "BITS",
    "CASTS",
    "COMMUTATIVE",
    "COMMUTATIVE_INTRINSICS",
    "COMPARES",
    "COMPILED",
    "DIVISIONS",
    "INTRINSICS",
    "MEMORY_BYTES",
    "NAME",
    "PURE",
    "BasicBlock",
    "Function",
    "Module",
    "Statement",
    "assembly",
    "binding",
    "choose_functions",
    "fitted",
    "for_this_machine",
    "includes",
    "load",
    "machine",
    "named",
    "optimize",
    "parse_foreign",
    "parse_llvm",
    "parse_statement",
    "read_source",
    "split_commas",
    "take_apart",
    "typed",
]

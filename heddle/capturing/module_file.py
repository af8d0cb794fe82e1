"""`module.py:function`: a module and its inputs, from a user's file."""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from traceback import walk_tb
from types import ModuleType
from typing import Any

import torch

from heddle.errors import HeddleError, nearest
from heddle.files import check_readable, read_text, shown
from heddle.user_code import spec_of

LARGEST = 4 << 20  # bytes of a user's file

SOURCE = re.compile(r"(?P<file>.+\.py):(?P<function>\w+)")
HOW = "Name a Python file and a function in it that returns (module, example inputs): model.py:make."


def load_source(text: str) -> tuple[Any, tuple[Any, ...], Mapping[str, Any]]:
    """Call the function that a user named: it gives (module, inputs), or (module, inputs, keywords)."""
    match = SOURCE.fullmatch(text)
    if match is None:
        raise HeddleError(f"{shown(text)} names no function.", "A function must make the module that is placed.", HOW)
    path, function = Path(match["file"]), match["function"]
    check_readable(path, "a function that makes a module", LARGEST)
    loaded = _imported(path)
    make = getattr(loaded, function, None)
    if not callable(make):
        known = [name for name, value in vars(loaded).items() if callable(value) and not name.startswith("_")]
        raise HeddleError(
            f"{path} has no function '{function}'.", "It is called to get the module.", nearest(function, known)
        )
    try:
        made = make()
    except (Exception, SystemExit) as error:
        raise _failed(f"{function}() of {path} failed", path, error) from None
    if not isinstance(made, tuple) or len(made) not in (2, 3):
        raise HeddleError(
            f"{function}() of {path} returns a {type(made).__name__}.",
            "It should return a module with example inputs.",
            "Return (module, inputs), or (module, inputs, keywords); inputs is a tuple.",
        )
    module, inputs, keywords = (*made, {})[:3]
    for what, value, kinds, example in (
        ("module", module, torch.nn.Module, "an instance of torch.nn.Module"),
        ("inputs", inputs, tuple | list, "a tuple, such as (x,)"),
        ("keywords", keywords, Mapping, "a dictionary"),
    ):
        if not isinstance(value, kinds):
            raise HeddleError(
                f"{function}() of {path} returns a {type(value).__name__} as its {what}.",
                "It should return (module, inputs), or (module, inputs, keywords).",
                f"Return {example} there.",
            )
    return module, inputs, keywords


def load_loss(text: str, source: str) -> Callable[[Any, Any], Any]:
    """A loss by its name: a function of the file that makes the module, of torch.nn.functional, or of another file."""
    match = SOURCE.fullmatch(text) or SOURCE.fullmatch(source)
    assert match is not None
    name = match["function"] if SOURCE.fullmatch(text) else text
    path = Path(match["file"])
    check_readable(path, "a loss", LARGEST)
    found = getattr(_imported(path), name, None)
    if found is None and not SOURCE.fullmatch(text):
        found = getattr(torch.nn.functional, name, None)
    if not callable(found):
        losses = [each for each in dir(torch.nn.functional) if each.endswith(("_loss", "entropy", "divergence"))]
        raise HeddleError(
            f"There is no loss '{name}'.",
            f"Neither {shown(path)} nor torch.nn.functional has such a function.",
            nearest(name, {*losses, *functions_of(path)}),
        )
    loss: Callable[[Any, Any], Any] = found
    return loss


def functions_of(path: Path) -> list[str]:
    """The functions of a user's file that need no arguments, without running it; empty where it is no Python."""
    try:
        tree = ast.parse(read_text(path, "a function that makes a module", LARGEST))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    return [
        each.name
        for each in tree.body
        if isinstance(each, ast.FunctionDef)
        and not each.name.startswith("_")
        and len(each.args.defaults) == len(each.args.args) + len(each.args.posonlyargs)
    ]


def _imported(path: Path) -> ModuleType:
    spec = spec_of(path.stem, path)
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.parent))  # as if it were run itself
    try:
        spec.loader.exec_module(loaded)
    except (Exception, SystemExit) as error:
        raise _failed(f"{path} cannot be imported", path, error) from None
    finally:
        sys.path.pop(0)
    return loaded


def _failed(what: str, path: Path, error: BaseException) -> HeddleError:
    """Say which line of the user's file it was."""
    file = str(path.absolute())
    lines = [number for frame, number in walk_tb(error.__traceback__) if frame.f_code.co_filename == file]
    if isinstance(error, SyntaxError) and error.lineno is not None:
        lines = [error.lineno]
    if isinstance(error, SystemExit):
        how = f"it asks Python to exit, with {error.code!r}"
    else:
        how = f"{type(error).__name__}: {error}"
    return HeddleError(
        f"{what}: {how}",
        f"It was raised at line {lines[-1]}." if lines else "It was raised while Python read the file.",
        f"Try it alone: python {shown(path)}",
    )

"""`module.py:function`: a module and its inputs, from a user's file."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from traceback import walk_tb
from typing import Any

from heddle.errors import HeddleError, nearest

SOURCE = re.compile(r"(?P<file>.+\.py):(?P<function>\w+)")


def load_source(text: str) -> tuple[Any, tuple[Any, ...], Mapping[str, Any]]:
    """Call the function that a user named: it gives (module, inputs), or (module, inputs, keywords)."""
    match = SOURCE.fullmatch(text)
    assert match is not None
    path, function = Path(match["file"]), match["function"]
    if not path.is_file():
        raise HeddleError(f"There is no file {path}.", "", "Name a Python file and a function in it: model.py:make.")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.parent))  # as if it were run itself
    try:
        spec.loader.exec_module(loaded)
    except Exception as error:
        raise _failed(f"{path} cannot be imported", path, error) from None
    finally:
        sys.path.pop(0)
    make = getattr(loaded, function, None)
    if not callable(make):
        known = [name for name, value in vars(loaded).items() if callable(value) and not name.startswith("_")]
        raise HeddleError(f"{path} has no function '{function}'.", "", nearest(function, known))
    try:
        made = make()
    except Exception as error:
        raise _failed(f"{function}() of {path} failed", path, error) from None
    if not isinstance(made, tuple) or len(made) not in (2, 3):
        raise HeddleError(
            f"{function}() of {path} gives a {type(made).__name__}.",
            "What is placed is a module with example inputs.",
            "Return (module, inputs), or (module, inputs, keywords); inputs is a tuple.",
        )
    module, inputs, *keywords = made
    return module, inputs, keywords[0] if keywords else {}


def _failed(what: str, path: Path, error: Exception) -> HeddleError:
    """Say which line of the user's file it was."""
    file = str(path.absolute())
    lines = [number for frame, number in walk_tb(error.__traceback__) if frame.f_code.co_filename == file]
    return HeddleError(
        f"{what}: {type(error).__name__}: {error}", f"That was at line {lines[-1]} of it." if lines else ""
    )

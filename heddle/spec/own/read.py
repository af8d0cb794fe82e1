"""`module = "mine.py:make"` in a job file.

The file is run once to describe the module. A job that a run wrote has the description, and nothing is run to read it.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from heddle.errors import HeddleError, how_to_install
from heddle.spec.own.model import OwnModel
from heddle.spec.tables import build, check_values, wrong_type

DESCRIBES = "heddle.models.own.describe"  # by its name: this room knows no PyTorch, and only running code can tell
GIVEN = ("module", "name", "vocab", "sequence")  # what a job file says of such a model; the rest is found


def own_model(table: dict[str, Any], folder: Path = Path()) -> OwnModel:
    """The model of a table with `module`; what the table does not describe, its file does."""
    if not isinstance(table["module"], str):
        raise wrong_type("model.module", table["module"], "a string")
    path, found, function = table["module"].rpartition(":")
    if not found or not path.endswith(".py") or not function.isidentifier():
        raise HeddleError(
            f"model.module = {table['module']!r} does not name a function of a Python file.",
            "The file is run, and its function makes the module.",
            'Write it as module = "mine.py:make".',
        )
    place = (folder / path).absolute()
    table = table | {"module": f"{place}:{function}"}
    if "block_parameters" in table:  # a run wrote it
        return build(OwnModel, table, "model")
    if other := [key for key in table if key not in GIVEN]:
        raise HeddleError(
            f"[model] has 'module' and also {other[0]!r}.",
            "The module says itself what it is.",
            f"Leave {other[0]} out; only vocab, sequence and name may be given.",
        )
    check_values(OwnModel, table, "model")  # the module is run with these
    if not place.is_file():
        raise HeddleError(f"{place} is not a file.", "model.module names it.", "Is the path relative to the job file?")
    try:
        describes = importlib.import_module(DESCRIBES)
    except ModuleNotFoundError as error:
        raise HeddleError(
            f"model.module = {table['module']!r} needs {error.name}, which is not installed.",
            "What a module is, only running its code tells.",
            f"Install it: {how_to_install('train')}.",
        ) from error
    return build(OwnModel, describes.described(table), "model")

"""The user's Python file: `make`, `loss`, and what else it may say of its module."""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor, nn

from heddle.errors import HeddleError, nearest
from heddle.files import read_bytes
from heddle.user_code import spec_of

ROLES = ("column", "row", "vocabulary", "partial", "replicated")
KEYS = ("blocks", *ROLES, "divide")


class OwnBatch(NamedTuple):
    """What a loss is given: samples of tokens, and what follows each."""

    ids: Tensor  # [samples, tokens]
    targets: Tensor  # the same shape; -100 where nothing is learned
    lengths: tuple[tuple[int, ...], ...] = ()  # of the documents of each sample, where samples hold several


@dataclass(frozen=True)
class OwnFile:
    """What a file gives."""

    path: Path
    function: str
    make: Callable[..., nn.Module]
    loss: Callable[[nn.Module, OwnBatch], tuple[Tensor, Any]]
    digest: str  # twelve hex digits that name what is in the file
    blocks: str | None = None  # "layers.*"
    patterns: Mapping[str, Sequence[str]] = field(default_factory=dict)  # by role
    divide: tuple[str, ...] | None = None  # attributes that tensor ranks share
    initialize: Callable[[nn.Module, str], None] | None = None

    @property
    def shrinks(self) -> bool:
        """Whether its function makes a small module when asked to."""
        return "small" in inspect.signature(self.make).parameters


def read_file(module: str) -> OwnFile:
    """Run the file of FILE:FUNCTION, once in a process while it stays the same."""
    place, _, function = module.rpartition(":")
    path = Path(place)
    if not path.is_file():
        raise HeddleError(f"{path} is not a file.", "model.module names it.", "Is the path relative to the job file?")
    return _read(path, function, hashlib.sha256(read_bytes(path, "a Python file that makes a module")).hexdigest())


@cache
def _read(path: Path, function: str, digest: str) -> OwnFile:
    found = _run(path)
    functions = [each for each, value in vars(found).items() if inspect.isfunction(value)]
    for name, what in ((function, "makes the module"), ("loss", "gives the sum of losses and their count")):
        if not callable(getattr(found, name, None)):
            raise HeddleError(
                f"{path} has no function '{name}'.",
                f"It {what}.",
                nearest(name, functions) if functions else f"It defines no function; write def {name}(…).",
            )
    plan = getattr(found, "plan", {})
    _check_plan(path, plan)
    patterns = {role: tuple(plan.get(role, ())) for role in ROLES if role in plan}
    divide = tuple(plan["divide"]) if "divide" in plan else None
    makes, loss = getattr(found, function), found.loss
    initialize = getattr(found, "initialize", None)
    return OwnFile(path, function, makes, loss, digest[:12], plan.get("blocks"), patterns, divide, initialize)


def _run(path: Path) -> Any:
    name = f"heddle_own_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    spec = spec_of(name, path)
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickle look it up there
    sys.path.insert(0, str(path.parent))  # what it imports from beside itself
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # a file that exits would end Heddle without a word
        raise failed(path, "cannot be run", error) from error
    finally:
        sys.path.remove(str(path.parent))
    return module


def _check_plan(path: Path, plan: object) -> None:
    if not isinstance(plan, dict):
        raise HeddleError(
            f"{path}: plan is not a dictionary.", "It has lists of patterns.", 'plan = {"blocks": "layers.*"}'
        )
    for key, value in plan.items():
        if key not in KEYS:
            raise HeddleError(
                f"{path}: plan has no key '{key}'.", "Heddle never ignores a key.", nearest(str(key), KEYS)
            )
        words = [value] if key == "blocks" else value
        if not isinstance(words, list | tuple) or not all(isinstance(word, str) for word in words):
            raise HeddleError(
                f"{path}: plan['{key}'] = {value!r} has the wrong type.",
                "It is one pattern." if key == "blocks" else "It is a list of patterns.",
                'For example "layers.*".' if key == "blocks" else f'For example ["{value}"].',
            )


def failed(path: Path, what: str, error: BaseException) -> HeddleError:
    """What the user's code raised, with the line of it that did."""
    lines = [frame for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename) == path]
    where = f", line {lines[-1].lineno}" if lines else ""
    words = f"it exits ({error})" if isinstance(error, SystemExit) else f"{type(error).__name__}: {error}"
    return HeddleError(
        f"{path} {what}: {words}",
        f"The code of this file runs because [model] module names it{where}.",
        "Try it by itself: build the module under torch.device('meta') and call the loss.",
    )

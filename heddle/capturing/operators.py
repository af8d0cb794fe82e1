"""Operators that are not PyTorch's own: who registered them, so that the processes of stages can do so as well.

A process that runs a stage knows the operators of PyTorch. Those of a library, such as the experts of a Mixtral from
transformers, are there once the module is imported that registers them; in whatever order it was, ours has been.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from heddle.errors import HeddleError
from heddle.user_code import spec_of

OWN = Path(torch.__file__).parent


@dataclass(frozen=True)
class Registrar:
    """A Python module that registers operators when it is imported."""

    module: str
    file: str | None


@dataclass(frozen=True)
class Custom:
    """The custom operators of a stage, and what brings them."""

    operators: tuple[tuple[str, str], ...]  # namespace and name
    registrars: tuple[Registrar, ...]
    libraries: tuple[str, ...]  # compiled ones


def custom_operators(targets: Iterable[Any]) -> Custom:
    """Of the calls of a graph, those that PyTorch alone does not know."""
    found: dict[tuple[str, str], Registrar | None] = {}
    for target in targets:
        if isinstance(target, torch._ops.OpOverload):
            namespace, name = target._schema.name.split("::")
            if (namespace, name) not in found:
                found[namespace, name] = _registrar(namespace, name)
    custom = {operator: registrar for operator, registrar in found.items() if registrar is not None}
    libraries = sorted(torch.ops.loaded_libraries) if custom else []
    return Custom(tuple(custom), tuple(dict.fromkeys(custom.values())), tuple(map(str, libraries)))


def _registrar(namespace: str, name: str) -> Registrar | None:
    """The module that registered an operator; None for one of PyTorch's."""
    defined = torch._library.custom_ops.OPDEFS.get(f"{namespace}::{name}")
    if defined is not None:  # torch.library.custom_op
        return _outside(defined._init_fn.__module__)
    # torch.library.Library notes where it was made.
    place = re.search(r"^debug: registered at (.+\.py):\d+", torch._C._dispatch_dump(f"{namespace}::{name}"), re.M)
    if place is not None:
        files = {getattr(module, "__file__", None): known for known, module in list(sys.modules.items())}
        known = files.get(place[1])
        return _outside(known) if known is not None else _at(place[1])
    # A compiled library is loaded by the package of its name.
    return _outside(namespace) if namespace in sys.modules else None


def _at(file: str) -> Registrar | None:
    """A file that was run, but is no module that Python knows."""
    return None if OWN in Path(file).parents else Registrar(Path(file).stem, file)


def _outside(module: str) -> Registrar | None:
    if module.partition(".")[0] == "torch":
        return None
    loaded = sys.modules.get(module)
    file = getattr(loaded, "__file__", None)
    return Registrar(module, None if file is None else str(Path(file).absolute()))


def register(custom: Custom) -> None:
    """Make a stage's operators known to this process."""
    if not _missing(custom):
        return
    for library in custom.libraries:
        torch.ops.load_library(library)
    for registrar in custom.registrars:
        if _missing(custom):
            _import(registrar)
    if missing := _missing(custom):
        namespace, name = missing[0]
        raise HeddleError(
            f"The operator {namespace}::{name} is not known in a process that runs a stage.",
            "It is registered by code that this process cannot import, such as a notebook or `python -c`.",
            "Define it in a separate Python module, and import that where the torch module is made.",
        )


def _missing(custom: Custom) -> list[tuple[str, str]]:
    return [(space, name) for space, name in custom.operators if not hasattr(getattr(torch.ops, space), name)]


def _import(registrar: Registrar) -> None:
    try:
        importlib.import_module(registrar.module)
    except ImportError:
        if registrar.file is None or not Path(registrar.file).is_file():
            return
        # A file that was loaded by its path, as `heddle place FILE.py:FUNCTION` does.
        spec = spec_of(registrar.module, registrar.file)
        assert spec.loader is not None
        loaded = importlib.util.module_from_spec(spec)
        sys.modules[registrar.module] = loaded
        sys.path.insert(0, str(Path(registrar.file).parent))
        try:
            spec.loader.exec_module(loaded)
        finally:
            sys.path.pop(0)

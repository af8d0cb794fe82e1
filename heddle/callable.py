"""A package that can be called: `heddle.plan(job)` searches, `heddle.plan.search` lies in the package."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any


def make_callable(package: str, module: str, name: str) -> None:
    """Let calls of a package go to a function of one of its modules, which is imported when it is first called."""

    class Callable(ModuleType):
        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            return getattr(import_module(module), name)(*args, **kwargs)

    sys.modules[package].__class__ = Callable

"""Python files of users, run as modules."""

from __future__ import annotations

import importlib.util
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType


class _FromSource(SourceFileLoader):
    """Reads the source every time.

    Python keeps bytecode by the size of a file and the second it was written in, and an edit can leave both as they
    were.
    """

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)


def spec_of(name: str, path: str | Path) -> ModuleSpec:
    """How to load a file as the module `name`; writes nothing beside it."""
    path = str(Path(path).absolute())
    spec = importlib.util.spec_from_file_location(name, path, loader=_FromSource(name, path))
    assert spec is not None
    return spec

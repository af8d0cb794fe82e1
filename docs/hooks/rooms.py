"""The rooms of Heddle: what the map says of each, and what each imports, read from its files."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

from heddle.rooms import ROOMS

REPOSITORY = Path(__file__).parents[2]


@dataclass(frozen=True)
class Room:
    """A package, with the other rooms and whether PyTorch is mentioned in its imports."""

    name: str
    about: str
    imports: tuple[str, ...]
    torch: bool


def rooms() -> list[Room]:
    """In the order of the map, which is that of imports."""
    read = {name: _imported(REPOSITORY / "heddle" / name) for name in ROOMS}
    return [
        Room(
            name,
            about,
            tuple(other for other in ROOMS if other != name and f"heddle.{other}" in read[name]),
            "torch" in read[name],
        )
        for name, about in ROOMS.items()
    ]


def _imported(folder: Path) -> set[str]:
    """What the files of a folder import, wherever: heddle's own by room, others by their first word."""
    modules = set()
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                modules |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                modules.add(node.module)
    return {".".join(name.split(".")[: 2 if name.startswith("heddle.") else 1]) for name in modules}

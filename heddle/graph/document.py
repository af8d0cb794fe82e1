"""Graphs as they are published: a JSON document with nodes, edges and numbers. Nothing in it is taken on trust."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from heddle.errors import HeddleError, shorten

MOST_NODES = 20_000  # a table of nodes by nodes still fits into memory
MOST_EDGES = 500_000
LONGEST = 1e9  # a time: sums over all nodes stay below what the solvers call impossible
LARGEST = 1e18  # bytes


class Document:
    """A parsed document and what it is called, for messages."""

    def __init__(self, content: Any, what: str) -> None:
        self.what = what
        self.content = self.table(content, "the document")

    def refuse(self, found: str, rule: str, hint: str) -> HeddleError:
        """A mistake in this document."""
        return HeddleError(f"{self.what}: {found}", rule, hint)

    def table(self, value: Any, where: str) -> Mapping[str, Any]:
        """An object with keys."""
        if not isinstance(value, Mapping):
            raise self.refuse(
                f"{where} is {shorten(value)}.", "It should be an object, written in braces: {…}.", f"Fix {where}."
            )
        return value

    def need(self, keys: tuple[str, ...], rule: str) -> None:
        """Refuse a document that lacks a key."""
        for key in keys:
            if key not in self.content:
                raise HeddleError(f"{self.what} lacks '{key}'.", rule, f"Add {key!r}; the manual shows the format.")

    def tables(self, key: str, most: int, thing: str) -> list[Mapping[str, Any]]:
        """A list of objects, such as the nodes."""
        found = self.content[key]
        if not isinstance(found, list):
            raise self.refuse(f"'{key}' is {shorten(found)}.", "It should be a list.", f"Write it as '{key}': […].")
        if len(found) > most:
            raise self.refuse(
                f"'{key}' has {len(found):,} entries.",
                f"Graphs of up to {most:,} {key} are read.",
                "Merge nodes that belong together, such as a layer's operators.",
            )
        return [self.table(item, f"{thing} {number}") for number, item in enumerate(found)]

    def identity(self, value: Any, where: str) -> str | int:
        """What a node is called by edges."""
        if type(value) not in (str, int):
            raise self.refuse(
                f"the id of {where} is {shorten(value)}.", "Ids are strings or whole numbers.", f"Fix {where}."
            )
        return value  # type: ignore[no-any-return]

    def number(self, value: Any, key: str, where: str, most: float = LONGEST) -> float:
        """A cost: a time, or bytes."""
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
            raise self.refuse(
                f"{key} = {shorten(value)} of {where} is not a cost.",
                f"Times and sizes are numbers, from 0 to {most:g}.",
                f"Fix {where}.",
            )
        return float(value)

    def whole(self, key: str, least: int, most: int) -> int:
        """A count of the whole document, such as of devices."""
        value = self.content[key]
        if isinstance(value, float) and value.is_integer() and math.isfinite(value):
            value = int(value)
        if type(value) is not int or not least <= value <= most:
            raise self.refuse(
                f"{key} = {shorten(value)} is not a count.",
                f"It is a whole number, from {least} to {most:,}.",
                f"Fix {key}.",
            )
        return value

    def flag(self, value: Any, key: str, where: str) -> bool:
        """Yes or no; the published files write 1 and 0."""
        if value not in (0, 1) or not isinstance(value, int | float):
            raise self.refuse(
                f"{key} = {shorten(value)} of {where} is neither yes nor no.",
                "It is true or false, or 1 or 0.",
                f"Fix {where}.",
            )
        return bool(value)

    def word(self, value: Any, where: str) -> str:
        """A name."""
        if not isinstance(value, str | int | float):
            raise self.refuse(f"the name of {where} is {shorten(value)}.", "Names are strings.", f"Fix {where}.")
        return str(value)

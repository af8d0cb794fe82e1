"""TOML tables to frozen dataclasses and back; errors name the key and the nearest one that exists."""

from __future__ import annotations

import dataclasses
import re
import types
import typing
from typing import Annotated, Any, TypeVar

from heddle.errors import HeddleError, closest, nearest, shorten
from heddle.files import read_foreign_json as read_foreign_json
from heddle.files import read_json as read_json
from heddle.files import read_toml as read_toml
from heddle.spec.ranges import FINITE, Range
from heddle.spec.rules.other_words import other_word
from heddle.spec.run_lengths import as_runs, expanded

T = TypeVar("T")

WHERE_SAID = {"where_said": True}  # of a field that a file has only where it differs from its default

EXAMPLES = {
    "true or false": "true",
    "a whole number": "8",
    "a number": "0.5",
    "a string": '"word"',
    "a table": "{ … }",
    "a list": "[1, 2]",
}

TOML_NAMES = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a string",
    dict: "a table",
}


def build(cls: type[T], table: dict[str, Any], where: str) -> T:
    """Make a dataclass from a table: every key known, every value of its type and in its range, nothing missing.

    `where` is the table's name in the file, such as "model"; it appears in every message.
    """
    fields = {key_of(field): field for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
    hints = typing.get_type_hints(cls, include_extras=True)
    for key in table:
        if key not in fields:
            usual = HeddleError(f"[{where}] has no key '{key}'.", "Heddle never ignores a key.", nearest(key, fields))
            raise other_word(where, key) or usual
    missing = [
        key
        for key, field in fields.items()
        if key not in table and field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    ]
    if missing:
        raise HeddleError(
            f"[{where}] lacks '{missing[0]}'.", f"Needed: {', '.join(missing)}.", f"Add {missing[0]} = … to [{where}]."
        )
    for key, value in table.items():
        _check_listed(fields[key], value, f"{where}.{key}")
    names = {key: fields[key].name for key in table}
    return cls(**{names[key]: _convert(hints[names[key]], value, f"{where}.{key}") for key, value in table.items()})


def check_values(cls: type[T], table: dict[str, Any], where: str) -> None:
    """Refuse values that are not of their field's type or out of its range, in a table that is not whole yet."""
    hints = typing.get_type_hints(cls, include_extras=True)
    for key, value in table.items():
        _convert(hints[key], value, f"{where}.{key}")


def _check_listed(field: dataclasses.Field[Any], value: Any, where: str) -> None:
    """Whoever writes one word for a list of known words is shown the list that was meant, with a word that is known."""
    words = field.metadata.get("words")
    if words and isinstance(value, str):
        raise wrong_type(where, value, "a list", f'["{closest(value, words) or words[0]}"]')


def key_of(field: dataclasses.Field[Any]) -> str:
    """What a field is called in a file: its name, unless its metadata has a word that Python keeps for itself."""
    return str(field.metadata.get("key", field.name))


def _convert(hint: Any, value: Any, where: str) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        allowed = next((each for each in arguments[1:] if isinstance(each, Range)), FINITE)
        return _convert_number(arguments[0], value, where, allowed)
    if hint in (int, float):
        return _convert_number(hint, value, where, FINITE)
    if origin in (typing.Union, types.UnionType):
        return _convert_union([option for option in arguments if option is not type(None)], value, where)
    if origin is typing.Literal:
        # types too, because in Python 1 == 1.0 == True
        if (type(value), value) not in [(type(argument), argument) for argument in arguments]:
            words = [str(argument) for argument in arguments]
            raise HeddleError(
                f"{where} = {shorten(value)} is not known.",
                f"It must be one of a few {'words' if isinstance(arguments[0], str) else 'numbers'}.",
                nearest(str(value), words)
                if isinstance(value, str) == isinstance(arguments[0], str)
                else f"Write one of {', '.join(words)}, {'in' if isinstance(arguments[0], str) else 'without'} quotes.",
            )
        return value
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise wrong_type(where, value, "a list", f"[{value!r}]" if arguments[0] is str is type(value) else None)
        entry = arguments[0]
        if (
            entry is int
            or typing.get_origin(entry) is typing.Literal
            or typing.get_args(entry)[:1] in ((int,), (float,))
        ):
            return tuple(_convert(entry, item, here) for item, here in expanded(value, where))
        return tuple(_convert(entry, item, f"{where}[{i}]") for i, item in enumerate(value))
    if origin is dict:
        if not isinstance(value, dict):
            raise wrong_type(where, value, "a table")
        return dict(value)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        if not isinstance(value, dict):
            raise wrong_type(where, value, "a table")
        return build(hint, value, where)
    if not isinstance(value, hint):
        raise wrong_type(where, value, TOML_NAMES.get(hint, str(hint)))
    return value


def _convert_number(hint: type[float], value: Any, where: str, allowed: Range) -> float:
    # bool is a subclass of int in Python; in a job file `layers = true` is a mistake
    if isinstance(value, bool) or not isinstance(value, (int, float) if hint is float else int):
        raise wrong_type(where, value, TOML_NAMES[hint])
    allowed.check(where, value)  # before it is converted: a whole number may be too large for a float
    return hint(value)


def _convert_union(options: list[Any], value: Any, where: str) -> Any:
    """A list is converted to the option that is a list, a table to the one that is a record, else to the other."""
    is_list, is_table = isinstance(value, list | tuple), isinstance(value, dict)
    alike = [
        option
        for option in options
        if (typing.get_origin(option) is tuple) == is_list and dataclasses.is_dataclass(option) == is_table
    ]
    return _convert((alike or options)[0], value, where)


def wrong_type(where: str, value: Any, expected: str, example: str | None = None) -> HeddleError:
    if expected == "a string" and type(value) is int:
        example = f'"{value}"'
    return HeddleError(
        f"{where} = {shorten(value)} has the wrong type.",
        f"It must be {expected}.",
        f"For example {where.rpartition('.')[2]} = {example or EXAMPLES.get(expected, '…')}.",
    )


def to_table(value: Any) -> dict[str, Any]:
    """The reverse of `build`: a plain table, without what is None (TOML has no null)."""
    return {
        key_of(field): _plain(getattr(value, field.name))
        for field in dataclasses.fields(value)
        if getattr(value, field.name) is not None
        and not (field.metadata.get("where_said") and getattr(value, field.name) == field.default)
    }


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return to_table(value)
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


def to_toml(tables: dict[str, Any]) -> str:
    """TOML that people read and compare: short lists on one line, what repeats in lists of layers or chunks as runs."""
    import tomli_w

    def joined(match: re.Match[str]) -> str:
        parts = match[2].removesuffix("\n").split("\n")  # a path may hold what else Python takes for the end of a line
        line = f"{match[1]}[{', '.join(part.strip().removesuffix(',') for part in parts)}]"
        return line if len(line) <= 120 else match[0]

    for name in ("model", "plan"):
        if isinstance(table := tables.get(name), dict):
            tables = tables | {name: {k: as_runs(v) if isinstance(v, list) else v for k, v in table.items()}}
    return re.sub(r"^(\S+ = )\[\n((?:    [^\n\[\]{}]*,\n)+)\]", joined, tomli_w.dumps(tables), flags=re.MULTILINE)

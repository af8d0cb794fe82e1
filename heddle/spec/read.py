"""TOML tables to frozen dataclasses and back; errors name the key and the nearest one that exists."""

from __future__ import annotations

import dataclasses
import json
import re
import types
import typing
from pathlib import Path
from typing import Any, TypeVar

from heddle.errors import HeddleError, nearest
from heddle.spec.runs import as_runs, expanded

T = TypeVar("T")

TOML_NAMES = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a string",
    dict: "a table",
}


def read_toml(path: Path) -> dict[str, Any]:
    """Parse a TOML file; a missing or malformed one is the user's to mend, not a traceback."""
    import tomllib

    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        beside = sorted(str(other) for other in path.parent.glob("*.toml")) if path.parent.is_dir() else []
        hint = f"TOML files there: {', '.join(beside)}." if beside else f"Is the folder {path.parent} right?"
        raise HeddleError(f"There is no file {path}.", "A job is described in one TOML file.", hint) from None
    except IsADirectoryError:
        raise HeddleError(f"{path} is a folder.", "A job is described in one TOML file.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise HeddleError(
            f"{path} is not valid TOML.", f"{error}.", "Strings need quotes; tables are written [model]."
        ) from None


def read_json(path: Path, purpose: str) -> dict[str, Any]:
    """Parse a JSON object from a file, for people who expect it to be there."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        raise HeddleError(f"There is no file {path}.", f"It should hold {purpose}.") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise HeddleError(f"{path} is not valid JSON.", f"{error}.", f"It should hold {purpose}.") from None
    if not isinstance(value, dict):
        raise HeddleError(f"{path} is not a JSON object.", f"It should hold {purpose}.")
    return value


def build(cls: type[T], table: dict[str, Any], where: str) -> T:
    """Make a dataclass from a table: every key known, every value of its type, nothing missing.

    `where` is the table's name in the file, such as "model"; it appears in every message.
    """
    fields = {key_of(field): field for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
    hints = typing.get_type_hints(cls)
    for key in table:
        if key not in fields:
            raise HeddleError(f"[{where}] has no key '{key}'.", "Heddle never ignores a key.", nearest(key, fields))
    missing = [
        key
        for key, field in fields.items()
        if key not in table and field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    ]
    if missing:
        raise HeddleError(f"[{where}] lacks '{missing[0]}'.", f"Needed: {', '.join(missing)}.")
    names = {key: fields[key].name for key in table}
    return cls(**{names[key]: _convert(hints[names[key]], value, f"{where}.{key}") for key, value in table.items()})


def key_of(field: dataclasses.Field[Any]) -> str:
    """What a field is called in a file: its name, unless its metadata has a word that Python keeps for itself."""
    return str(field.metadata.get("key", field.name))


def _convert(hint: Any, value: Any, where: str) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return _convert_union([option for option in arguments if option is not type(None)], value, where)
    if origin is typing.Literal:
        # types too, because in Python 1 == 1.0 == True
        if (type(value), value) not in [(type(argument), argument) for argument in arguments]:
            words = [str(argument) for argument in arguments]
            raise HeddleError(f"{where} = {value!r} is not known.", "", nearest(str(value), words))
        return value
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise wrong_type(where, value, "a list")
        entry = arguments[0]
        if entry is int or typing.get_origin(entry) is typing.Literal:
            return tuple(_convert(entry, item, here) for item, here in expanded(value, where))
        return tuple(_convert(entry, item, f"{where}[{i}]") for i, item in enumerate(value))
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        if not isinstance(value, dict):
            raise wrong_type(where, value, "a table")
        return build(hint, value, where)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    # bool is a subclass of int in Python; in a job file `layers = true` is a mistake
    if not isinstance(value, hint) or (isinstance(value, bool) and hint is not bool):
        raise wrong_type(where, value, TOML_NAMES.get(hint, str(hint)))
    return value


def _convert_union(options: list[Any], value: Any, where: str) -> Any:
    """A list is converted to the option that is a list, anything else to the other one."""
    is_list = isinstance(value, list | tuple)
    alike = [option for option in options if (typing.get_origin(option) is tuple) == is_list]
    return _convert((alike or options)[0], value, where)


def wrong_type(where: str, value: Any, expected: str) -> HeddleError:
    return HeddleError(f"{where} = {value!r} has the wrong type.", f"It must be {expected}.")


def to_table(value: Any) -> dict[str, Any]:
    """The reverse of `build`: a plain table, without what is None (TOML has no null)."""
    return {
        key_of(field): _plain(getattr(value, field.name))
        for field in dataclasses.fields(value)
        if getattr(value, field.name) is not None
    }


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return to_table(value)
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


def to_toml(tables: dict[str, Any]) -> str:
    """TOML that people read and compare: short lists on one line, what repeats in a plan's lists as runs."""
    import tomli_w

    def joined(match: re.Match[str]) -> str:
        line = f"{match[1]}[{', '.join(part.strip().removesuffix(',') for part in match[2].splitlines())}]"
        return line if len(line) <= 120 else match[0]

    if isinstance(plan := tables.get("plan"), dict):
        tables = tables | {"plan": {k: as_runs(v) if isinstance(v, list) else v for k, v in plan.items()}}
    return re.sub(r"^(\S+ = )\[\n((?:    [^\n\[\]{}]*,\n)+)\]", joined, tomli_w.dumps(tables), flags=re.MULTILINE)

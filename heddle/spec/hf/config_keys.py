"""The keys of a Hugging Face `config.json`: read with their types, refused where they ask for unknown arithmetic.

A rule says how some fields of a ModelSpec stand in a configuration, in both directions. Rules that need what others
found come after them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from heddle.errors import HeddleError, nearest, shorten
from heddle.spec.model import BIASED, ModelSpec

T = TypeVar("T", int, float, bool, str)
Config = dict[str, Any]
Fields = dict[str, Any]  # of a ModelSpec

JSON_NAMES = {bool: "true or false", int: "a whole number", float: "a number", str: "a string"}


class KeyRule(Protocol):
    """How some fields stand in a configuration."""

    def read(self, config: Config, known: Fields) -> Fields:
        """The fields that a configuration states; `known` are those that earlier rules have read."""
        ...

    def write(self, spec: ModelSpec) -> Config:
        """The keys of a model. A model that they cannot express is told by reading them again."""
        ...


@dataclass(frozen=True)
class Key:
    """One field, one key."""

    field: str
    key: str
    kind: type[Any] = int
    default: Any = None  # where the key is absent or null; a function gets what is known; None: the key is needed
    to_field: Callable[[Any], Any] | None = None
    to_key: Callable[[Any], Any] | None = None
    written: str = ""  # a property of the model that is written in the field's place

    def read(self, config: Config, known: Fields) -> Fields:
        default = self.default(known) if callable(self.default) else self.default
        value = get(config, self.key, self.kind, default)
        return {self.field: value if self.to_field is None else self.to_field(value)}

    def write(self, spec: ModelSpec) -> Config:
        value = getattr(spec, self.written or self.field)
        if isinstance(value, tuple):  # one of the values: that layers differ is then told by reading it again
            value = max(value)
        return {self.key: value if self.to_key is None else self.to_key(value)}


@dataclass(frozen=True)
class Optional:
    """A number of which null, or nothing, means that there is none."""

    field: str
    key: str
    default: float | None = None

    def read(self, config: Config, known: Fields) -> Fields:
        absent = self.key not in config and self.default is not None
        return {self.field: self.default if absent else get(config, self.key, float, 0.0)}

    def write(self, spec: ModelSpec) -> Config:
        return {self.key: getattr(spec, self.field) or None}


class Fixed:
    """Fields that are the same in every model of the family, or follow from others."""

    def __init__(self, **values: Any) -> None:
        self.values = values

    def read(self, config: Config, known: Fields) -> Fields:
        return {name: value(known) if callable(value) else value for name, value in self.values.items()}

    def write(self, spec: ModelSpec) -> Config:
        return {}


@dataclass(frozen=True)
class Only:
    """A key with one known value; any other asks for arithmetic that Heddle does not have."""

    key: str
    known: str | bool | float | None
    feature: str = ""  # that another value would need

    def read(self, config: Config, known: Fields) -> Fields:
        if config.get(self.key, self.known) not in (None, self.known):
            raise HeddleError(
                f"'{self.key}' = {as_json(config[self.key])} is not known.",
                f"Heddle's transformer has no {self.feature}."
                if self.feature
                else "Heddle refuses what it would compute differently.",
                f"Known: {as_json(self.known)}.",
            )
        return {}

    def write(self, spec: ModelSpec) -> Config:
        return {self.key: self.known}


# the names that transformers has for activations; the first of several is written
ACTIVATIONS = {
    "gelu_pytorch_tanh": "gelu",
    "gelu_new": "gelu",
    "gelu": "gelu-exact",
    "relu": "relu",
    "relu2": "relu2",
    "silu": "silu",
    "swish": "silu",
}
GATED = {"silu": "swiglu", "gelu": "geglu", "gelu-exact": "geglu-exact", "relu": "reglu"}


@dataclass(frozen=True)
class Activates:
    """The activation, of a plain MLP or of a gated one."""

    key: str = "hidden_act"
    gated: bool = True
    default: str | None = "silu"
    written: str = "gelu_pytorch_tanh"  # of the two names of one function

    def read(self, config: Config, known: Fields) -> Fields:
        word = get(config, self.key, str, self.default)
        plain = ACTIVATIONS.get(word)
        found = GATED.get(plain or "") if self.gated else plain
        if found is None:
            words = [name for name, ours in ACTIVATIONS.items() if ours in GATED or not self.gated]
            raise HeddleError(
                f"'{self.key}' = {as_json(word)} is not known.",
                f"Heddle's {'gated ' * self.gated}MLPs have no such activation.",
                nearest(word, words),
            )
        return {"activation": found}

    def write(self, spec: ModelSpec) -> Config:
        plain = next((word for word, gated in GATED.items() if gated == spec.activation), spec.activation)
        if plain == "gelu":
            return {self.key: self.written}
        # an activation that no file can name is told by reading another
        return {self.key: next((name for name, ours in ACTIVATIONS.items() if ours == plain), "silu")}


@dataclass(frozen=True)
class Biases:
    """Which linear layers have a bias: keys with the parts they speak of, and whether they do if absent."""

    parts: dict[str, tuple[str, ...]]
    always: tuple[str, ...] = ()
    default: tuple[str, ...] = ()  # keys that are true where absent
    states = ("bias",)

    def read(self, config: Config, known: Fields) -> Fields:
        values = {key: get(config, key, bool, key in self.default) for key in self.parts}
        parts = {*self.always, *(part for key, value in values.items() if value for part in self.parts[key])}
        word = next((word for word, biased in BIASED.items() if {*biased} == parts), None)
        if word is None:
            said = " with ".join(f"{key} = {as_json(value)}" for key, value in values.items())
            raise HeddleError(
                f"{said} cannot be expressed.",
                f"A Heddle model's biases are one of {', '.join(BIASED)}.",
                f"Set {' and '.join(self.parts)} to the same value.",
            )
        return {"bias": word}

    def write(self, spec: ModelSpec) -> Config:
        return {key: all(part in spec.biased for part in parts) for key, parts in self.parts.items()}


@dataclass(frozen=True)
class Dropouts:
    """Keys that all state the one dropout, after the embedding and on both residual branches."""

    keys: tuple[str, ...]
    default: float = 0.0
    attention: str | None = None  # of attention's own dropout, which Heddle leaves out: written as 0

    def read(self, config: Config, known: Fields) -> Fields:
        values = [get(config, key, float, self.default) for key in self.keys]
        if len({*values}) > 1:
            said = " and ".join(f"{key} = {value}" for key, value in zip(self.keys, values, strict=True))
            either = " or ".join(
                f"{'both' if len(values) == 2 else 'all'} to {value}" for value in dict.fromkeys(values)
            )
            raise HeddleError(
                f"{said} differ.",
                "A Heddle model has one dropout, after the embedding and on both residual branches.",
                f"Set {either}.",
            )
        return {"dropout": values[0]}

    def write(self, spec: ModelSpec) -> Config:
        return dict.fromkeys(self.keys, spec.dropout) | ({self.attention: 0.0} if self.attention else {})


@dataclass(frozen=True)
class KvHeads:
    """Key/value heads; an absent key takes the family's default, a null means "as many as heads"."""

    default: int | None = None
    key: str = "num_key_value_heads"
    states = ("kv_heads",)

    def read(self, config: Config, known: Fields) -> Fields:
        heads: int = known["heads"]
        absent = heads if self.key in config else self.default or heads
        return {"kv_heads": get(config, self.key, int, absent)}

    def write(self, spec: ModelSpec) -> Config:
        return {self.key: spec.kv_heads}


@dataclass(frozen=True)
class KeyChoice:
    """A key whose values each stand for some fields."""

    key: str
    values: dict[Any, Fields]
    default: Any
    kind: type[Any] = bool

    def read(self, config: Config, known: Fields) -> Fields:
        return self.values[get(config, self.key, self.kind, self.default)]

    def write(self, spec: ModelSpec) -> Config:
        fits = (
            value
            for value, fields in self.values.items()
            if all(getattr(spec, name) == wanted for name, wanted in fields.items())
        )
        return {self.key: next(fits, self.default)}


def get(config: Config, key: str, kind: type[T], default: T | None = None) -> T:
    """The value of a key, of the right type; null counts as absent, absent without a default is an error."""
    value = config.get(key)
    if value is None:
        if default is None:
            raise HeddleError(
                f"The configuration lacks '{key}'.",
                "It is needed to define the model.",
                f"Add {key!r} as {JSON_NAMES[kind]}; the model's own config.json has it.",
            )
        return default
    if kind is float and type(value) is int:
        return kind(str(value))  # by its digits: what no float holds is infinite, not an OverflowError
    if type(value) is not kind:  # not isinstance: in Python, true is an int
        raise HeddleError(
            f"'{key}' = {as_json(value)} has the wrong type.",
            f"It must be {JSON_NAMES[kind]}.",
            "The model's own config.json has it right.",
        )
    return value


def as_json(value: object) -> str:
    """A value as the file would write it, for messages."""
    words = {True: "true", False: "false", None: "null"}
    return words[value] if value is None or isinstance(value, bool) else shorten(value)

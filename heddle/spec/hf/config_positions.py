"""Rotary positions and windows of a Hugging Face `config.json`, which may differ from layer to layer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from heddle.errors import HeddleError, nearest, shorten
from heddle.spec.hf.config_keys import Config, Fields, as_json, get
from heddle.spec.model import MOST_LAYERS, ModelSpec
from heddle.spec.rope import RopeScaling, sharpness

FULL, SLIDING = "full_attention", "sliding_attention"  # what a layer looks at
ROPE_TYPES = ("default", "llama3", "linear", "dynamic", "yarn", "longrope")
ROPE_KEYS = {
    *("rope_type", "type", "rope_theta", "partial_rotary_factor", "factor", "low_freq_factor", "high_freq_factor"),
    *("original_max_position_embeddings", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "attention_factor"),
    *("truncate", "short_factor", "long_factor", "finetuned"),
}


@dataclass(frozen=True)
class WindowKeys:
    """Sliding-window attention: of all layers, of some, or of those that `layer_types` lists."""

    default: int | None = 4096  # where the key is absent; null always means none
    switch: str | None = None  # a key that must be true for windows to count
    types: bool = True  # layers may differ
    pattern: Callable[[int, Config], bool] | None = None  # which layers have a window where `layer_types` is absent
    states = ("window",)

    def read(self, config: Config, known: Fields) -> Fields:
        layers: int = known["layers"]
        if self.switch and not get(config, self.switch, bool, False):
            return {"window": None}
        if config.get("sliding_window", self.default) is None:
            return {"window": None}
        window = get(config, "sliding_window", int, self.default)
        kinds = config.get("layer_types") or []
        if not isinstance(kinds, list) or not all(kind in (FULL, SLIDING) for kind in kinds):
            raise HeddleError(
                f"'layer_types' = {as_json(kinds)} is not known.",
                "It lists the kind of attention of each layer.",
                f'Write it as ["{FULL}", "{SLIDING}", …], or remove it.',
            )
        if kinds and len(kinds) != layers:
            raise HeddleError(
                f"'layer_types' lists {len(kinds)} layers, but 'num_hidden_layers' = {layers}.",
                "It lists the kind of attention of each layer.",
                "The model's own config.json has it right.",
            )
        if not kinds and layers <= MOST_LAYERS:  # a file may state any number of layers, which the model then refuses
            slides = self.pattern
            kinds = [SLIDING if slides is None or slides(layer, config) else FULL for layer in range(layers)]
        if not self.types and FULL in kinds and SLIDING in kinds:
            raise HeddleError(
                f"{kinds.count(SLIDING)} of the {layers} layers have sliding-window attention, but the others do not.",
                f"All layers of a model of type '{config.get('model_type')}' have the same kind.",
                'Remove "layer_types".',
            )
        return {"window": tuple(window if kind == SLIDING else 0 for kind in kinds) or None}

    def write(self, spec: ModelSpec) -> Config:
        windows = windows_of(spec)
        config: Config = {"sliding_window": max((window for window in windows if window), default=None)}
        if self.switch:
            # Versions of transformers that do not know layer_types give the window to layers from max_window_layers on.
            config[self.switch] = any(windows)
            config["max_window_layers"] = next((i for i, window in enumerate(windows) if window), spec.layers)
        if self.types and (isinstance(spec.window, tuple) or (self.pattern and any(windows) and not self.switch)):
            config["layer_types"] = [SLIDING if window else FULL for window in windows]
        elif self.pattern and not any(windows) and not self.switch:
            # null would change more than the window in some families: every layer is said to see all
            config |= {"layer_types": [FULL] * spec.layers}
        return config


def windows_of(spec: ModelSpec) -> list[int | None]:
    """The window of each layer."""
    return [spec.layer(index).window for index in range(spec.layers)]


def each(value: Any, layers: int) -> tuple[Any, ...]:
    """A field of each layer."""
    return value if isinstance(value, tuple) else (value,) * min(layers, MOST_LAYERS)


@dataclass(frozen=True)
class Rope:
    """Rotary positions.

    Version 4 of transformers wrote `rope_theta` beside `rope_scaling`, version 5 writes both into `rope_parameters`.
    Where a file has several, the order of precedence is that of version 5. Written is the form of version 4, which
    version 5 still reads.
    """

    theta: float = 10_000.0
    share: float | None = None  # of a head that turns where the key is absent; None: heads turn whole
    theta_key: str = "rope_theta"
    share_key: str = "partial_rotary_factor"
    # layers with a window have a base of their own, and are not stretched: its key and default (None: as the others)
    apart: tuple[str | None, float | None] | None = None
    # layers without positions: those without a window ("full"; if any has one, "full-if"), or as a key says
    without: Literal["full", "full-if", "listed"] | None = None
    listed: bool = False  # `layer_rope_theta` has the base of each layer
    renamed: tuple[str, ...] = ()  # types that an old file means longrope by
    scores: bool = False  # `mscale_all_dim` also multiplies all scores
    default: Config | None = None  # rotary parameters where the file has none
    beside: bool = False  # the length that the model was first trained on is written beside the parameters

    @property
    def states(self) -> tuple[str, ...]:
        """The fields that it speaks of."""
        return "rope_theta", "rope_scaling", *(["rotary_size"] if self.share else [])

    def read(self, config: Config, known: Fields) -> Fields:
        full, sliding = self._parameters(config)
        theta = get(full, "rope_theta", float, get(config, self.theta_key, float, self.theta))
        fields: Fields = {"rope_theta": theta, "rope_scaling": self._scaling(full, config, known)}
        share = get(full, "partial_rotary_factor", float, get(config, self.share_key, float, self.share or 1.0))
        if share != 1.0:
            if self.share is None:
                raise HeddleError(
                    f"'{self.share_key}' = {share} is not known.",
                    f"Heads of a model of type '{config.get('model_type')}' turn whole.",
                    "Known: 1.0.",
                )
            size = known.get("head_size") or known["hidden"] // known["heads"]
            turning = int(size * share)
            fields["rotary_size"] = turning if turning != size else 0
        layers: int = known["layers"]
        windows = each(known.get("window"), layers)
        if self.apart is not None:
            local = get(sliding, "rope_theta", float, self._local(config, theta))
            if get(sliding, "rope_type", str, "default") != "default":
                raise HeddleError(
                    f"Layers with a window have rotary positions of type '{sliding['rope_type']}'.",
                    "Heddle stretches those of the layers without a window.",
                    'Set "rope_type" of "sliding_attention" to "default".',
                )
            fields["rope_theta"] = tuple(local if window else theta for window in windows)
        elif self.without in ("full", "full-if") and (self.without == "full" or any(windows)):
            fields["rope_theta"] = tuple(theta if window else 0.0 for window in windows)
        elif self.without == "listed":
            fields["rope_theta"] = tuple(theta * turns for turns in self._turning(config, layers))
        elif self.listed and config.get("layer_rope_theta") is not None:
            fields["rope_theta"] = tuple(float(base) for base in _list(config, "layer_rope_theta", layers))
        return fields

    def write(self, spec: ModelSpec) -> Config:
        bases = each(spec.rope_theta, spec.layers)
        windows = windows_of(spec)
        theta = max(bases) or self.theta
        config: Config = {}
        local: float | None = None
        if self.apart is not None:
            theta = next((base for base, window in zip(bases, windows, strict=False) if not window), self.theta)
            local = next((base for base, window in zip(bases, windows, strict=False) if window), self.apart[1])
            if self.apart[0] is not None:
                config[self.apart[0]] = local
        if self.without == "listed":
            config["no_rope_layers"] = [int(base > 0) for base in bases]
        if self.listed:
            config["layer_rope_theta"] = list(bases)
        if self.share is not None:
            config[self.share_key] = spec.rotated / spec.head_size
        scaling = _written(spec.rope_scaling)
        if scaling is None and self.default is not None:  # nothing would be the default
            scaling = {"rope_type": "default"}
        if self.beside and scaling and spec.rope_scaling is not None:
            config["original_max_position_embeddings"] = spec.rope_scaling.original_sequence
        if self.apart is not None:  # which version 4 cannot always say
            base = theta if local is None else local
            full = {"rope_type": "default", **(scaling or {}), "rope_theta": theta}
            config["rope_parameters"] = {FULL: full, SLIDING: {"rope_type": "default", "rope_theta": base}}
        return config | {self.theta_key: theta, "rope_scaling": scaling}

    def _parameters(self, config: Config) -> tuple[Config, Config]:
        """The rotary parameters of layers that see all, and of those with a window."""
        rope = config.get("rope_scaling") or config.get("rope_parameters") or self._unsaid(config)
        nested = config.get("rope_parameters")
        if self.apart is not None and isinstance(nested, dict) and (FULL in nested or SLIDING in nested):
            parts = nested.get(FULL) or {}, nested.get(SLIDING) or {}
        else:
            parts = rope, {}
        for part in parts:
            if not isinstance(part, dict) or any(isinstance(value, dict) for value in part.values()):
                raise HeddleError(
                    f"The rotary parameters {shorten(rope)} are not one flat object.",
                    "All layers of a Heddle model share one set of rotary positions, unless the family says otherwise.",
                    'For example "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}.',
                )
            unknown = next((key for key in part if key not in ROPE_KEYS), None)
            if unknown is not None:
                raise HeddleError(
                    f"The rotary parameters have the key {shorten(unknown)}.",
                    "Heddle refuses what it would compute differently.",
                    f"Known: {', '.join(sorted(ROPE_KEYS))}.",
                )
        return parts

    def _unsaid(self, config: Config) -> Config:
        said = any(key in config for key in ("rope_scaling", "rope_parameters"))
        return {} if said or self.default is None else self.default

    def _local(self, config: Config, theta: float) -> float:
        assert self.apart is not None
        key, default = self.apart
        return theta if key is None else get(config, key, float, default)

    def _turning(self, config: Config, layers: int) -> list[int]:
        if config.get("no_rope_layers"):
            return [int(bool(turns)) for turns in _list(config, "no_rope_layers", layers)]
        interval = get(config, "no_rope_layer_interval", int, 4)
        return [int((layer + 1) % interval != 0) for layer in range(min(layers, MOST_LAYERS))]

    def _scaling(self, rope: Config, config: Config, known: Fields) -> RopeScaling | None:
        kind = get(rope, "rope_type", str, get(rope, "type", str, "default"))
        kind = "longrope" if kind in self.renamed else kind
        if kind not in ROPE_TYPES:
            raise HeddleError(
                f"Rotary positions of type '{kind}' are not known.",
                f"Heddle stretches rotary positions in {len(ROPE_TYPES) - 1} ways.",
                nearest(kind, ROPE_TYPES),
            )
        if kind == "default":
            return None
        layers: Literal["all", "full"] = "full" if self.apart is not None else "all"
        if kind in ("linear", "dynamic"):
            way: Literal["linear", "dynamic"] = "linear" if kind == "linear" else "dynamic"
            return RopeScaling(kind=way, factor=get(rope, "factor", float), layers=layers)
        if kind == "llama3":
            return RopeScaling(
                factor=get(rope, "factor", float),
                low_frequency_factor=get(rope, "low_freq_factor", float),
                high_frequency_factor=get(rope, "high_freq_factor", float),
                original_sequence=_original(rope, config),
                layers=layers,
            )
        original = _original(rope, config, known["sequence"])
        given = get(rope, "attention_factor", float, 0.0)
        if kind == "longrope":
            return RopeScaling(
                kind="longrope",
                factor=get(rope, "factor", float, 0.0),
                original_sequence=original,
                attention_factor=given,
                short_factors=_numbers(rope, "short_factor"),
                long_factors=_numbers(rope, "long_factor"),
                layers=layers,
            )
        factor = get(rope, "factor", float, known["sequence"] / original)
        scale, over_all = get(rope, "mscale", float, 0.0), get(rope, "mscale_all_dim", float, 0.0)
        if not given and scale and over_all:
            given = sharpness(factor, scale) / sharpness(factor, over_all)
        return RopeScaling(
            kind="yarn",
            factor=factor,
            original_sequence=original,
            attention_factor=given,
            beta_fast=get(rope, "beta_fast", float, 32.0) or 32.0,
            beta_slow=get(rope, "beta_slow", float, 1.0) or 1.0,
            whole_numbers=get(rope, "truncate", bool, True),
            score_factor=over_all if self.scores else 0.0,
            layers=layers,
        )


def _original(rope: Config, config: Config, default: int | None = None) -> int:
    """The length that the model was first trained on; beside the parameters it counts more than among them."""
    key = "original_max_position_embeddings"
    return get(config if config.get(key) is not None else rope, key, int, default)


def _list(config: Config, key: str, layers: int) -> list[Any]:
    values = config[key]
    if not isinstance(values, list) or not all(isinstance(value, int | float) for value in values):
        raise HeddleError(
            f"'{key}' = {as_json(values)} has the wrong type.",
            "It lists a number for each layer.",
            "The model's own config.json has it right.",
        )
    if len(values) != layers:
        raise HeddleError(
            f"'{key}' lists {len(values)} layers, but 'num_hidden_layers' = {layers}.",
            "It lists a number for each layer.",
            "The model's own config.json has it right.",
        )
    return values


def _numbers(rope: Config, key: str) -> tuple[float, ...]:
    values = rope.get(key)
    if not isinstance(values, list) or not all(type(value) in (int, float) for value in values):
        raise HeddleError(
            f"'{key}' = {as_json(values)} has the wrong type.",
            "It lists a number for each pair that turns.",
            "The model's own config.json has it right.",
        )
    return tuple(float(value) for value in values)


def _written(scaling: RopeScaling | None) -> Config | None:
    if scaling is None:
        return None
    config: Config = {"rope_type": scaling.kind}
    if scaling.factor:
        config["factor"] = scaling.factor
    if scaling.kind == "llama3":
        config |= {"low_freq_factor": scaling.low_frequency_factor, "high_freq_factor": scaling.high_frequency_factor}
    if scaling.original_sequence:
        config["original_max_position_embeddings"] = scaling.original_sequence
    if scaling.kind == "yarn":
        config |= {"beta_fast": scaling.beta_fast, "beta_slow": scaling.beta_slow, "truncate": scaling.whole_numbers}
        config |= {"mscale_all_dim": scaling.score_factor} if scaling.score_factor else {}
    if scaling.kind == "longrope":
        config |= {"short_factor": list(scaling.short_factors), "long_factor": list(scaling.long_factors)}
    if scaling.attention_factor:
        config["attention_factor"] = scaling.attention_factor
    return config

"""What a file's module is, found by making and calling it without memory: the table of an OwnModel."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

from torch import nn

from heddle.console import plain_console
from heddle.errors import HeddleError
from heddle.models.own.build import build_on_meta
from heddle.models.own.chunk import holds
from heddle.models.own.files import OwnFile, read_file
from heddle.models.own.look import ModuleFacts, find_blocks, look_through
from heddle.models.own.patterns import rules_of, shared_sizes
from heddle.models.own.saved import saved_in_blocks
from heddle.spec.own import OwnModel, common_divisor

POSITIONS = ("max_position_embeddings", "max_seq_len", "n_positions", "seq_length", "block_size")
WORDS = ("vocab_size", "vocab")


def described(table: dict[str, Any], small: bool = False) -> dict[str, Any]:
    """The whole table of a model that a job file names; what it runs is said on the terminal."""
    plain_console(stderr=True).print(
        f"Running the code of {Path(table['module'].rpartition(':')[0])}, which [model] names.", soft_wrap=True
    )
    return describe(read_file(table["module"]), table, small)


def describe(file: OwnFile, table: dict[str, Any], small: bool = False) -> dict[str, Any]:
    """The same of a file that was read."""
    module = build_on_meta(file, small)
    prefix, blocks = find_blocks(file, module)
    vocab = table.get("vocab") or _stated(module, WORDS, "vocab", file)
    sequence = table.get("sequence") or _stated(module, POSITIONS, "sequence", file)
    seen = look_through(file, module, 1, sequence)
    sizes = {name: parameter.numel() for name, parameter in module.named_parameters()}
    inside = [sum(p.numel() for p in block.parameters()) for block in blocks] or [sum(sizes.values())]
    outside = {name: size for name, size in sizes.items() if not _in_blocks(name, prefix, blocks)} if blocks else {}
    first = [name for name in outside if holds(seen.uses.get(name, set()), 0, 1)]
    hidden = seen.shape[-1] if blocks else 1
    rules = rules_of(file, module)
    heads = max(1, hidden // 64)
    while hidden % heads:
        heads -= 1
    return {
        "name": table.get("name", f"{file.path.stem}:{file.function}"),
        "module": table["module"],
        "blocks": prefix,
        "source": file.digest,
        "small": small,
        "layers": max(1, len(blocks)),
        "hidden": hidden,
        "heads": heads,
        "vocab": vocab,
        "sequence": sequence,
        "bypass": seen.bypass,
        "tied": any(len(seen.uses.get(name, ())) > 1 for name in outside),
        "block_parameters": inside,
        "block_flops": seen.flops[:-1] if blocks else seen.flops,
        "block_saved": saved_in_blocks(file, small, sequence, max(1, len(blocks))),
        "first_parameters": sum(outside[name] for name in first),
        "last_parameters": sum(outside.values()) - sum(outside[name] for name in first),
        "end_flops": seen.flops[-1] if blocks else 0,
        "split": common_divisor(shared_sizes(module, rules, file.divide)),
    }


def _in_blocks(name: str, prefix: str, blocks: list[nn.Module]) -> bool:
    return bool(blocks) and name.startswith(f"{prefix}.")


def _stated(module: nn.Module, names: tuple[str, ...], key: str, file: OwnFile) -> int:
    """What a module's configuration says of itself."""
    config = getattr(module, "config", None)
    for name in names:
        value = getattr(config, name, None)
        if isinstance(value, int) and value > 0:
            return value
    raise HeddleError(
        f"[model] lacks '{key}'.",
        f"{file.path} makes a module whose configuration does not say it.",
        f"Add {key} = … to [model].",
    )


@lru_cache(maxsize=8)
def seen_in(spec: OwnModel) -> ModuleFacts:
    """What one forward pass of a model showed."""
    file = read_file(spec.module)
    return look_through(file, build_on_meta(file, spec.small), 1, spec.sequence)


def state_names(spec: OwnModel) -> frozenset[str]:
    """All names of its state: buffers, and every name of a shared weight."""
    return frozenset(build_on_meta(read_file(spec.module), spec.small).state_dict())


def shapes_of(spec: OwnModel) -> dict[str, tuple[int, ...]]:
    """Its parameters by name, in order."""
    module = build_on_meta(read_file(spec.module), spec.small)
    return {name: tuple(parameter.shape) for name, parameter in module.named_parameters()}

"""Checkpoints from Hugging Face folders, and Hugging Face folders from checkpoints, one file in memory at a time.

Both directions do the same: lay out the tensors of one file of the new folder, let the source fill them, write
the file, forget it. Values are copied, or rounded where another dtype is asked for; nothing else happens to them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import tomli_w
import torch

from heddle.checkpoint.checkpoint import State
from heddle.checkpoint.companions import COMPANIONS, carry
from heddle.checkpoint.huggingface import INDEX, SINGLE
from heddle.checkpoint.index import DTYPE_OF, DTYPES, Stored, StoredTensor, write_index
from heddle.checkpoint.manifest import Progress, write_about
from heddle.checkpoint.source import WeightSource
from heddle.checkpoint.storage import Boxes, write_file
from heddle.data import load_tokenizer
from heddle.durable import whole_or_nothing
from heddle.errors import HeddleError, shorten
from heddle.models.huggingface_layout import Block, Shape, layout, their_shapes
from heddle.spec.hf.config_write import write_config
from heddle.spec.start import CONFIG, MODEL, TOKENIZER_FILE
from heddle.spec.tables import read_foreign_json, to_table

TOKEN_IDS = ("bos_token_id", "eos_token_id", "pad_token_id")
PART_BYTES = 1 << 30  # of a part of an imported checkpoint: small enough for any machine that holds the model's layers

# Called with the finished folder before it gets its name; raises if the folder is not to be kept.
Check = Callable[[Path], None]


@dataclass(frozen=True)
class Converted:
    """What an import or an export wrote."""

    folder: Path
    files: int  # with weights
    bytes: int
    companions: tuple[str, ...]


@dataclass(frozen=True)
class New:
    """A tensor to be written: its shape and dtype, and which rows of which of our tensors go where in it."""

    shape: Shape
    dtype: torch.dtype
    parts: tuple[tuple[str, Block], ...]

    @property
    def bytes(self) -> int:
        return prod(self.shape) * self.dtype.itemsize


def import_huggingface(source: WeightSource, output: Path, check: Check | None = None) -> Converted:
    """Write a Hugging Face folder's weights as a checkpoint, in the precision that they have."""
    _check_end(source)
    wanted = {
        name: New(tensor.shape, DTYPE_OF[tensor.dtype], ((name, Block(0, tensor.shape[0], name, 0)),))
        for name, tensor in source.tensors.items()
    }
    files = pack(wanted, PART_BYTES)
    index: dict[str, StoredTensor] = {}
    with new_folder(output) as folder:
        for number, names in enumerate(files):
            file = f"part-{number:05}.safetensors"
            _write(folder / file, source, {name: wanted[name] for name in names})
            for name in names:
                shape = wanted[name].shape
                box = Stored(file, name, (0,) * len(shape), shape)
                index[name] = StoredTensor(DTYPES[wanted[name].dtype], shape, (box,))
        write_index(folder, index)
        start = Progress(step=0, samples=0, updates=0, loss_scale=1.0, quiet_steps=0)
        (folder / MODEL).write_text(tomli_w.dumps({"model": to_table(source.model)}))
        write_about(folder, start, imported=source.folder.name)
        companions = carry(source, folder, (*COMPANIONS, CONFIG))
        if check is not None:
            check(folder)
    return Converted(output, len(files), sum(new.bytes for new in wanted.values()), companions)


def export_huggingface(
    source: WeightSource, output: Path, dtype: torch.dtype | None, shard_bytes: int, check: Check | None = None
) -> Converted:
    """Write weights as a Hugging Face folder: in the precision that they have, or in another.

    Those of the user's own module keep its names, and there is no configuration: the module is code.
    """
    own = source.model.own
    config = {} if own else write_config(source.model)  # refuses a model that no family fits
    wanted = _own_tensors(source, dtype) if own else _their_tensors(source, dtype)
    files = pack(wanted, shard_bytes)
    of = f"-of-{len(files):05}"
    weight_map: dict[str, str] = {}
    with new_folder(output) as folder:
        for number, names in enumerate(files, start=1):
            file = SINGLE if len(files) == 1 else f"model-{number:05}{of}.safetensors"
            # transformers reads only files that say that they are torch's
            _write(folder / file, source, {name: wanted[name] for name in names}, {"format": "pt"})
            weight_map |= dict.fromkeys(names, file)
        total = sum(new.bytes for new in wanted.values())
        if len(files) > 1:
            _write_json(folder / INDEX, {"metadata": {"total_size": total}, "weight_map": weight_map})
        kept = next(iter(wanted.values())).dtype
        if not own:
            _write_json(
                folder / CONFIG, config | _token_ids(source) | {"torch_dtype": str(kept).removeprefix("torch.")}
            )
        companions = carry(source, folder, COMPANIONS)
        if check is not None:
            check(folder)
    return Converted(output, len(files), total, companions)


def pack(wanted: dict[str, New], limit: int) -> list[list[str]]:
    """Names, in order, in as many lists as it takes for none to exceed the limit; a tensor is never cut."""
    files: list[list[str]] = [[]]
    size = 0
    for name, new in wanted.items():
        if files[-1] and size + new.bytes > limit:
            files.append([])
            size = 0
        files[-1].append(name)
        size += new.bytes
    return files


def _their_tensors(source: WeightSource, dtype: torch.dtype | None) -> dict[str, New]:
    mapped = layout(source.model)
    parts: dict[str, list[tuple[str, Block]]] = {}
    for ours, where in mapped.items():
        for block in where.blocks:
            parts.setdefault(block.name, []).append((ours, block))
    return {
        name: New(shape, dtype or DTYPE_OF[source.tensors[parts[name][0][0]].dtype], tuple(parts[name]))
        for name, shape in their_shapes(mapped).items()
    }


def _own_tensors(source: WeightSource, dtype: torch.dtype | None) -> dict[str, New]:
    return {
        name: New(each.shape, dtype or DTYPE_OF[each.dtype], ((name, Block(0, each.shape[0], name, 0)),))
        for name, each in source.tensors.items()
    }


def _write(path: Path, source: WeightSource, wanted: dict[str, New], notes: dict[str, str] | None = None) -> None:
    """One file: its tensors laid out, filled with just their numbers, and written."""
    tensors = {name: torch.empty(new.shape, dtype=new.dtype) for name, new in wanted.items()}
    boxes: dict[str, list[tuple[Shape, torch.Tensor]]] = {}
    for name, new in wanted.items():
        for ours, block in new.parts:
            shape = source.tensors[ours].shape
            boxes.setdefault(ours, []).append(((block.row, *(0 for _ in shape[1:])), block.view(tensors[name])))
    state: State = {ours: Boxes(source.tensors[ours].shape, held) for ours, held in boxes.items()}
    source.load(state)
    write_file(path, tensors.items(), notes)


def _check_end(source: WeightSource) -> None:
    """Refuse a configuration whose texts end with a token that the model does not have."""
    config = read_foreign_json(source.folder / CONFIG, "a Hugging Face model configuration")
    end = config.get("eos_token_id")
    for number in end if isinstance(end, list) else [] if end is None else [end]:
        if type(number) is not int or not 0 <= number < source.model.vocab:
            raise HeddleError(
                f"{source.folder / CONFIG}: eos_token_id = {shorten(end)} is not a token of the model.",
                f"Its vocabulary has the tokens 0 to {source.model.vocab - 1}.",
                "Correct it, or remove it: Heddle ends a text as the tokenizer says.",
            )


def _token_ids(source: WeightSource) -> dict[str, Any]:
    """Which tokens begin and end a text: as the configuration that came with the weights says, or the tokenizer."""
    if source.companions is None:
        return {}
    if (source.companions / CONFIG).is_file():
        config = read_foreign_json(source.companions / CONFIG, "a Hugging Face model configuration")
        return {key: config[key] for key in TOKEN_IDS if key in config}
    if (source.companions / TOKENIZER_FILE).is_file():
        return {"eos_token_id": load_tokenizer(source.companions).end}
    return {}


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


@contextmanager
def new_folder(output: Path) -> Iterator[Path]:
    """A folder to fill, which gets its name when all went well and is gone when not; never one that exists."""
    if output.exists():
        raise HeddleError(
            f"{output} exists already.", "Existing weights are never overwritten.", "Choose another folder with -o."
        )
    with whole_or_nothing(output) as folder:
        yield folder

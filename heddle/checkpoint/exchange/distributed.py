"""Checkpoints that other trainers wrote with PyTorch's distributed checkpoint format (DCP), as Hugging Face folders.

The format keeps every parameter whole, whatever the plan it was trained under: the files say which part of it each rank
wrote. So names and the order of rows are all that differs from trainer to trainer: see `distributed_names`.
"""

from __future__ import annotations

import json
import pickle
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from heddle.checkpoint.exchange.convert import Converted, new_folder
from heddle.checkpoint.exchange.distributed_names import NAMES, KeyNames
from heddle.checkpoint.huggingface import INDEX, SINGLE
from heddle.checkpoint.storage import write_file
from heddle.errors import HeddleError, listing, nearest
from heddle.models.huggingface_layout import layout, their_shapes
from heddle.spec.hf.config_write import write_config
from heddle.spec.model import ModelSpec
from heddle.spec.start import CONFIG

METADATA = ".metadata"
LARGEST = 1 << 30  # bytes of what a checkpoint says of itself
# what it may be made of: records of the format, and plain values
ALLOWED = {
    "torch.distributed.checkpoint.metadata",
    "torch.distributed.checkpoint.filesystem",
    "torch.distributed.checkpoint.planner",
    "torch.distributed.checkpoint._extension",
}
PLAIN = {
    ("torch", "Size"),
    ("torch.serialization", "_get_layout"),
    ("collections", "OrderedDict"),
    ("builtins", "set"),
    ("builtins", "slice"),
    ("pathlib", "PosixPath"),
    ("pathlib", "Path"),
}


class _MetadataUnpickler(pickle.Unpickler):
    """Reads what a checkpoint says of itself, and makes nothing else: a pickle could run any code."""

    def find_class(self, module: str, name: str) -> Any:
        """A record of the format, or a plain value."""
        dtype = module == "torch" and isinstance(getattr(torch, name, None), torch.dtype | torch.layout)
        if dtype or module in ALLOWED or (module, name) in PLAIN:
            return super().find_class(module, name)
        raise HeddleError(
            f"The checkpoint's {METADATA} holds {module}.{name}.",
            "Such a file may run any code when it is read; a checkpoint's own holds nothing but sizes and places.",
            "Use checkpoints from whom you trust, written by torch.distributed.checkpoint.",
        )


class DistributedCheckpoint:
    """A folder in the format, whose tensors are read whole, one by one."""

    def __init__(self, folder: Path) -> None:
        self.folder = _newest(folder)
        path = self.folder / METADATA
        if not path.is_file():
            raise HeddleError(
                f"{folder} is not a distributed checkpoint.",
                f"Such a folder has a file called {METADATA}, and beside it files with tensors.",
                "Name the folder of one step, such as checkpoint/step-1000 or iter_0001000.",
            )
        if path.stat().st_size > LARGEST:
            raise HeddleError(f"{path} is too large.", f"It may have {LARGEST:,} bytes.", "Is it what it seems to be?")
        with path.open("rb") as file:
            try:
                found = _MetadataUnpickler(file).load()
            except (pickle.UnpicklingError, EOFError, AttributeError, ValueError, ImportError) as error:
                raise HeddleError(f"{path} cannot be read.", f"{error}.", "Copy the checkpoint again.") from None
        self.metadata = found
        entries = found.state_dict_metadata.items()
        self.shapes: dict[str, tuple[int, ...]] = {
            key: tuple(each.size) for key, each in entries if hasattr(each, "size")
        }
        self.dtypes = {key: each.properties.dtype for key, each in entries if hasattr(each, "properties")}

    def read(self, key: str) -> Tensor:
        """One tensor, put together from what ranks wrote of it."""
        from torch.distributed.checkpoint.filesystem import FileSystemReader
        from torch.distributed.checkpoint.state_dict_loader import load

        known = self.metadata

        class KnownReader(FileSystemReader):
            def read_metadata(self, *_: Any, **__: Any) -> Any:
                return known

        tensor = torch.empty(self.shapes[key], dtype=self.dtypes[key])
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that there is one process, which is meant
                load({key: tensor}, storage_reader=KnownReader(self.folder), no_dist=True)
        except (OSError, RuntimeError) as error:
            reason = str(error).splitlines()[0][:120] if str(error) else type(error).__name__
            raise HeddleError(f"{self.folder} cannot be read.", f"{key}: {reason}.", "Are all files there?") from None
        return tensor


def _newest(folder: Path) -> Path:
    """The folder itself, or of a trainer's folder of checkpoints the last one."""
    if (folder / METADATA).is_file() or not folder.is_dir():
        return folder
    steps = [path.parent for path in folder.glob(f"*/{METADATA}")]
    return max(steps, key=lambda path: (len(path.name), path.name), default=folder)


def import_distributed(
    folder: Path, output: Path, trainer: str, model: ModelSpec, dtype: torch.dtype | None, shard_bytes: int
) -> Converted:
    """Write the weights of a checkpoint as a Hugging Face folder, a file in memory at a time."""
    if trainer not in NAMES:
        raise HeddleError(
            f"There are no names of '{trainer}'.", "Checkpoints of a few are read.", nearest(trainer, NAMES)
        )
    config = write_config(model)  # refuses a model that no family fits
    names = NAMES[trainer](model)
    opened = DistributedCheckpoint(folder)
    wanted = their_shapes(layout(model))
    total, weight_map, pending = 0, dict[str, int](), dict[str, Tensor]()
    sizes: list[int] = []
    with new_folder(output) as made:
        for name, tensor in _tensors(opened, names):
            if name not in wanted or tuple(tensor.shape) != tuple(wanted[name]) or name in weight_map:
                raise _unfit(opened, name, tuple(tensor.shape), wanted, model)
            rounded = (tensor if dtype is None else tensor.to(dtype)).contiguous()
            if pending and sum(map(_bytes, pending.values())) + _bytes(rounded) > shard_bytes:
                sizes.append(_written(made, len(sizes), pending))
            pending[name] = rounded
            weight_map[name] = len(sizes)
        missing = sorted(set(wanted) - set(weight_map))
        if missing:
            raise HeddleError(
                f"{opened.folder} lacks {listing(missing[:3])}.",
                f"{len(missing)} of {len(wanted)} tensors of {model.name} were not found under names of {trainer}.",
                "Is --model the model that was trained, and --trainer the one that trained it?",
            )
        sizes.append(_written(made, len(sizes), pending))
        total = sum(sizes)
        _named(made, weight_map, len(sizes), total)
        kept = str(rounded.dtype).removeprefix("torch.")
        (made / CONFIG).write_text(json.dumps(config | {"torch_dtype": kept}, indent=2) + "\n")
    return Converted(output, len(sizes), total, ())


def _tensors(opened: DistributedCheckpoint, names: KeyNames) -> Iterator[tuple[str, Tensor]]:
    """Every tensor of the model under its Hugging Face name."""
    unknown = []
    for key in sorted(opened.shapes):
        word = names.word(key)
        if word is None:
            continue
        if not names.knows(word):
            unknown.append(key)
            continue
        try:
            yield from names.renamed(word, opened.read(key))
        except RuntimeError as error:  # its rows cannot be heads of this model
            raise HeddleError(
                f"{opened.folder} does not hold {names.model.name}: {key} has the shape {opened.shapes[key]}.",
                f"{str(error).splitlines()[0]}.",
                "Is --model the model that was trained?",
            ) from None
    if unknown:
        raise HeddleError(
            f"{opened.folder} has {listing(unknown[:3])}, which {names.trainer} models of this kind do not.",
            f"{len(unknown)} of its tensors have no place in {names.model.name}.",
            "Is --model the model that was trained?",
        )


def _unfit(
    opened: DistributedCheckpoint, name: str, shape: tuple[int, ...], wanted: Any, model: ModelSpec
) -> HeddleError:
    expected = f"it should have {tuple(wanted[name])}" if name in wanted else "there is none"
    return HeddleError(
        f"{opened.folder} does not hold {model.name}: {name} has the shape {shape}.",
        f"In that model {expected}.",
        "Is --model the model that was trained?",
    )


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.itemsize


def _written(folder: Path, number: int, pending: dict[str, Tensor]) -> int:
    """A file, and its bytes; its name says of how many files only when all are there."""
    write_file(folder / f"part-{number}", pending.items(), {"format": "pt"})
    size = sum(map(_bytes, pending.values()))
    pending.clear()
    return size


def _named(folder: Path, weight_map: dict[str, int], count: int, total: int) -> None:
    files = [SINGLE] if count == 1 else [f"model-{at:05}-of-{count:05}.safetensors" for at in range(1, count + 1)]
    for at, file in enumerate(files):
        (folder / f"part-{at}").rename(folder / file)
    if count > 1:
        index = {"metadata": {"total_size": total}, "weight_map": {name: files[at] for name, at in weight_map.items()}}
        (folder / INDEX).write_text(json.dumps(index, indent=2) + "\n")

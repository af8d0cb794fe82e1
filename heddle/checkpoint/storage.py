"""How a checkpoint lies on disk: safetensors files with checksums, one per rank, and an index in JSON.

Nothing is pickled: every file can be opened by any safetensors reader, and a damaged one is found before anything is
loaded from it. A rank writes what is its own; what it reads from others' files, torch's distributed checkpoint plans.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from io import BufferedWriter
from itertools import chain
from pathlib import Path
from typing import Any, Self

import torch
from safetensors import SafetensorError
from torch import Tensor
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import LoadPlan, LoadPlanner
from torch.distributed.checkpoint.storage import StorageReader
from torch.futures import Future

from heddle.checkpoint.index import DTYPE_OF, DTYPES, Stored, StoredTensor, read_index
from heddle.checkpoint.object_store import ObjectStore
from heddle.checkpoint.tensors import open_tensors
from heddle.errors import HeddleError

BLOCK = 8 << 20  # bytes that the disk is given at a time


class Boxes(Tensor):
    """Some boxes of a global tensor, as torch's distributed checkpoint wants to see them.

    It has the size of the whole but holds only the boxes: (offset, values) pairs.
    """

    boxes: list[tuple[tuple[int, ...], Tensor]]

    @staticmethod
    def __new__(cls, shape: tuple[int, ...], boxes: list[tuple[tuple[int, ...], Tensor]]) -> Self:
        dtype = boxes[0][1].dtype if boxes else torch.float32
        made = Tensor._make_wrapper_subclass(cls, shape, dtype=dtype, device=torch.device("cpu"))
        made.boxes = boxes
        return made

    def __init__(self, shape: tuple[int, ...], boxes: list[tuple[tuple[int, ...], Tensor]]) -> None:
        """See the class."""

    @classmethod
    def __torch_dispatch__(cls, func: Any, _types: Any, args: Any = (), _kwargs: Any = None) -> Any:  # type: ignore[override]
        if func is torch.ops.aten.detach.default:
            return args[0]
        raise NotImplementedError(f"{func} on boxes")

    def __create_chunk_list__(self) -> list[ChunkStorageMetadata]:
        return [ChunkStorageMetadata(torch.Size(offset), values.size()) for offset, values in self.boxes]

    def __get_tensor_shard__(self, index: MetadataIndex) -> Tensor:
        return next(values for offset, values in self.boxes if torch.Size(offset) == index.offset)


def write_file(
    path: Path,
    tensors: Iterable[tuple[str, Tensor]],
    notes: dict[str, str] | None = None,
    tick: Callable[[], None] = lambda: None,
) -> None:
    """Write a safetensors file, with the checksum of each tensor in its header, and make sure that it is on disk.

    The library's own writer first collects everything in memory; this one writes each tensor from where it is, while
    another thread computes the checksums and the disk already takes what was written. The header comes last: its
    length does not depend on what they are.
    """
    named = [(key, tensor.detach().contiguous()) for key, tensor in tensors]
    with path.open("wb") as file, ThreadPoolExecutor(1) as helper:
        sums = helper.submit(_sums, named)
        begun = file.seek(len(_head(named, {key: "00000000" for key, _ in named}, notes)))
        for block in _blocks(named):
            file.write(block)
            begun = _to_disk(file, begun)
            tick()
        file.seek(0)
        file.write(_head(named, sums.result(), notes))
        file.flush()
        os.fsync(file.fileno())


Named = list[tuple[str, Tensor]]


def _head(named: Named, sums: dict[str, str], notes: dict[str, str] | None = None) -> bytes:
    """The header of a safetensors file, with its length in front."""
    header: dict[str, Any] = {}
    at = 0
    for key, tensor in named:
        size = tensor.numel() * tensor.itemsize
        header[key] = {"dtype": DTYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header | {"__metadata__": sums | (notes or {})}).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _blocks(named: Named) -> Iterator[memoryview]:
    for _, tensor in named:
        whole = _bytes(tensor)
        for start in range(0, len(whole), BLOCK):
            yield whole[start : start + BLOCK]


def _sums(named: Named) -> dict[str, str]:
    return {key: _sum(tensor) for key, tensor in named}


def _to_disk(file: BufferedWriter, begun: int) -> int:
    """Let the disk begin with what was written from `begun` on, once it is a block; returns where the rest begins.

    The system would wait for the fsync, and leave the disk idle until then.
    """
    end = file.tell()
    if end - begun < BLOCK:
        return begun
    file.flush()
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(file.fileno(), begun, end - begun, os.POSIX_FADV_DONTNEED)
    return end


def _sum(tensor: Tensor) -> str:
    return f"{zlib.crc32(_bytes(tensor)):08x}"


def _bytes(tensor: Tensor) -> memoryview:
    return memoryview(tensor.view(-1).view(torch.uint8).numpy())  # type: ignore[arg-type]


def by_file(index: Mapping[str, StoredTensor]) -> dict[str, list[tuple[str, Stored]]]:
    """Which boxes, of which dtype, an index expects in each file."""
    files: dict[str, list[tuple[str, Stored]]] = {}
    for tensor in index.values():
        for box in tensor.boxes:
            files.setdefault(box.file, []).append((tensor.dtype, box))
    return files


def check_file(path: Path, boxes: Iterable[tuple[str, Stored]] = ()) -> None:
    """Refuse a file that is missing, cut off, changed or not what the index says, and name the tensor."""
    try:
        with open_tensors(path) as file:
            sums = file.metadata() or {}
            for dtype, box in boxes:
                part = file.get_slice(box.key)
                if (tuple(part.get_shape()), part.get_dtype()) != (box.shape, dtype):
                    raise HeddleError(
                        f"{path} is damaged.",
                        f"Tensor {box.key} is {part.get_dtype()} of {part.get_shape()}, "
                        f"the index says {dtype} of {list(box.shape)}.",
                        "Use another checkpoint, or copy this one again.",
                    )
            for key in file.keys():  # noqa: SIM118
                found = _sum(file.get_tensor(key).contiguous())
                if sums.get(key) != found:
                    raise HeddleError(
                        f"{path} is damaged.",
                        f"Tensor {key} has checksum {found}; it was written with {sums.get(key)}.",
                        "Use another checkpoint, or copy this one again.",
                    )
    except FileNotFoundError:
        raise HeddleError(
            f"{path} is missing.",
            "The index of its checkpoint names it.",
            "Use another checkpoint, or copy this one again.",
        ) from None
    except (OSError, SafetensorError) as error:
        raise HeddleError(
            f"{path} is damaged.", f"{error}.", "Use another checkpoint, or copy this one again."
        ) from None


def write_part(
    folder: Path, rank: int, state: Mapping[str, Boxes], tick: Callable[[], None] = lambda: None
) -> dict[str, StoredTensor]:
    """Write a rank's boxes to a file of its own; returns where they lie. `tick` is called after every block."""
    file = f"part-{rank:05}.safetensors"
    boxes, stored = _laid_out(file, state)
    if boxes:
        write_file(folder / file, boxes, tick=tick)
    return stored


def upload_part(
    store: ObjectStore, file: str, state: Mapping[str, Boxes], tick: Callable[[], None] = lambda: None
) -> tuple[dict[str, StoredTensor], bytes]:
    """The same into an object of that name; also the header that it got, empty where there was nothing to write.

    What goes into a store is written from its first byte to its last, so the checksums are computed before.
    """
    boxes, stored = _laid_out(file, state)
    if not boxes:
        return stored, b""
    named = [(key, values.detach().contiguous()) for key, values in boxes]
    head = _head(named, _sums(named))
    tick()
    store.write(file, chain([head], _blocks(named)), tick)
    return stored, head


def _laid_out(file: str, state: Mapping[str, Boxes]) -> tuple[Named, dict[str, StoredTensor]]:
    """A rank's boxes by the keys that they get in its file, and where that puts them."""
    boxes = [(name, offset, values) for name, each in state.items() for offset, values in each.boxes]
    stored: dict[str, list[Stored]] = {name: [] for name in state}
    for key, (name, offset, values) in enumerate(boxes):
        stored[name].append(Stored(file, str(key), offset, tuple(values.shape)))
    return [(str(key), values) for key, (_, _, values) in enumerate(boxes)], {
        name: StoredTensor(DTYPES[each.dtype], tuple(each.shape), tuple(stored[name])) for name, each in state.items()
    }


class SafetensorsReader(StorageReader):
    """Reads any boxes from what the writer wrote; whoever has read the index already passes it on."""

    def __init__(self, folder: Path, index: dict[str, StoredTensor] | None = None) -> None:
        self.folder, self.index = folder, index
        self.stored: dict[MetadataIndex, Stored] = {}

    def reset(self, checkpoint_id: Any = None) -> None:
        """Nothing is kept from one checkpoint to the next."""

    def read_metadata(self, *_: Any, **__: Any) -> Metadata:
        """The index, in torch's words."""
        tensors: dict[str, Any] = {}
        stored: dict[MetadataIndex, Stored] = {}
        for name, tensor in (read_index(self.folder) if self.index is None else self.index).items():
            chunks = [ChunkStorageMetadata(torch.Size(box.offset), torch.Size(box.shape)) for box in tensor.boxes]
            properties = TensorProperties(dtype=DTYPE_OF[tensor.dtype])
            tensors[name] = TensorStorageMetadata(properties, torch.Size(tensor.shape), chunks)
            stored |= {MetadataIndex(name, torch.Size(box.offset)): box for box in tensor.boxes}
        return Metadata(tensors, storage_data=stored)

    def set_up_storage_reader(self, metadata: Metadata, *_: Any, **__: Any) -> None:
        """Remember where the boxes are."""
        self.stored = metadata.storage_data

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        """As it is."""
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        """As they are."""
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """Copy every wanted part of a box to where it is wanted; files are opened once each."""
        by_file: dict[str, list[Any]] = {}
        for item in plan.items:
            by_file.setdefault(self.stored[item.storage_index].file, []).append(item)
        for name, items in by_file.items():
            with open_tensors(self.folder / name) as file:
                for item in items:
                    part = tuple(
                        slice(start, start + length)
                        for start, length in zip(item.storage_offsets, item.lengths, strict=True)
                    )
                    values = self.read_part(file, self.stored[item.storage_index], part)
                    target = planner.resolve_tensor(item).detach()
                    target.copy_(values)
                    planner.commit_tensor(item, target)
        future: Future[None] = Future()
        future.set_result(None)
        return future

    def read_part(self, file: Any, box: Stored, part: tuple[slice, ...]) -> Tensor:
        """A part of a box, counted from the box's corner, out of its open file."""
        return file.get_slice(box.key)[part]

    @classmethod
    def validate_checkpoint_id(cls, _checkpoint_id: Any) -> bool:
        """Any folder will do."""
        return True

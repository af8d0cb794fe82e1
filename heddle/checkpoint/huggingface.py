"""A folder as Hugging Face writes it – `config.json` and safetensors files – read as if it were a checkpoint of ours.

Opening it reads headers only, and checks them against the model that `config.json` describes. What is then asked for
is read where it lies: of each tensor the slices that are wanted, and nothing else. Nothing is ever unpickled.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor

from heddle.checkpoint.index import DTYPE_OF, DTYPES, Stored, StoredTensor, is_plain, lies_in
from heddle.checkpoint.storage import SafetensorsReader
from heddle.checkpoint.tensors import open_tensors
from heddle.errors import HeddleError, shorten
from heddle.files import shown
from heddle.models.huggingface_layout import Block, Shape, layout, their_shapes
from heddle.models.huggingface_names import find, is_buffer, names_of
from heddle.spec.huggingface import read_config
from heddle.spec.model import ModelSpec
from heddle.spec.start import CONFIG
from heddle.spec.tables import read_foreign_json

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
FLOATS = tuple(name for name, dtype in DTYPE_OF.items() if dtype.is_floating_point)
ROWS = 1 << 12  # of two embeddings that are compared at a time


@dataclass(frozen=True)
class HeldFile:
    """A tensor of a file, by its header."""

    file: str
    shape: Shape
    dtype: str


@dataclass(frozen=True)
class HuggingFaceFolder:
    """A model, its tensors under Hugging Face's names, and where each of our parameters lies in them."""

    folder: Path
    model: ModelSpec
    held: dict[str, HeldFile]
    tensors: dict[str, StoredTensor]


@dataclass(frozen=True)
class StoredBlock(Stored):
    """A box of one of our tensors that lies within one of theirs."""

    block: Block


class HuggingFaceReader(SafetensorsReader):
    """Reads boxes of our tensors out of theirs."""

    def read_part(self, file: Any, box: Stored, part: tuple[slice, ...]) -> Tensor:
        """See the base class."""
        assert isinstance(box, StoredBlock)
        values: Tensor = file.get_slice(box.key)[box.block.place(part)]
        if box.block.single:
            return values[None]
        values = box.block.ours(values)
        return values.T if box.block.transposed else values


def open_huggingface(folder: Path) -> HuggingFaceFolder:
    """Look at a folder and hold its headers against its configuration."""
    refuse_links(folder, CONFIG)
    try:
        model = read_config(read_foreign_json(folder / CONFIG, "a Hugging Face model configuration"))
    except HeddleError as error:
        where = "" if str(folder) in error.what else f"{folder / CONFIG}: "
        raise HeddleError(f"{where}{error.what}", error.why, error.hint) from None
    held = _held(folder)
    return HuggingFaceFolder(folder, model, held, _place(folder, model, held))


def tensors_by_name(folder: Path, wanted: dict[str, Shape], known: frozenset[str]) -> dict[str, StoredTensor]:
    """Where the parameters of the user's own module lie in a folder that holds them under the module's own names.

    `known` are all names of its state: buffers and second names of shared weights may be there, too.
    """
    held = _held(folder)
    wrong = [
        f"{name} is {_words(held, name if name in held else None)}, wanted {_size(shape)}"
        for name, shape in wanted.items()
        if name not in held or held[name].shape != shape
    ]
    _refuse(wrong, f"{folder} does not hold the weights of this module.", "Names and shapes are those of the module.")
    extra = sorted(held.keys() - known)
    _refuse(extra, f"{folder} holds tensors that the module does not have.", "Heddle never ignores a weight.")
    other = [f"{name} is {held[name].dtype}" for name in wanted if held[name].dtype not in FLOATS]
    _refuse(other, f"{folder} holds numbers that Heddle does not read.", f"It reads {', '.join(FLOATS)}.")
    return {
        name: StoredTensor(
            held[name].dtype,
            shape,
            (StoredBlock(held[name].file, name, (0,) * len(shape), shape, Block(0, shape[0], name, 0)),),
        )
        for name, shape in wanted.items()
    }


def _held(folder: Path) -> dict[str, HeldFile]:
    """All tensors of a folder, by their headers."""
    held: dict[str, HeldFile] = {}
    for file in _files(folder):
        header = _header(folder, file)
        twice = [f"{name} is in {held[name].file} and in {file}" for name in header if name in held]
        _refuse(twice, f"{folder} holds the same tensor twice.", "Remove the one that is wrong.")
        held |= header
    return held


def refuse_untied(opened: HuggingFaceFolder) -> None:
    """Where the configuration ties output layer and embedding but the files hold both, they must be equal."""
    names = names_of(opened.model)
    keys = [f"{names.modules[module]}.weight" for module in ("embed.tokens", "head")]
    embedding, head = (find(key, opened.held, names) for key in keys)
    if not opened.model.tied or embedding is None or head is None:
        return
    with (
        open_tensors(opened.folder / opened.held[embedding].file) as first,
        open_tensors(opened.folder / opened.held[head].file) as second,
    ):
        one, other = first.get_slice(embedding), second.get_slice(head)
        alike = opened.held[embedding].shape == opened.held[head].shape and all(
            torch.equal(one[row : row + ROWS], other[row : row + ROWS]) for row in range(0, opened.model.vocab, ROWS)
        )
    if not alike:
        raise HeddleError(
            f"{head} and {embedding} of {opened.folder} differ, although tie_word_embeddings is true.",
            "A tied model has only one of them, and either choice would change what it computes.",
            f'Set "tie_word_embeddings" to false in {CONFIG}, or remove {head}.',
        )


def _files(folder: Path) -> list[str]:
    """The files that hold the weights."""
    if (folder / SINGLE).is_file():
        files = [SINGLE]
    elif (folder / INDEX).is_file():
        files = _shards(folder)
    else:
        pickled = sorted(path.name for kind in ("*.bin", "*.pt", "*.pth") for path in folder.glob(kind))
        if pickled:
            raise HeddleError(
                f"The weights of {folder} are pickled: {', '.join(pickled[:3])}.",
                "Heddle never unpickles anything: opening such a file runs whatever code somebody put into it.",
                "If you trust it, convert it with transformers: from_pretrained(…).save_pretrained(…).",
            )
        raise HeddleError(
            f"{folder} holds no weights.",
            f"There is a {CONFIG}, but neither {SINGLE} nor {INDEX}.",
            "Is the download complete?",
        )
    there = {path.name for path in folder.iterdir()}
    for file in files:
        if is_plain(file) and file not in there:  # at once: an index may name millions of files
            raise _missing(folder, file)
        if not belongs(folder, file):
            raise HeddleError(
                f"{folder} lists the weight file {shorten(file)}, which is outside the folder.",
                "The files of a model are in its own folder.",
                "Do not load this model; somebody has tampered with it.",
            )
    return files


def _shards(folder: Path) -> list[str]:
    shards = read_foreign_json(folder / INDEX, "which file holds which tensor").get("weight_map")
    if not isinstance(shards, dict) or not shards or not all(isinstance(file, str) for file in shards.values()):
        raise HeddleError(
            f"{folder / INDEX} has no weight_map.",
            "It says which file holds which tensor.",
            "Is the download complete?",
        )
    return sorted(set(shards.values()))


def belongs(folder: Path, file: str) -> bool:
    """Whether a file is the folder's own. In the Hub's cache it is a link to the blobs that snapshots share."""
    snapshot = folder.resolve()
    blobs = snapshot.parent.parent / "blobs"
    if not is_plain(file):
        return False
    cached = snapshot.parent.name == "snapshots" and Path(os.path.realpath(snapshot / file)).parent == blobs
    return lies_in(folder, file) or cached


def refuse_links(folder: Path, *names: str) -> None:
    """Refuse files beside the weights that are links to somewhere else: whatever lies there would be carried along."""
    for name in names:
        if (folder / name).is_symlink() and not belongs(folder, name):
            raise HeddleError(
                f"{folder / name} is a link out of the model's folder.",
                "The files of a model are in its own folder, or among the blobs of the same repository in a cache.",
                "If you trust its target, replace the link with a copy; otherwise remove it.",
            )


def _header(folder: Path, file: str) -> dict[str, HeldFile]:
    """The tensors of a file. The library refuses offsets that overlap, leave gaps, end beyond the file or do not
    belong to the shape, and headers of more than 100 MB.
    """
    try:
        with open_tensors(folder / file) as opened:
            slices = {name: opened.get_slice(name) for name in opened.keys()}  # noqa: SIM118
            return {name: HeldFile(file, tuple(s.get_shape()), s.get_dtype()) for name, s in slices.items()}
    except FileNotFoundError:
        raise _missing(folder, file) from None
    except (OSError, SafetensorError) as error:
        raise HeddleError(f"{folder / file} is damaged.", f"{error}.", "Download it again.") from None


def _missing(folder: Path, file: str) -> HeddleError:
    return HeddleError(f"{shown(folder / file)} is missing.", f"{INDEX} names it.", "Is the download complete?")


def _place(folder: Path, model: ModelSpec, held: dict[str, HeldFile]) -> dict[str, StoredTensor]:
    """Where each of our parameters lies; whatever is missing, misshapen or left over is refused."""
    names, mapped = names_of(model), layout(model, held)
    packed = sorted(name for name in held if name.endswith(("_blocks", "_scales")))
    if packed:
        raise HeddleError(
            f"{folder} holds experts in four bits (MXFP4).",
            f"{packed[0]} is one of {len(packed)} packed tensors; Heddle trains numbers of 16 or 32 bits.",
            "Convert it with transformers: from_pretrained(…, dtype='bfloat16', "
            "quantization_config=Mxfp4Config(dequantize=True)).save_pretrained(…).",
        )
    found = {name: find(name, held, names) for name in their_shapes(mapped)}
    wrong = [
        f"{name} is {_words(held, found[name])}, wanted {_size(shape)}"
        for name, shape in their_shapes(mapped).items()
        if (key := found[name]) is None or held[key].shape != shape
    ]
    _refuse(wrong, f"{folder} does not hold the model that its {CONFIG} describes.", "Is the download complete?")
    tied = {f"{names.modules['head']}.weight"} if model.tied else set()  # see refuse_untied
    extra = [name for name in sorted(held.keys() - set(found.values()) - tied) if not is_buffer(name, names)]
    _refuse(extra, f"{folder} holds tensors that its {CONFIG} does not describe.", "Heddle never ignores a weight.")
    other = [f"{key} is {held[key].dtype}" for key in found.values() if key and held[key].dtype not in FLOATS]
    _refuse(other, f"{folder} holds numbers that Heddle does not read.", f"It reads {', '.join(FLOATS)}.")
    placed = {}
    for name, ours in mapped.items():
        boxes = []
        for block in ours.blocks:
            key = found[block.name]
            assert key is not None
            offset = (block.row, *(0 for _ in ours.shape[1:]))
            boxes.append(StoredBlock(held[key].file, key, offset, (block.rows, *ours.shape[1:]), block))
        # parts of one tensor that were kept in several precisions meet in one that loses nothing
        dtype = reduce(torch.promote_types, (DTYPE_OF[held[box.key].dtype] for box in boxes))
        placed[name] = StoredTensor(DTYPES[dtype], ours.shape, tuple(boxes))
    return placed


def _refuse(found: list[str], what: str, hint: str) -> None:
    """Name the first three of what is wrong."""
    if found:
        more = f" and {len(found) - 3} more" if len(found) > 3 else ""
        raise HeddleError(what, f"{'; '.join(found[:3])}{more}.", hint)


def _words(held: dict[str, HeldFile], key: str | None) -> str:
    return "not there" if key is None else _size(held[key].shape)


def _size(shape: Shape) -> str:
    return " × ".join(map(str, shape)) or "a single number"

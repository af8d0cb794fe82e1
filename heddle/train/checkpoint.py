"""Checkpoints: one folder a step, layout-free, whole or not there at all.

Every rank writes the boxes of the global tensors that it is the owner of, under their global names; every rank
reads the boxes it needs, from whichever files hold them. So any plan can read what any other wrote.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import torch
import torch.distributed as dist
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from heddle.errors import HeddleError
from heddle.parallel.mesh import Mesh
from heddle.parallel.pieces import Piece
from heddle.spec.read import build, read_json

KEEP = 2  # newest checkpoints that stay on disk
STATE = ("exp_avg", "exp_avg_sq")  # what AdamW remembers of each number

Box = tuple[tuple[int, ...], tuple[int, ...]]  # offset and shape


@dataclass(frozen=True)
class Progress:
    """How far a run has come: what is needed, beside the tensors, to go on as if it had never stopped."""

    step: int
    samples: int  # the sampler's position
    updates: int  # steps that changed the weights: under fp16 some do not
    loss_scale: float
    quiet_steps: int


def boxes_of(piece: Piece) -> Iterator[tuple[Box, int]]:
    """A flat range of a row-major box, as at most three boxes of the global tensor, each with its start in the range.

    Part of a first row, whole rows, part of a last row. Rows that only pad the vocabulary are left out.
    """
    width = piece.local[-1] if len(piece.local) > 1 else 1
    start, stop = piece.start, piece.start + piece.master.numel()
    cuts = sorted({start, min(stop, -(-start // width) * width), max(start, stop // width * width), stop})
    for low, high in pairwise(cuts):
        row, column = divmod(low, width)
        rows, columns = (1, high - low) if high - low < width else ((high - low) // width, width)
        rows = min(rows, piece.place.shape[0] - piece.place.offset[0] - row)
        if rows <= 0:
            continue
        if len(piece.local) == 1:
            yield ((piece.place.offset[0] + row,), (rows,)), low - start
        else:
            first, second = piece.place.offset
            yield ((first + row, second + column), (rows, columns)), low - start


def save(folder: Path, progress: Progress, pieces: list[Piece], adam: torch.optim.Optimizer, mesh: Mesh) -> Path:
    """Write a checkpoint beside its final place and rename it, so that a crash leaves the older ones whole."""
    final, partial = folder / f"step-{progress.step:08}", folder / f".partial-{progress.step:08}"
    tensors: dict[str, Tensor] = {}
    places: dict[str, str] = {}
    for piece in pieces:
        if not piece.counted:  # another rank owns these numbers
            continue
        state = adam.state[piece.master]
        for (offset, shape), start in boxes_of(piece):
            size = torch.Size(shape).numel()
            for kind, values in (("parameter", piece.master), *((kind, state[kind]) for kind in STATE)):
                key = f"{len(tensors)}"
                tensors[key] = values[start : start + size].view(shape).cpu().contiguous()
                places[key] = json.dumps([kind, piece.name, piece.place.shape, offset])
    try:
        if mesh.rank == 0:
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)
        _barrier(mesh)
        path = partial / f"rank-{mesh.rank:05}.safetensors"
        save_file(tensors, path, metadata=places)
        with path.open("rb") as file:
            os.fsync(file.fileno())
        _barrier(mesh)
        if mesh.rank == 0:
            (partial / "progress.json").write_text(json.dumps(asdict(progress), indent=2))
            shutil.rmtree(final, ignore_errors=True)
            partial.rename(final)
            for old in checkpoints(folder)[:-KEEP]:
                shutil.rmtree(old)
        _barrier(mesh)
    except OSError as error:
        raise HeddleError(
            f"The checkpoint of step {progress.step} could not be written to {folder}.",
            f"{error.strerror or error}.",
            "Earlier checkpoints are untouched; make room, then go on with --resume.",
        ) from None
    return final


def checkpoints(folder: Path) -> list[Path]:
    """All complete checkpoints of a run, oldest first."""
    return sorted(folder.glob("step-*")) if folder.is_dir() else []


def newest(folder: Path) -> Path:
    """The newest checkpoint of a run folder's `checkpoints`."""
    found = checkpoints(folder)
    if not found:
        raise HeddleError(
            f"There is no checkpoint in {folder}.",
            "A run writes one when it ends, when it is stopped with Ctrl-C, and every save_every steps.",
            f"Delete {folder.parent} and train it from its first step.",
        )
    return found[-1]


@dataclass(frozen=True)
class Stored:
    """One box in a checkpoint file."""

    path: Path
    key: str
    offset: tuple[int, ...]


class Checkpoint:
    """Reads any box of any global tensor from the files of one checkpoint."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @cached_property
    def progress(self) -> Progress:
        """How far the run had come."""
        return build(Progress, read_json(self.folder / "progress.json", "the progress of a run"), "progress")

    @cached_property
    def stored(self) -> dict[tuple[str, str], tuple[tuple[int, ...], list[Stored]]]:
        """By kind and name: the global shape, and the boxes that make it up."""
        found: dict[tuple[str, str], tuple[tuple[int, ...], list[Stored]]] = {}
        for path in sorted(self.folder.glob("rank-*.safetensors")):
            for key, words in self._metadata(path).items():
                kind, name, shape, offset = json.loads(words)
                found.setdefault((kind, name), (tuple(shape), []))[1].append(Stored(path, key, tuple(offset)))
        return found

    @staticmethod
    def _metadata(path: Path) -> dict[str, str]:
        try:
            with safe_open(path, "pt") as file:
                return dict(file.metadata() or {})
        except (OSError, SafetensorError) as error:
            raise HeddleError(f"{path} cannot be read.", f"{error}.") from None

    def check(self, shapes: dict[str, tuple[int, ...]]) -> None:
        """Refuse a checkpoint of another model, naming the first three differences."""
        held = {name: shape for (kind, name), (shape, _) in self.stored.items() if kind == "parameter"}
        wrong = sorted(name for name in shapes if held.get(name) != shapes[name])
        if wrong:
            shown = "; ".join(f"{name} is {held.get(name)}, wanted {shapes[name]}" for name in wrong[:3])
            raise HeddleError(
                f"{self.folder} belongs to another model.", f"{shown} ({len(wrong)} differ).", "Mend [model]."
            )

    def read_into(self, target: Tensor, kind: str, name: str, offset: tuple[int, ...]) -> None:
        """Fill `target`, the box at `offset` of a global tensor."""
        for stored in self.stored[kind, name][1]:
            with safe_open(stored.path, "pt") as file:
                part = file.get_slice(stored.key)
                low = [max(a, b) for a, b in zip(offset, stored.offset, strict=True)]
                ends = [
                    min(a + n, b + m)
                    for a, n, b, m in zip(offset, target.shape, stored.offset, part.get_shape(), strict=True)
                ]
                if any(start >= end for start, end in zip(low, ends, strict=True)):
                    continue
                source = tuple(slice(a - b, e - b) for a, b, e in zip(low, stored.offset, ends, strict=True))
                into = tuple(slice(a - b, e - b) for a, b, e in zip(low, offset, ends, strict=True))
                target[into].copy_(part[source])

    @torch.no_grad()
    def read_pieces(self, pieces: list[Piece], adam: torch.optim.Optimizer) -> None:
        """Fill masters and optimizer state of these pieces."""
        for piece in pieces:
            state = adam.state[piece.master]
            state["step"] = torch.tensor(float(self.progress.updates))
            for kind in STATE:
                state[kind] = torch.zeros_like(piece.master)
            for (offset, shape), start in boxes_of(piece):
                size = torch.Size(shape).numel()
                for kind, values in (("parameter", piece.master), *((kind, state[kind]) for kind in STATE)):
                    self.read_into(values[start : start + size].view(shape), kind, piece.name, offset)
            if piece.target is not None:
                piece.target.copy_(piece.master)


def _barrier(mesh: Mesh) -> None:
    if mesh.world.size > 1:
        dist.barrier(group=mesh.world.group)

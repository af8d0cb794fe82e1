"""Where weights come from: a run, a checkpoint or a Hugging Face folder, all read box by box under our global names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path

import torch
from safetensors import SafetensorError
from torch.distributed.checkpoint.api import CheckpointException

from heddle.errors import HeddleError
from heddle.models.hf import Shape, parameter_shapes
from heddle.parallel.mesh import Mesh
from heddle.parallel.pieces import Piece
from heddle.spec.job import load_job, model_from_table
from heddle.spec.model import ModelSpec
from heddle.spec.read import read_toml
from heddle.train.checkpoint import State, agree, boxes_of, damage, load_state, newest_good
from heddle.train.data.tokenizer import TOKENIZER_FILE
from heddle.train.descriptions import ABOUT, JOB, MODEL
from heddle.train.huggingface import CONFIG, HuggingFaceReader, open_huggingface, refuse_untied
from heddle.train.index import StoredTensor, read_index
from heddle.train.run import Run
from heddle.train.storage import Boxes, SafetensorsReader

Warn = Callable[[str], None]


@dataclass(frozen=True)
class Source:
    """A model's weights on disk."""

    folder: Path  # where the tensors are
    model: ModelSpec
    tensors: dict[str, StoredTensor]  # parameters by global name
    reader: type[SafetensorsReader]
    companions: Path | None  # the folder of the tokenizer and of whatever else came with the weights

    def load(self, state: State, mesh: Mesh | None = None) -> None:
        """Fill boxes. All ranks of the mesh call it, each with its own."""
        reader = self.reader(self.folder, {name: self.tensors[name] for name in state})
        try:
            load_state(reader, state, mesh or Mesh())
        except CheckpointException as error:
            reasons = [reason for reason, _ in error.failures.values()]
            reason = next((each for each in reasons if isinstance(each, OSError | SafetensorError)), None)
            if reason is None:
                raise
            raise HeddleError(f"{self.folder} cannot be read.", f"{reason}.", "Are all of its files there?") from None


def find_source(path: Path, mesh: Mesh, warn: Warn) -> Source:
    """The weights that a path stands for: the newest good ones of a run, a checkpoint, or Hugging Face's.

    Checksums are looked at, by all ranks together, so that what is damaged is told before it is used.
    """
    if is_run(path):
        return checkpoint_source(newest_good(Run(path).checkpoints, mesh, warn))
    if (path / ABOUT).is_file():
        problem = agree(mesh, damage(path, mesh))
        if problem is not None:
            raise HeddleError(f"The checkpoint {path} is not whole.", problem, "Copy it again, or take another.")
        return checkpoint_source(path)
    if (path / CONFIG).is_file():
        return huggingface_source(path, mesh)
    raise no_source(path)


def is_run(path: Path) -> bool:
    """Whether a folder is a run's: it has a job, as its checkpoints have, but is none of them."""
    return Run(path).job_file.is_file() and not (path / ABOUT).is_file()


def is_source(path: Path) -> bool:
    """Whether a folder looks like any of the three."""
    return any((path / name).is_file() for name in (JOB, ABOUT, CONFIG))


def no_source(path: Path) -> HeddleError:
    """That a path leads to no weights."""
    found = "It is not there" if not path.exists() else f"It has no job.toml, no {ABOUT} and no {CONFIG}"
    return HeddleError(
        f"{path} is no run, no checkpoint and no Hugging Face model.",
        f"{found}." if path.is_dir() or not path.exists() else "It is a file; all three are folders.",
        "A run is RUNS/NAME; its checkpoints are RUNS/NAME/checkpoints/step-…",
    )


def checkpoint_source(checkpoint: Path) -> Source:
    """A checkpoint that a run or an import wrote."""
    tensors = {name: tensor for name, tensor in read_index(checkpoint).items() if ":" not in name}
    run = Run(checkpoint.absolute().parent.parent)
    companions = run.tokenizer if (checkpoint / JOB).is_file() else checkpoint
    found = companions if (companions / TOKENIZER_FILE).is_file() or companions == checkpoint else None
    source = Source(checkpoint, model_of(checkpoint), tensors, SafetensorsReader, found)
    check_model(source, source.model)
    return source


def huggingface_source(folder: Path, mesh: Mesh | None = None) -> Source:
    """A Hugging Face folder, read in place."""
    opened = open_huggingface(folder)
    if mesh is None or mesh.rank == 0:  # the one check that reads more than headers
        refuse_untied(opened)
    return Source(folder, opened.model, opened.tensors, HuggingFaceReader, folder)


def model_of(checkpoint: Path) -> ModelSpec:
    """The model that a checkpoint says it holds."""
    if (checkpoint / JOB).is_file():
        return load_job(checkpoint / JOB).model
    table = read_toml(checkpoint / MODEL).get("model")
    if not isinstance(table, dict):
        raise HeddleError(
            f"{checkpoint / MODEL} has no table [model].",
            "It should say what the checkpoint holds.",
            "Take another checkpoint, or copy this one again.",
        )
    return model_from_table(table, checkpoint)


def check_model(source: Source, model: ModelSpec) -> None:
    """Refuse weights of another model, naming the first three differences: what is missing, misshapen or left over."""
    held, wanted = {name: tensor.shape for name, tensor in source.tensors.items()}, parameter_shapes(model)
    wrong = sorted(name for name in held.keys() | wanted if held.get(name) != wanted.get(name))
    if wrong:
        shown = "; ".join(f"{name} is {_size(held.get(name))}, wanted {_size(wanted.get(name))}" for name in wrong[:3])
        raise HeddleError(
            f"{source.folder} belongs to another model.",
            f"{shown} ({len(wrong)} differ).",
            "Mend [model], or the path.",
        )


def differences(source: Source, model: ModelSpec) -> str:
    """What a model of the same shapes computes otherwise: a base of the positions, an epsilon. Empty if nothing."""
    names = [field.name for field in fields(model) if field.name not in ("name", "dropout")]
    pairs = [(name, getattr(source.model, name), getattr(model, name)) for name in names]
    return "; ".join(f"{name} was {before!r}, is {now!r}" for name, before, now in pairs if before != now)


@torch.no_grad()
def load_weights(source: Source, pieces: list[Piece], mesh: Mesh) -> None:
    """Fill masters, and the low-precision parameters from them: of every tensor the boxes that this rank holds."""
    state = {piece.name: Boxes(tuple(piece.place.shape), list(boxes_of(piece, piece.master))) for piece in pieces}
    source.load(state, mesh)
    for piece in pieces:
        if piece.target is not None:
            piece.target.copy_(piece.master)


def _size(shape: Shape | None) -> str:
    return "not there" if shape is None else " × ".join(map(str, shape))

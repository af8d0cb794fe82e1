"""Checkpoints: one folder a step, safetensors under global parameter names, whole or not there at all."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from heddle.errors import HeddleError
from heddle.spec.read import build, read_json

KEEP = 2  # newest checkpoints that stay on disk


@dataclass(frozen=True)
class Progress:
    """How far a run has come: what is needed, beside the tensors, to go on as if it had never stopped."""

    step: int = 0
    samples: int = 0  # the sampler's position
    loss_scale: float = 1.0
    quiet_steps: int = 0


def save(folder: Path, progress: Progress, model: Mapping[str, Tensor], optimizer: Mapping[str, Tensor]) -> Path:
    """Write a checkpoint beside its final place and rename it, so that a crash leaves the older ones whole."""
    final = folder / f"step-{progress.step:08}"
    partial = folder / f".partial-{progress.step:08}"
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        save_file(_plain(model), partial / "model.safetensors")
        save_file(_plain(optimizer), partial / "optimizer.safetensors")
        (partial / "progress.json").write_text(json.dumps(asdict(progress), indent=2))
        for file in partial.iterdir():
            with file.open("rb") as handle:
                os.fsync(handle.fileno())
        shutil.rmtree(final, ignore_errors=True)
        partial.rename(final)
    except OSError as error:
        raise HeddleError(
            f"The checkpoint of step {progress.step} could not be written to {folder}.",
            f"{error.strerror or error}.",
            "Earlier checkpoints are untouched; make room, then go on with --resume.",
        ) from None
    for old in checkpoints(folder)[:-KEEP]:
        shutil.rmtree(old)
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
            "Train the run first.",
        )
    return found[-1]


def load_progress(checkpoint: Path) -> Progress:
    """How far the run had come."""
    return build(Progress, read_json(checkpoint / "progress.json", "the progress of a run"), "progress")


def load_tensors(path: Path, expected: Mapping[str, Tensor] | None = None) -> dict[str, Tensor]:
    """Read a safetensors file; with `expected`, refuse one whose names or shapes differ, naming the first three."""
    try:
        tensors = load_file(path)
    except (OSError, SafetensorError) as error:
        raise HeddleError(f"{path} cannot be read.", f"{error}.") from None
    if expected is not None:
        names = sorted(tensors.keys() ^ expected.keys()) or sorted(
            name for name, tensor in tensors.items() if tensor.shape != expected[name].shape
        )
        if names:
            raise HeddleError(
                f"{path} belongs to another model.",
                f"It differs in {', '.join(names[:3])} ({len(names)} in all).",
            )
    return tensors


def _plain(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().to("cpu", copy=False).contiguous() for name, tensor in tensors.items()}


@torch.no_grad()
def copy_into(targets: Mapping[str, Tensor], tensors: Mapping[str, Tensor]) -> None:
    """Copy tensors into their namesakes, in place."""
    for name, target in targets.items():
        target.copy_(tensors[name])

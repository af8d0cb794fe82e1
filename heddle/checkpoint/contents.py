"""What a run, a checkpoint or a Hugging Face folder holds, from its descriptions and headers alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, Literal

from safetensors import SafetensorError

from heddle.checkpoint.checkpoint import ADAM, checkpoints
from heddle.checkpoint.huggingface import open_huggingface
from heddle.checkpoint.index import read_index
from heddle.checkpoint.manifest import check_about, check_others, check_part, part_sums, read_about, read_progress
from heddle.checkpoint.storage import check_file
from heddle.checkpoint.tensors import open_tensors
from heddle.errors import HeddleError, shorten
from heddle.models.huggingface_layout import Shape, layout, parameter_shapes, their_shapes
from heddle.models.huggingface_names import find, names_of
from heddle.runs.folder import Run
from heddle.spec.model import ModelSpec
from heddle.spec.plan import Plan
from heddle.spec.start import ABOUT, CONFIG, is_run, model_in, no_start
from heddle.spec.tables import build, to_table

# bits of safetensors' dtypes, those that Heddle does not compute with included: a constant may have any
BITS = {"BOOL": 8, "U8": 8, "I8": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32}
BITS |= {"F8_E4M3": 8, "F8_E5M2": 8, "I64": 64, "U64": 64, "F64": 64}


@dataclass(frozen=True)
class HeldTensor:
    """One tensor, whole."""

    name: str
    shape: Shape
    dtype: str
    files: tuple[str, ...]  # of each of its boxes

    @property
    def numbers(self) -> int:
        return prod(self.shape)

    @property
    def bytes(self) -> int:
        return self.numbers * BITS.get(self.dtype, 8) // 8

    @property
    def state(self) -> bool:
        """Whether it belongs to the optimizer."""
        return ":" in self.name


@dataclass(frozen=True)
class Contents:
    """What a folder holds."""

    kind: Literal["checkpoint", "huggingface"]
    folder: Path
    model: ModelSpec
    tensors: tuple[HeldTensor, ...]
    step: int | None = None
    plan: dict[str, Any] | None = None
    plan_hash: str | None = None
    imported: str | None = None  # the name of the folder that it was imported from
    others: tuple[str, ...] = ()  # older checkpoints of the same run

    @property
    def parameters(self) -> int:
        """Numbers that are trained."""
        return sum(tensor.numbers for tensor in self.tensors if not tensor.state)

    @property
    def optimizer(self) -> bool:
        """Whether training can go on from it, and not only start."""
        kinds = {tensor.name.rpartition(":")[2] for tensor in self.tensors if tensor.state}
        return kinds >= set(ADAM)

    @property
    def files(self) -> tuple[str, ...]:
        """All that hold tensors."""
        return tuple(sorted({file for tensor in self.tensors for file in tensor.files}))


@dataclass(frozen=True)
class CheckpointVerdict:
    """What the checksums say."""

    matched: int  # tensors, or boxes of them
    without: int  # that have no checksum: transformers writes none
    problems: tuple[str, ...]

    def __str__(self) -> str:
        if self.problems:
            return "1 file is damaged" if len(self.problems) == 1 else f"{len(self.problems)} files are damaged"
        if self.without:
            return f"{self.matched} match, {self.without} tensors have none; headers and sizes are right"
        return f"all {self.matched} match"


def contents_of(path: Path) -> Contents:
    """Look into a folder; a run stands for its newest checkpoint."""
    if is_run(path):
        found = checkpoints(Run(path).checkpoints)
        if not found:
            raise HeddleError(
                f"There is no checkpoint in {Run(path).checkpoints}.",
                "A run writes one when it ends, when it is stopped with Ctrl-C, and every save_every steps.",
                "Train the run first.",
            )
        return _checkpoint(found[-1], tuple(older.name for older in found[:-1]))
    if (path / ABOUT).is_file():
        return _checkpoint(path)
    if (path / CONFIG).is_file():
        opened = open_huggingface(path)
        held = [HeldTensor(name, each.shape, each.dtype, (each.file,)) for name, each in opened.held.items()]
        names = names_of(opened.model)
        order = [find(name, opened.held, names) for name in their_shapes(layout(opened.model, opened.held))]
        return Contents("huggingface", path, opened.model, _ordered(held, order))
    raise no_start(path)


def verify(contents: Contents) -> CheckpointVerdict:
    """Read everything once and compare checksums."""
    matched, without, problems = 0, 0, []
    parts = None
    if contents.kind == "checkpoint":
        try:
            check_about(contents.folder)
            check_others(contents.folder)
            parts = part_sums(contents.folder)
        except HeddleError as error:
            problems.append(f"{error.what} {error.why}")
    for file in contents.files:
        path = contents.folder / file
        try:
            with open_tensors(path) as opened:
                names, sums = list(opened.keys()), opened.metadata() or {}
            if not any(name in sums for name in names):
                without += len(names)
                continue
            check_file(path)
            check_part(path, parts)
            matched += len(names)
        except HeddleError as error:
            problems.append(f"{error.what} {error.why}")
        except FileNotFoundError:
            problems.append(f"{path} is missing.")
        except (OSError, SafetensorError) as error:
            problems.append(f"{path} is damaged. {error}.")
    return CheckpointVerdict(matched, without, tuple(problems))


def _checkpoint(folder: Path, others: tuple[str, ...] = ()) -> Contents:
    progress, model = read_progress(folder), model_in(folder)
    about = read_about(folder)
    held = [
        HeldTensor(name, tensor.shape, tensor.dtype, tuple(box.file for box in tensor.boxes))
        for name, tensor in read_index(folder).items()
    ]
    return Contents(
        kind="checkpoint",
        folder=folder,
        model=model,
        tensors=_ordered(held, [each.name for each in held] if model.own else list(parameter_shapes(model))),
        step=progress.step,
        plan=None if about.get("plan") is None else to_table(build(Plan, _table(folder, about["plan"]), "plan")),
        plan_hash=_word(folder, about.get("plan_hash")),
        imported=_word(folder, about.get("imported")),
        others=others,
    )


def _table(folder: Path, value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _not_ours(folder, value)
    return value


def _word(folder: Path, value: object) -> str | None:
    if value is not None and not isinstance(value, str):
        raise _not_ours(folder, value)
    return value


def _not_ours(folder: Path, value: object) -> HeddleError:
    return HeddleError(
        f"{folder / ABOUT} says {shorten(value)}, which Heddle does not write.",
        "It was edited, or is damaged.",
        "Use another checkpoint, or copy this one again.",
    )


def _ordered(held: list[HeldTensor], order: Sequence[str | None]) -> tuple[HeldTensor, ...]:
    """In the order of the model, the optimizer's last."""
    places = {name: place for place, name in enumerate(order)}
    return tuple(
        sorted(held, key=lambda each: (each.state, places.get(each.name.partition(":")[0], len(places)), each.name))
    )

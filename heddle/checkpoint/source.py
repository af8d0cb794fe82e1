"""Where weights come from: a run, a checkpoint or a Hugging Face folder, all read box by box under our global names."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path

import torch
from safetensors import SafetensorError
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException

from heddle.checkpoint.checkpoint import State, agree, damage, load_state, newest_good
from heddle.checkpoint.huggingface import (
    INDEX,
    SINGLE,
    HuggingFaceReader,
    open_huggingface,
    refuse_links,
    refuse_untied,
    tensors_by_name,
)
from heddle.checkpoint.index import StoredTensor, check_shapes, read_index
from heddle.checkpoint.storage import Boxes, SafetensorsReader
from heddle.data import Prepared
from heddle.data.tokenizer import BYTE_KIND, vocabulary
from heddle.errors import HeddleError
from heddle.models.huggingface_layout import Shape, parameter_shapes
from heddle.models.init import initialize_parameter
from heddle.models.lora import A, B, QkvRows, delta
from heddle.models.own.describe import shapes_of, state_names
from heddle.parallel.mesh import Mesh
from heddle.parallel.quantized import rounded_box
from heddle.parallel.shards import Piece, boxes_of
from heddle.runs.folder import Run
from heddle.spec.job import Job, load_job
from heddle.spec.model import ModelSpec
from heddle.spec.own import OwnModel
from heddle.spec.start import ABOUT, CONFIG, JOB, TOKENIZER_FILE, companions_in, is_run, model_in, no_start
from heddle.spec.tune import ADAPTER, Lora, adapter_shapes, in_four_bits

TOKENIZERS = ("tokenizer.model", "vocab.json", "merges.txt")  # of folders that have no tokenizer.json

Warn = Callable[[str], None]
Pairs = dict[str, dict[str, tuple[Tensor, Tensor]]]  # (A, B) by the name of the weight, then by target


@dataclass(frozen=True)
class WeightSource:
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


def find_source(path: Path, mesh: Mesh, warn: Warn, model: ModelSpec | None = None) -> WeightSource:
    """The weights that a path stands for: the newest good ones of a run, a checkpoint, or Hugging Face's.

    Checksums are looked at, by all ranks together, so that what is damaged is told before it is used. `model`: they are
    for. If that is the user's own module, a folder of safetensors has its names.
    """
    if isinstance(model, OwnModel) and any((path / name).is_file() for name in (SINGLE, INDEX)):
        tensors = tensors_by_name(path, shapes_of(model), state_names(model))
        companions = path if (path / TOKENIZER_FILE).is_file() else None
        return WeightSource(path, model, tensors, HuggingFaceReader, companions)
    if is_run(path):
        return checkpoint_source(newest_good(Run(path).checkpoints, mesh, warn), warn)
    if (path / ABOUT).is_file():
        problem = agree(mesh, damage(path, mesh))
        if problem is not None:
            raise HeddleError(f"The checkpoint {path} is not intact.", problem, "Copy it again, or use another.")
        return checkpoint_source(path, warn)
    if (path / CONFIG).is_file():
        return huggingface_source(path, mesh)
    raise no_start(path)


def checkpoint_source(checkpoint: Path, warn: Warn = lambda _: None) -> WeightSource:
    """A checkpoint that a run or an import wrote; one of adapters stands for the weights with these added."""
    tensors = {name: tensor for name, tensor in read_index(checkpoint).items() if ":" not in name}
    companions = companions_in(checkpoint)
    found = companions if (companions / TOKENIZER_FILE).is_file() or companions == checkpoint else None
    source = WeightSource(checkpoint, model_in(checkpoint), tensors, SafetensorsReader, found)
    if any(f".{ADAPTER}." in name for name in tensors):
        source = adapted_source(checkpoint, source, warn)
    if not source.model.own:  # whose code is run only if a job names it
        check_model(source, source.model)
    return source


def huggingface_source(folder: Path, mesh: Mesh | None = None) -> WeightSource:
    """A Hugging Face folder, read in place."""
    opened = open_huggingface(folder)
    if mesh is None or mesh.rank == 0:  # the one check that reads more than headers
        refuse_untied(opened)
    return WeightSource(folder, opened.model, opened.tensors, HuggingFaceReader, folder)


def check_model(source: WeightSource, model: ModelSpec) -> None:
    """Refuse weights of another model."""
    shapes = shapes_of(model) if isinstance(model, OwnModel) else parameter_shapes(model)
    check_shapes(source.folder, {name: each.shape for name, each in source.tensors.items()}, shapes)


def check_tokenizer(source: WeightSource, data: Prepared) -> None:
    """Refuse data in other tokens than the weights were trained on; more tokens than theirs may be there."""
    folder = source.companions
    if folder is None:
        return
    refuse_links(folder, TOKENIZER_FILE)
    own, given = folder / TOKENIZER_FILE, f"data.tokenizer = '{data.meta.tokenizer}'"
    if own.is_file():
        theirs, ours = vocabulary(own), vocabulary(data.folder / TOKENIZER_FILE)
        strange = [token for token, number in theirs.items() if ours.get(token) != number]
        why = f"{len(strange):,} of the {len(theirs):,} tokens of {own} have a different id there, or none."
    else:
        others = [name for name in TOKENIZERS if (folder / name).is_file()]
        strange = others if data.tokenizer.kind == BYTE_KIND else []
        why = f"{folder} has its own tokenizer in {', '.join(others)}."
    if strange:
        raise HeddleError(
            f"{given} is not the tokenizer that the weights in {source.folder} were trained with.",
            why,
            "Leave [data] tokenizer out to use the one that came with the weights; prepared tokens must use it, too.",
        )


def differences(source: WeightSource, model: ModelSpec) -> str:
    """What a model of the same shapes computes otherwise: a base of the positions, an epsilon. Empty if nothing."""
    names = [field.name for field in fields(model) if field.name not in ("name", "dropout")]
    pairs = [(name, getattr(source.model, name), getattr(model, name)) for name in names]
    return "; ".join(f"{name} was {before!r}, is {now!r}" for name, before, now in pairs if before != now)


@torch.no_grad()
def load_weights(source: WeightSource, pieces: list[Piece], mesh: Mesh) -> None:
    """Fill masters, and the low-precision parameters from them: of every tensor the boxes that this rank holds."""
    state = {piece.name: Boxes(tuple(piece.place.shape), list(boxes_of(piece, piece.master))) for piece in pieces}
    source.load(state, mesh)
    for piece in pieces:
        if piece.target is not None:
            piece.target.copy_(piece.master)


def adapter_names(model: ModelSpec, lora: Lora) -> Iterator[tuple[str, str, str, Shape, Shape]]:
    """Every adapter: the linear layer beside which it stands, its target, its name, and the shapes of A and B."""
    for layer in range(model.layers):
        for place, targets in adapter_shapes(model, lora, layer).items():
            linear = f"layers.{layer}.{place}"
            for target, (inputs, outputs) in targets.items():
                name = f"{linear}.{ADAPTER}.pairs.{target}"
                yield linear, target, name, (lora.rank, inputs), (outputs, lora.rank)


@dataclass(frozen=True)
class SeededSource:
    """The weights that a seed gives, where a run has frozen weights that came from nowhere else."""

    model: ModelSpec
    seed: int

    def load(self, state: State, mesh: Mesh | None = None) -> None:  # noqa: ARG002
        """Fill boxes."""
        for name, boxes in state.items():
            for offset, values in boxes.boxes:
                made = torch.empty(values.shape)
                initialize_parameter(made, name, self.model, self.seed, torch.Size(boxes.shape), offset)
                values.copy_(made)


@dataclass(frozen=True)
class AdaptedSource(WeightSource):
    """Weights with adapters added to them: what a run with [tune] has learned, as weights of the model alone."""

    base: WeightSource | SeededSource
    pairs: Pairs
    lora: Lora
    learned: dict[str, StoredTensor]  # parts of the model that learned as well

    quantized: bool  # whether the base is what adapters learned beside: its matrices as they come back from four bits

    def load(self, state: State, mesh: Mesh | None = None) -> None:
        """See the base class. Sums are made in full precision, whatever they are rounded to then."""
        own = {name: boxes for name, boxes in state.items() if name in self.learned}
        if own:
            WeightSource(self.folder, self.model, self.learned, self.reader, None).load(own, mesh)
        rest = {name: boxes for name, boxes in state.items() if name not in own}
        exact = {
            name: Boxes(boxes.shape, [(at, torch.empty(values.shape)) for at, values in boxes.boxes])
            if name in self.pairs
            else boxes
            for name, boxes in rest.items()
        }
        plain = {name: boxes for name, boxes in exact.items() if not (self.quantized and in_four_bits(name))}
        if plain:
            self.base.load(plain, mesh)
        for name in exact.keys() - plain.keys():
            self._load_rounded(name, exact[name])
        for name in exact.keys() & self.pairs.keys():
            rows = QkvRows(self.model.group, self.model.head_size) if name.endswith("qkv.weight") else None
            added = delta(self.pairs[name], self.lora.scale, rows)
            for (at, summed), (_, values) in zip(exact[name].boxes, rest[name].boxes, strict=True):
                place = tuple(slice(start, start + size) for start, size in zip(at, summed.shape, strict=True))
                values.copy_(summed + added[place])

    def _load_rounded(self, name: str, boxes: Boxes) -> None:
        def read(values: Tensor, shape: torch.Size, offset: tuple[int, ...]) -> None:
            self.base.load({name: Boxes(tuple(shape), [(offset, values)])})

        for offset, values in boxes.boxes:
            rounded_box(torch.Size(boxes.shape), offset, values, read)


def adapted_source(checkpoint: Path, found: WeightSource, warn: Warn) -> AdaptedSource:
    """The weights that a checkpoint of a run with [tune] stands for; `found` is what it holds itself."""
    job = load_job(checkpoint / JOB)
    assert job.tune is not None
    lora, model = job.tune.adapters, job.model
    base = base_of(job, Mesh(), warn)
    index = read_index(checkpoint)
    pairs: Pairs = {}
    for linear, target, name, a, b in adapter_names(model, lora):
        values = torch.empty(a), torch.empty(b)
        state = {f"{name}.{kind}": Boxes(x.shape, [((0, 0), x)]) for kind, x in zip((A, B), values, strict=True)}
        tensors = {each: index[each] for each in state}
        WeightSource(checkpoint, model, tensors, SafetensorsReader, None).load(state)
        pairs.setdefault(f"{linear}.weight", {})[target] = values
    learned = {name: tensor for name, tensor in found.tensors.items() if f".{ADAPTER}." not in name}
    tensors = base.tensors | learned if isinstance(base, WeightSource) else _seeded(model) | learned
    quantized = job.tune.base == "nf4"
    return AdaptedSource(
        checkpoint, model, tensors, SafetensorsReader, found.companions, base, pairs, lora, learned, quantized
    )


def _seeded(model: ModelSpec) -> dict[str, StoredTensor]:
    return {name: StoredTensor("F32", shape, ()) for name, shape in parameter_shapes(model).items()}


def base_of(job: Job, mesh: Mesh, warn: Warn) -> WeightSource | SeededSource:
    """The frozen weights of a job with [tune]."""
    if job.train.start_from is None:
        return SeededSource(job.model, job.train.seed)
    return find_source(Path(job.train.start_from), mesh, warn)

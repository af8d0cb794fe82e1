"""Adapters on disk: a run's own, with their base by reference; PEFT's, in and out; and weights with adapters added.

A checkpoint of a run with [tune] holds adapters and whatever else learns. The frozen weights stay where they came from:
the job says where, and `base.json` in the run's folder what they were, so that nobody goes on with others.
"""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path

import torch
from safetensors import SafetensorError
from torch import Tensor

from heddle.checkpoint.checkpoint import newest_good
from heddle.checkpoint.exchange.convert import new_folder
from heddle.checkpoint.huggingface import INDEX
from heddle.checkpoint.index import read_index
from heddle.checkpoint.source import SeededSource, Warn, WeightSource, adapter_names
from heddle.checkpoint.storage import Boxes, SafetensorsReader, write_file
from heddle.checkpoint.tensors import open_tensors
from heddle.durable import replace_text
from heddle.errors import HeddleError
from heddle.models.huggingface_names import names_of
from heddle.models.lora import A, B
from heddle.parallel.mesh import Mesh
from heddle.parallel.quantized import fill_quantized
from heddle.parallel.shards import Piece, boxes_of
from heddle.runs.folder import Run
from heddle.spec.hf.peft import CONFIG, MODULES, WEIGHTS, config_of, lora_of
from heddle.spec.job import load_job
from heddle.spec.model import ModelSpec
from heddle.spec.start import JOB, is_run, no_start
from heddle.spec.tables import read_json
from heddle.spec.tune import ADAPTER, Lora

BASE_FILE = "base.json"
PREFIX = "base_model.model."  # before every name of PEFT's
BLOCK = 1 << 22  # bytes that are digested at once


# -------------------------------------------------------------------------------------------------------------- base


@torch.no_grad()
def load_frozen(source: WeightSource | SeededSource, pieces: list[Piece], mesh: Mesh) -> None:
    """Fill what nobody updates, in the precision it is kept in."""
    state: dict[str, Boxes] = {}
    for piece in pieces:
        if piece.nf4 is None:
            boxes = state.setdefault(piece.name, Boxes(tuple(piece.place.shape), []))
            boxes.boxes.extend(boxes_of(piece, piece.master))
    source.load(state, mesh)
    for piece in pieces:
        if piece.nf4 is not None:

            def read(values: Tensor, shape: torch.Size, offset: tuple[int, ...], name: str = piece.name) -> None:
                source.load({name: Boxes(tuple(shape), [(offset, values)])})

            fill_quantized(piece, read)


def note_base(run: Path, source: WeightSource | SeededSource) -> None:
    """Write down what the frozen weights of a run are, or refuse others than it began with."""
    if isinstance(source, SeededSource):
        return
    path = run / BASE_FILE
    known = read_json(path, "the frozen weights of a run") if path.is_file() else None
    stamps = {file.name: [file.stat().st_size, file.stat().st_mtime_ns] for file in _weight_files(source.folder)}
    if known is not None and known.get("stamps") == stamps and known.get("folder") == str(source.folder.absolute()):
        return
    digest = hashlib.sha256()
    for file in _weight_files(source.folder):
        with file.open("rb") as opened:
            while block := opened.read(BLOCK):
                digest.update(block)
    if known is not None and known.get("sha256") != digest.hexdigest():
        raise HeddleError(
            f"The weights in {source.folder} are not those that {run} began with.",
            f"Their SHA-256 is {digest.hexdigest()[:16]}…; {path} has {str(known.get('sha256'))[:16]}….",
            "Adapters belong to the weights beside which they learned: name those as train.from.",
        )
    about = {"folder": str(source.folder.absolute()), "sha256": digest.hexdigest(), "stamps": stamps}
    replace_text(path, json.dumps(about, indent=2) + "\n")


def _weight_files(folder: Path) -> list[Path]:
    return sorted([*folder.glob("*.safetensors"), *folder.glob(INDEX)])


# -------------------------------------------------------------------------------------------------------------- PEFT


def peft_name(model: ModelSpec, linear: str, target: str) -> str:
    """What PEFT calls the module beside which an adapter stands."""
    _, layer, place = linear.split(".", 2)
    theirs = names_of(model).modules[f"layers.{{}}.{place}"]
    name = theirs if isinstance(theirs, str) else theirs["qkv".index(target)]
    if MODULES.get(name.rpartition(".")[2]) != target:
        raise HeddleError(
            f"PEFT has no adapter of its own for '{target}' of this model.",
            f"Its module there is {name.rpartition('.')[2]}; Heddle's names are those of Llama's family.",
            "Export the weights with adapters added instead: heddle export hf RUN -o FOLDER.",
        )
    return name.format(layer)


def export_peft(path: Path, output: Path, warn: Warn, base: str | None = None) -> Path:
    """Write the adapters of a run or a checkpoint as PEFT reads them: a description and safetensors."""
    checkpoint = newest_good(Run(path).checkpoints, Mesh(), warn) if is_run(path) else path
    if not (checkpoint / JOB).is_file():
        raise no_start(path)
    job = load_job(checkpoint / JOB)
    if job.tune is None:
        raise HeddleError(
            f"{checkpoint} has no adapters.",
            "Its run had no [tune]: all of the model learned.",
            f"Export the weights: heddle export hf {checkpoint} -o FOLDER.",
        )
    if job.tune.also:
        raise HeddleError(
            f"The run also trained {', '.join(job.tune.also)}.",
            "PEFT's folder would hold the adapters alone, and compute something else.",
            "Export the merged weights instead: heddle export hf RUN -o FOLDER.",
        )
    lora, index = job.tune.adapters, read_index(checkpoint)
    tensors: dict[str, Tensor] = {}
    for linear, target, name, a, b in adapter_names(job.model, lora):
        values = torch.empty(a), torch.empty(b)
        state = {f"{name}.{kind}": Boxes(x.shape, [((0, 0), x)]) for kind, x in zip((A, B), values, strict=True)}
        WeightSource(checkpoint, job.model, {each: index[each] for each in state}, SafetensorsReader, None).load(state)
        for kind, x in zip(("A", "B"), values, strict=True):
            tensors[f"{PREFIX}{peft_name(job.model, linear, target)}.lora_{kind}.weight"] = x
    with new_folder(output) as folder:
        write_file(folder / WEIGHTS, tensors.items(), {"format": "pt"})
        config = config_of(lora, base or job.train.start_from)
        (folder / CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    return output


@torch.no_grad()
def load_peft(folder: Path, model: ModelSpec, lora: Lora, pieces: list[Piece]) -> None:
    """Fill adapters from a folder of PEFT's."""
    trained = lora_of(folder).scale
    if not math.isclose(trained, lora.scale):
        raise HeddleError(
            f"tune.lora scales adapters by {lora.scale:g}; those in {folder} were trained with {trained:g}.",
            "With another scale they compute something else.",
            "Leave tune.lora out: the folder brings its own.",
        )
    places = {
        f"{name}.{kind}": (f"{PREFIX}{peft_name(model, linear, target)}.lora_{letter}.weight", shape)
        for linear, target, name, a, b in adapter_names(model, lora)
        for kind, letter, shape in ((A, "A", a), (B, "B", b))
    }
    if not (folder / WEIGHTS).is_file():
        raise HeddleError(f"{folder} has no {WEIGHTS}.", "Heddle never unpickles anything.", "Save it as safetensors.")
    try:
        opened = open_tensors(folder / WEIGHTS)
    except (OSError, SafetensorError) as error:
        raise HeddleError(
            f"{folder / WEIGHTS} cannot be read as safetensors.", f"{error}.", "It is damaged: copy or write it again."
        ) from None
    with opened as file:
        held = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
        whole = [name for name in held if "F" not in file.get_slice(name).get_dtype()]  # BF16, F32, F8_E4M3, …
        if whole:
            raise HeddleError(
                f"{folder / WEIGHTS}: {whole[0]} is of type {file.get_slice(whole[0]).get_dtype()}.",
                "Adapters are real numbers.",
                "Save them as float32, float16 or bfloat16.",
            )
        wanted = dict(places.values())
        wrong = [name for name, shape in wanted.items() if held.get(name) != shape]
        wrong += [name for name in held if name not in wanted]
        if wrong:
            raise HeddleError(
                f"{folder / WEIGHTS} does not hold the adapters that {CONFIG} describes.",
                f"{wrong[0]} is {held.get(wrong[0], 'not there')}, wanted {wanted.get(wrong[0], 'nothing')}.",
                "Do the adapters belong to this model?",
            )
        for piece in pieces:
            if f".{ADAPTER}." in piece.name:
                whole = file.get_tensor(places[piece.name][0]).float()
                for offset, part in boxes_of(piece, piece.master):
                    place = tuple(slice(at, at + size) for at, size in zip(offset, part.shape, strict=True))
                    part.copy_(whole[place])
                if piece.target is not None:
                    piece.target.copy_(piece.master)

"""Measured training runs: rows of a CSV file with one header, read into what the cost functions take.

People write GPUs, precisions and ZeRO levels in many ways; this reads them tolerantly, and what cannot be modeled is
told with its reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from heddle.calibrate.row_experts import expert_plan, refuse_unstated, with_experts, with_latents
from heddle.calibrate.row_header import read_csv
from heddle.calibrate.row_software import context_exchange, row_kernels, software_of, with_notes
from heddle.calibrate.row_words import (
    CannotModelError,
    adapted,
    cluster_of,
    count_of,
    network_of,
    number_of,
    shard_ranks,
)
from heddle.cost.model_columns import model_columns
from heddle.cost.software import attention_speed, software_columns
from heddle.cost.work import ELEMENT, Work
from heddle.errors import HeddleError
from heddle.format import GIB
from heddle.spec.axes import AXES
from heddle.spec.cluster import Cluster
from heddle.spec.model import ModelSpec
from heddle.spec.software import HEDDLE, Software
from heddle.spec.tune import Lora, Tune

NEEDED = ("step_s", "layers", "hidden", "heads", "vocab", "seq", "gbs", "tp", "pp", "dp", "gpu", "n_gpus")
PACKED = 512  # tokens of a document that is packed with others for fine-tuning, where a row does not say
DENSE = 1.5  # times as many parameters as a dense model of that shape: it has experts, or its shape is wrong


@dataclass(frozen=True)
class Row:
    """One measured run: what was trained, on what, and what was found."""

    id: str
    group: str
    work: Work
    cluster: Cluster
    seconds: float
    memory_gib: float | None
    assumed: tuple[str, ...] = ()  # what the source does not say
    software: Software = HEDDLE  # what trained it
    network: float | None = None  # GB/s of a device to other nodes, where the row states it
    allocated: bool = False  # memory is what tensors had, without what the allocator could not use


def read_rows(
    path: Path, cluster: Cluster | None = None, fallback: Cluster | None = None
) -> tuple[list[Row], list[tuple[str, str]]]:
    """Runs that can be modeled, and for all others their id and the reason.

    Rows run on `cluster`; without it on the preset of their GPU, and where there is none on `fallback`.
    """
    header, tables = read_csv(path)
    missing = [name for name in NEEDED if name not in header]
    if missing:
        raise HeddleError(
            f"{path} lacks the column{'s' * (len(missing) > 1)} {', '.join(missing)}.",
            f"A row of measured runs has at least {', '.join(NEEDED)}.",
            "docs/decide/calibration.md lists all columns.",
        )
    if not tables:
        raise HeddleError(f"{path} has no rows.", "It only has a header.", "Add measured runs.")
    rows, skipped = [], []
    for number, table in enumerate(tables):
        name = table.get("id") or f"row {number + 1}"
        try:
            rows.append(read_row(name, table, cluster, fallback))
        except CannotModelError as why:
            skipped.append((name, str(why)))
        except HeddleError as error:
            skipped.append((name, f"{error.what} {error.why}".strip()))
    return rows, skipped


def read_row(
    name: str, table: Mapping[str, str], cluster: Cluster | None = None, fallback: Cluster | None = None
) -> Row:
    """One run; CannotModelError says why not."""
    text = {key: (value or "").strip() for key, value in table.items() if key is not None}
    seconds = number_of(text, "step_s")
    if not seconds > 0:
        raise CannotModelError(f"its step_s is {text['step_s'] or 'empty'}")
    refuse_unstated(text)
    assumed: list[str] = []
    software = with_notes(software_of(text, assumed), text)
    model = _model(text)
    plan = _plan(text, software, assumed)
    plan |= expert_plan(text, plan, model)
    _check_split(plan, model)
    world = prod(plan.get(axis, 1) for axis in AXES)
    devices = count_of(text, "n_gpus", world)
    if world != devices:
        raise CannotModelError(f"its degrees make {world} devices, but n_gpus says {devices}")
    machine = cluster_of(text, fallback) if cluster is None else adapted(cluster, text)
    machine = replace(machine, nodes=max(1, -(-devices // machine.devices)))
    if not text.get("precision"):
        assumed.append("precision = bf16")
    numbers = _numbers(text.get("precision") or "bf16", software, text)
    for precision in (numbers["precision"], *(["fp8"] if numbers["fp8"] else [])):
        if machine.device.tflops.flops(precision) is None:
            raise CannotModelError(f"no {precision} peak is known for {machine.device.name}")
    work = _work(text, software, model, plan, numbers, machine, assumed)
    return Row(
        name,
        _group(text, plan),
        work,
        machine,
        seconds,
        _held(text),
        tuple(assumed),
        software,
        network_of(text, machine.devices),
        "allocated" in text.get("notes", "").lower() or "kempnerforge" in text.get("framework", "").lower(),
    )


def _work(
    text: Mapping[str, str],
    software: Software,
    model: ModelSpec,
    plan: dict[str, Any],
    numbers: dict[str, Any],
    machine: Cluster,
    assumed: list[str],
) -> Work:
    facts, attention = software.facts, text.get("attn", "").lower()
    kernels = row_kernels(software, text, model)
    changed: dict[str, Any] = {"dropout": int(not kernels.fused), "document": _document(text, assumed)}
    changed["fused_adapters"] = int(facts.kernels == "heddle")
    if facts.kernels.startswith("megatron"):  # pads the vocabulary so that every rank's part is a multiple of 128
        changed["vocab"] = -(-model.vocab // (128 * plan["tensor"])) * 128 * plan["tensor"]
    columns = software_columns(facts)
    if facts.kernels == "torchtitan":
        columns["waits_backward"] = facts.waits_backward * (1 - facts.tensor_overlap)
    work = Work(
        **{**model_columns(model, model.sequence, _tune(text)), **changed},
        **plan,
        **numbers,
        **columns,
        batch=count_of(text, "gbs"),
        shard_ranks=shard_ranks(text, machine.devices),
        **kernels.columns(),
        attention_speed=attention_speed(facts, machine.device, attention, software.hopper_attention is not None),
    )
    if work.microbatches < 1 or work.microbatches % 1:
        raise CannotModelError(
            f"a batch of {work.batch} does not split over dp = {work.data} × mbs = {work.microbatch}"
        )
    return work


def _tune(text: Mapping[str, str]) -> Tune | None:
    """Adapters of the rank that a row states, beside all linear layers: a frozen model, perhaps in four bits."""
    rank = count_of(text, "lora", 0, least=0)
    if not rank:
        return None
    return Tune(lora=Lora(rank=rank), base="nf4" if "nf4" in text.get("notes", "").lower() else None)


def _document(text: Mapping[str, str], assumed: list[str]) -> float:
    """Tokens of a document, where several that do not see each other are packed into a sample."""
    if text.get("document"):
        return count_of(text, "document")
    notes = text.get("notes", "").lower()
    if "packed" not in notes or "unpacked" in notes or "not packed" in notes:
        return np.inf
    assumed.append(f"document = {PACKED}")
    return PACKED


def _check_split(plan: dict[str, Any], model: ModelSpec) -> None:
    """Refuse what no run can have been."""
    if model.heads % plan["tensor"]:
        raise CannotModelError(f"tp = {plan['tensor']} does not divide {model.heads} heads")
    chunks = plan["pipeline"] * plan["virtual"]
    if chunks > model.layers:
        raise CannotModelError(f"pp × vpp = {chunks} stages for {model.layers} layers")
    if model.sequence % plan["context"]:
        raise CannotModelError(f"cp = {plan['context']} does not divide {model.sequence} tokens")


def _held(text: Mapping[str, str]) -> float | None:
    """GiB of the fullest device."""
    if gib := number_of(text, "mem_gib", 0.0):
        return gib
    held = number_of(text, "mem_gb", 0.0)
    return (held if "gib" in text.get("notes", "").lower() else held * 1e9 / GIB) or None


def _group(text: Mapping[str, str], plan: dict[str, Any]) -> str:
    group, framework = text.get("dataset") or text.get("framework") or "all", text.get("framework", "").lower()
    if "zero" in framework or (plan["zero"] == 3 and re.search("megatron|deepspeed", framework)):
        group += " ZeRO-3"
    group += " experts" * (number_of(text, "experts", 0) > 1)
    return f"{group} context" if plan["context"] > 1 else group


def stack(works: Iterable[Work]) -> Work:
    """One work whose columns are arrays; all must share their precision, and how evenly experts are used."""
    every = list(works)
    first = every[0]
    assert all(work.precision == first.precision for work in every)
    assert not any(work.shapes for work in every), "a row's layers are all alike"
    names = [field.name for field in fields(Work) if field.name not in ("precision", "spread", "shapes", "shape_of")]
    columns: dict[str, Any] = {name: np.array([getattr(work, name) for work in every]) for name in names}
    return replace(first, **columns)


def _model(text: Mapping[str, str]) -> ModelSpec:
    return with_latents(with_experts(_dense_model(text), text), text)


def _dense_model(text: Mapping[str, str]) -> ModelSpec:
    sizes = {name: count_of(text, name) for name in ("layers", "hidden", "heads", "vocab")}
    sizes["sequence"] = count_of(text, "seq")
    sizes["kv_heads"] = count_of(text, "kv_heads", sizes["heads"])
    sizes["ffn"] = count_of(text, "ffn", 4 * sizes["hidden"])
    sizes["head_size"] = count_of(text, "head_size", 0, least=0)
    plain = ModelSpec(**sizes)  # type: ignore[arg-type]
    gated = replace(plain, activation="swiglu", positions="rotary", norm="rmsnorm", bias="none", tied=False)
    stated = number_of(text, "params_b", 0.0) * 1e9
    if stated and number_of(text, "experts", 0) <= 1:  # the count tells two matrices in the MLP from three
        nearest = min((plain, gated), key=lambda model: abs(model.parameters - stated))
        if stated > DENSE * nearest.parameters:
            raise CannotModelError(
                f"{stated / 1e9:g} B parameters, where a dense model of its shape has {nearest.parameters / 1e9:.3g} B"
            )
        return nearest
    llama = any(word in text.get("model", "").lower() for word in ("llama", "mistral", "qwen", "gemma", "olmo"))
    # Models that share keys and values are mostly Llama's kind. Those with an MLP of just four times the width, such as
    # Nemotron, Falcon and StarCoder, are not: a gate's third matrix makes others choose a narrower one.
    shares = sizes["kv_heads"] < sizes["heads"] and not (text.get("ffn") and sizes["ffn"] == 4 * sizes["hidden"])
    return gated if llama or shares else plain


def _plan(text: Mapping[str, str], software: Software, assumed: list[str]) -> dict[str, Any]:
    framework, notes = text.get("framework", "").lower(), text.get("notes", "").lower()
    plan: dict[str, Any] = {name: count_of(text, axis, 1) for name, axis in (("tensor", "tp"), ("pipeline", "pp"))}
    plan["context"] = count_of(text, "cp", 1)
    plan["context_exchange"] = context_exchange(software, text)
    replicas = count_of(text, "n_gpus", 1) // (plan["tensor"] * plan["pipeline"] * plan["context"])
    plan["data"] = count_of(text, "dp", max(1, replicas))
    if plan["context"] > 1 and plan["data"] == replicas * plan["context"]:
        plan["data"] = replicas  # some count those who share samples among the replicas
    virtual = count_of(text, "vpp", 0, least=0)
    if not virtual:
        interleaved = plan["pipeline"] > 1 and ("interleaved" in notes or "ptd-p" in framework)
        each = count_of(text, "layers") // plan["pipeline"]
        fewest = 2 if "torchtitan" in framework else next((n for n in range(2, each + 1) if each % n == 0), 1)
        virtual = fewest if interleaved else 1
        if plan["pipeline"] > 1:
            assumed.append(f"vpp = {virtual}")
    layers = count_of(text, "layers")
    if layers < plan["pipeline"] * virtual <= layers + 2 and virtual > 1:
        # embedding and loss are counted as layers, and two chunks have nothing else (405B with 126 layers in 128)
        virtual -= 1
        assumed.append(f"vpp = {virtual}")
    plan["virtual"] = virtual
    samples = count_of(text, "gbs") // plan["data"]
    if not samples:
        raise CannotModelError(f"gbs = {count_of(text, 'gbs')} leaves replicas of dp = {plan['data']} without a sample")
    # torchtitan cuts a replica's batch into as many microbatches as there are stages, unless told otherwise
    stages = plan["pipeline"] * virtual if "torchtitan" in framework else samples
    plan["microbatch"] = count_of(text, "mbs", max(1, samples // stages))
    if not text.get("mbs"):
        assumed.append(f"mbs = {plan['microbatch']}")
    zero = text.get("zero", "").lower()
    level = re.search(r"\d", zero.replace("fsdp2", "fsdp"))
    plan["zero"] = int(level[0]) if level else 3 * ("fsdp" in zero) or int("dist" in zero or zero in ("true", "yes"))
    if not zero and software.facts.gather_overlap and software.profile.startswith("megatron"):
        plan["zero"] = 1  # its distributed optimizer
        assumed.append("zero = 1")
    if plan["zero"] > 3:
        raise CannotModelError(f"zero = {zero!r} is not from 0 to 3")
    if plan["zero"] > 1 and plan["pipeline"] > 1:
        plan |= {"zero": 1, "summed_apart": 1}  # with a pipeline, FSDP gathers and sums its shards once per step
    recompute = text.get("recompute", "none").lower() or "none"
    recompute = {"no": "none", "off": "none", "true": "full", "yes": "full", "1": "full"}.get(recompute, recompute)
    per_op = "selective" in recompute and ("op" in recompute or framework == "torchtitan")
    if not any(word in recompute for word in ("none", "full", "selective", "elementwise", "0", "false")):
        raise CannotModelError(f"recompute = {recompute!r} is not known")
    plan["full"] = float("full" in recompute)
    plan["per_op"] = float(per_op)
    plan["keeps_qkv"] = int("save_qkv_proj" in notes or "save_qkv_proj" in recompute)
    plan["elementwise"] = float("elementwise" in recompute)
    plan["selective"] = float("selective" in recompute and not per_op)
    sequence = text.get("seq_par", "").lower() in ("1", "1.0", "true", "yes", "on")
    if not text.get("seq_par") and software.facts.sequence:
        sequence = True
        assumed.extend(["seq_par = 1"] * (plan["tensor"] > 1))
    plan["sequence_parallel"] = int(sequence and plan["tensor"] > 1)
    return plan


def _numbers(precision: str, software: Software, text: Mapping[str, str]) -> dict[str, Any]:
    word, framework = precision.lower(), text.get("framework", "").lower()
    word = word.replace("bfloat", "bf").replace("float", "fp").replace("half", "fp16").replace("mxfp8", "fp8")
    base = next((name for name in ("bf16", "fp16", "fp32") if name in word), "bf16" if "fp8" in word else "")
    if not base:
        raise CannotModelError(f"precision = {precision!r} is not known")
    if "rowwise" in word:
        raise CannotModelError("8-bit products with one scale per row are not modeled")
    pure = "pure" in word or (base == "fp16" and "megatron" in framework)  # gradients as short as weights
    # NeMo's recipes keep and send gradients in bf16 (grad_reduce_in_fp32 = False); Megatron-LM by itself in fp32
    named = re.search(r"nemo|bridge|dgxc|internevo", framework) is not None
    short = pure or (software.facts.reduces < 4 and named)
    numbers = {"precision": base, "fp8": int("fp8" in word)} | dict.fromkeys(
        ("gradient_bytes", "reduce_bytes"), 2 if short else 4
    )
    if "kempnerforge" in framework:  # distributed/parallel.py casts the model to 16 bits before there is an optimizer
        return numbers | {"pure": 1, "gradient_bytes": ELEMENT[base]}
    return numbers | {"pure": int("pure" in word)}

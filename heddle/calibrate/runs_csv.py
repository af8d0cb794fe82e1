"""Measured training runs: rows of a CSV file with one header, read into what the cost functions take.

People write GPUs, precisions and ZeRO levels in many ways; this reads them tolerantly, and what cannot be modelled is
told with its reason.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from heddle.calibrate.row_words import CannotModelError, cluster_of, count_of, number_of
from heddle.cost.kernels import (
    HEDDLE_GPU,
    MEGATRON,
    MEGATRON_2021,
    TORCHTITAN,
    TORCHTITAN_2025,
    TORCHTITAN_EAGER,
    Kernels,
)
from heddle.cost.work import Work, model_columns
from heddle.errors import HeddleError
from heddle.files import read_text
from heddle.format import GIB
from heddle.spec.cluster import Cluster
from heddle.spec.model import ModelSpec
from heddle.spec.plan import AXES

NEEDED = ("step_s", "layers", "hidden", "heads", "vocab", "seq", "gbs", "tp", "pp", "dp", "gpu", "n_gpus")
TRITON_SPEED = 0.5  # of FlashAttention-2: "around 2× speedup" over what came before it (arXiv 2307.08691, abstract)
LARGEST = 64 << 20  # bytes of a file


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


def read_csv(path: Path) -> tuple[list[str], list[dict[str, str]]]:
    """The header and the rows of a CSV file."""
    text = read_text(path, "measured runs, as CSV", LARGEST)
    try:
        reader = csv.DictReader(io.StringIO(text, newline=""))
        rows = list(reader)
        header = list(reader.fieldnames or ())
    except csv.Error as error:
        raise HeddleError(
            f"{path} is not a CSV file.", f"Line {reader.line_num}: {error}.", "Give measured runs."
        ) from None
    return header, rows


def read_rows(
    path: Path, cluster: Cluster | None = None, fallback: Cluster | None = None
) -> tuple[list[Row], list[tuple[str, str]]]:
    """Runs that can be modelled, and for all others their id and the reason.

    Rows run on `cluster`; without it on the preset of their GPU, and where there is none on `fallback`.
    """
    header, tables = read_csv(path)
    missing = [name for name in NEEDED if name not in header]
    if missing:
        raise HeddleError(
            f"{path} lacks the column{'s' * (len(missing) > 1)} {', '.join(missing)}.",
            f"A row of measured runs has at least {', '.join(NEEDED)}.",
            "See docs/decide/calibration.md for all of them.",
        )
    if not tables:
        raise HeddleError(f"{path} has no rows.", "It has a header only.", "Add measured runs.")
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
    if (experts := number_of(text, "ep", 1)) > 1:
        raise CannotModelError(f"expert parallelism (ep = {experts:g}) is not modelled")
    if (pieces := number_of(text, "cp", 1)) > 1:
        raise CannotModelError(f"context parallelism (cp = {pieces:g}) is not modelled")
    framework, notes = text.get("framework", "").lower(), text.get("notes", "").lower()
    assumed: list[str] = []
    model = _model(text)
    plan = _plan(text, framework, notes, assumed)
    world = prod(plan[axis] for axis in AXES)
    devices = count_of(text, "n_gpus", world)
    if world != devices:
        raise CannotModelError(f"its degrees make {world} devices, n_gpus says {devices}")
    if not text.get("precision"):
        assumed.append("precision = bf16")
    numbers = _numbers(text.get("precision") or "bf16", framework)
    attention = text.get("attn", "").lower()
    megatron = any(word in framework for word in ("megatron", "deepspeed"))
    beside = "asynctp" in notes.replace(" ", "")
    year = _published(text)
    early = year < 2022
    changed = {"dropout": int(attention == "unfused")}
    if megatron:  # pads the vocabulary so that every rank's part is a multiple of 128
        changed["vocab"] = -(-model.vocab // (128 * plan["tensor"])) * 128 * plan["tensor"]
    work = Work(
        **{**model_columns(model, model.sequence), **changed},
        **plan,
        **numbers,
        batch=count_of(text, "gbs"),
        **_kernels(framework, notes, attention, year, model).columns(),
        attention_speed=TRITON_SPEED if "triton" in attention else 1.0,
        stops_early=int("torchtitan" in framework),
        waits_backward=float("megatron" in framework and early)
        or float("torchtitan" in framework) * (1 - 0.5 * beside),
        regather=int("deepspeed" in framework),
        tensor_overlap=0.5 * beside,
        data_overlap=int(not megatron),
    )
    if work.microbatches < 1 or work.microbatches % 1:
        raise CannotModelError(
            f"a batch of {work.batch} does not split over dp = {work.data} × mbs = {work.microbatch}"
        )
    machine = cluster or cluster_of(text, fallback)
    machine = replace(machine, nodes=max(1, -(-devices // machine.devices)))
    held = number_of(text, "mem_gb", 0.0)
    if held and "gib" not in notes:
        held *= 1e9 / GIB
    group = text.get("dataset") or text.get("framework") or "all"
    if "zero" in framework or (plan["zero"] == 3 and megatron):
        group += " ZeRO-3"
    return Row(name, group, work, machine, seconds, held or None, tuple(assumed))


def _kernels(framework: str, notes: str, attention: str, year: float, model: ModelSpec) -> Kernels:
    """What is known of a framework's kernels; of others, what Heddle's own are."""
    if "torchtitan" in framework:
        compiled = TORCHTITAN if year < 2025 else TORCHTITAN_2025
        found = TORCHTITAN_EAGER if "eager" in notes else compiled
    elif "megatron" in framework:
        found = MEGATRON_2021 if year < 2022 else MEGATRON
    else:
        found = HEDDLE_GPU._replace(eager=int("eager" in notes))
    return found._replace(fused=int(attention != "unfused"), eager=found.eager * int(model.norm == "rmsnorm"))


def stack(works: Iterable[Work]) -> Work:
    """One work whose columns are arrays; all must share their precision."""
    every = list(works)
    first = every[0]
    assert all(work.precision == first.precision for work in every)
    names = [field.name for field in fields(Work) if field.name not in ("precision", "shapes", "shape_of")]
    columns: dict[str, Any] = {name: np.array([getattr(work, name) for work in every]) for name in names}
    return replace(first, **columns)


def _published(text: Mapping[str, str]) -> float:
    """The year of the paper that a row is from: Megatron-LM got faster in ways that its users do not name."""
    found = re.search(r"arxiv:\s*(\d\d)\d\d\.\d|_20(\d\d)\d\d[_.]", text.get("source", ""), re.IGNORECASE)
    return 2000 + int(found[1] or found[2]) if found else np.inf


def _model(text: Mapping[str, str]) -> ModelSpec:
    sizes = {name: count_of(text, name) for name in ("layers", "hidden", "heads", "vocab")}
    sizes["sequence"] = count_of(text, "seq")
    sizes["kv_heads"] = count_of(text, "kv_heads", sizes["heads"])
    sizes["ffn"] = count_of(text, "ffn", 4 * sizes["hidden"])
    plain = ModelSpec(**sizes)  # type: ignore[arg-type]
    gated = replace(plain, activation="swiglu", positions="rotary", norm="rmsnorm", bias="none", tied=False)
    stated = number_of(text, "params_b", 0.0) * 1e9
    if stated:  # the count tells two matrices in the MLP from three
        return min((plain, gated), key=lambda model: abs(model.parameters - stated))
    llama = any(word in text.get("model", "").lower() for word in ("llama", "mistral", "qwen", "mixtral"))
    return gated if llama or sizes["kv_heads"] < sizes["heads"] else plain


def _plan(text: Mapping[str, str], framework: str, notes: str, assumed: list[str]) -> dict[str, Any]:
    plan: dict[str, Any] = {"tensor": count_of(text, "tp", 1), "pipeline": count_of(text, "pp", 1)}
    replicas = count_of(text, "n_gpus", 1) // (plan["tensor"] * plan["pipeline"])
    plan["data"] = count_of(text, "dp", max(1, replicas))
    virtual = count_of(text, "vpp", 0, least=0)
    if not virtual:
        interleaved = plan["pipeline"] > 1 and ("interleaved" in notes or "ptd-p" in framework)
        each = count_of(text, "layers") // plan["pipeline"]
        fewest = 2 if "torchtitan" in framework else next((n for n in range(2, each + 1) if each % n == 0), 1)
        virtual = fewest if interleaved else 1
        if plan["pipeline"] > 1:
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
    plan["zero"] = int(level[0]) if level else 3 * ("fsdp" in zero)
    if plan["zero"] > 1 and plan["pipeline"] > 1:
        plan |= {"zero": 1, "summed_apart": 1}  # with a pipeline, FSDP gathers and sums its shards once per step
    recompute = text.get("recompute", "none").lower() or "none"
    per_op = "selective" in recompute and ("op" in recompute or framework == "torchtitan")
    if not any(word in recompute for word in ("none", "full", "selective", "0", "false")):
        raise CannotModelError(f"recompute = {recompute!r} is not known")
    plan["full"] = float("full" in recompute)
    plan["per_op"] = float(per_op)
    plan["selective"] = float("selective" in recompute and not per_op)
    sequence = text.get("seq_par", "").lower() in ("1", "1.0", "true", "yes")
    plan["sequence_parallel"] = int(sequence and plan["tensor"] > 1)
    return plan


def _numbers(precision: str, framework: str) -> dict[str, Any]:
    word = precision.lower()
    base = next((name for name in ("bf16", "fp16", "fp32") if name in word), "bf16" if "fp8" in word else "")
    if not base:
        raise CannotModelError(f"precision = {precision!r} is not known")
    if "rowwise" in word:
        raise CannotModelError("8-bit products with a scale for each row are not modelled")
    pure = "pure" in word or (base == "fp16" and "megatron" in framework)  # gradients as short as weights
    return {
        "precision": base,
        "fp8": int("fp8" in word),
        "gradient_bytes": 2 if pure else 4,
        "reduce_bytes": 2 if pure else 4,
    }

"""The software of a measured run: by its column `software`, else by the words and the date of its source."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from heddle.calibrate.row_words import CannotModelError, number_of
from heddle.cost.kernels import HEDDLE_GPU, MEGATRON_FUSED_LOSS, TORCHTITAN_2025, TORCHTITAN_EAGER, Kernels
from heddle.cost.software import kernels_of
from heddle.errors import HeddleError
from heddle.spec.model import ModelSpec
from heddle.spec.software import CONTEXT_EXCHANGES, FACTS, PROFILES, ContextExchange, Software

CORE = "megatron-core 0.8+"
WORDS = (  # of a framework, with the profile that each stands for; the first that is found counts
    ("kempnerforge", "kempnerforge"),
    ("dualpipe|hai-llm", "deepseek-v3"),
    ("torchtitan|fsdp2", "torch FSDP2"),
    (r"\bmeta\b|llama.?3", "llama 3"),
    ("nanotron|picotron", "nanotron"),
    ("internevo|internlm", "internevo"),
    (r"maxtext|\bjax\b|\bxla\b", "maxtext"),
    ("megatron.?core|mcore|nemo|bridge|dgxc|dgx cloud|transformer.?engine", CORE),
    ("deepspeed|zero", "megatron-deepspeed 2022"),
    ("fsdp|foundry|composer|mosaic|\\bddp\\b", "torch FSDP"),
    ("heddle", "heddle"),
)
CONTEXT_WORDS: tuple[tuple[str, ContextExchange], ...] = (
    ("a2a|all.?to.?all|ulysses", "all-to-all"),
    ("torch", "torch"),
    ("gather", "gather"),
    ("ring|p2p", "ring"),
)
OVERLAPS = {  # what is meant by words about overlap
    "tensor": ("tensor_overlap",),
    "pipeline": ("pipeline_overlap",),
    "gradient": ("data_overlap", "gather_overlap"),
    "parameter": ("gather_overlap",),
}
# cuDNN 9.0 (February 2024, "up to 2x on H100") reached containers in the spring, FlashAttention-3 came in July 2024
HOPPER_ATTENTION = 2024 + 4 / 12
YES_OR_NO = {"fused_accumulation", "sliced_messages", "fused_kernels", "sums_once"}  # facts that are one or the other
YES_OR_NO |= {"expert_by_node", "expert_fp8", "dispatch_fp8"}
YES, NO = ("1", "1.0", "true", "yes", "on", "y"), ("0", "0.0", "false", "no", "off", "n")


def published(text: Mapping[str, str]) -> float:
    """The year of the paper that a row is from: Megatron-LM got faster in ways that its users do not name."""
    found = re.search(r"arxiv[:\s./a-z]*?(\d\d)\d\d\.\d|_20(\d\d)\d\d[_.]", text.get("source", ""), re.IGNORECASE)
    return 2000 + int(found[1] or found[2]) if found else np.inf


def software_of(text: Mapping[str, str], assumed: list[str]) -> Software:
    """The software of a row, with what its columns say otherwise."""
    said = text.get("software", "")
    if said:
        name = _named(said)
    else:
        name = _guessed(text)
        assumed.append(f"software = {name}")
    facts: dict[str, Any] = {}
    for fact in FACTS:
        if value := text.get(fact, "").lower():
            facts[fact] = _fact(text, fact, value)
    try:
        return Software(profile=name, **facts)
    except HeddleError as error:
        raise CannotModelError(error.what.removesuffix(".")) from None


def _named(said: str) -> str:
    plain = re.sub(r"[^a-z0-9]+", "", said.lower())
    for name in PROFILES:
        known = re.sub(r"[^a-z0-9]+", "", name.lower())
        if plain in (known, re.sub(r"\d+$", "", known)):
            return name
    raise CannotModelError(f"software = {said!r} is not a profile ({', '.join(PROFILES)})")


def _guessed(text: Mapping[str, str]) -> str:
    framework, year = text.get("framework", "").lower(), published(text)
    for words, name in WORDS:
        if re.search(words, framework):
            return name
    if "2407.21783" in text.get("source", ""):
        return "llama 3"
    hopper = re.search(r"h100|h20|h800|b200|b300", text.get("gpu", "").lower()) is not None
    if "megatron" in framework or "megascale" in framework:
        if hopper or (year >= 2024 and year < np.inf and "megascale" in framework):
            return CORE
        return "megatron-lm 2021" if year < 2022 else "megatron-lm 2022"
    split = any(number_of(text, axis, 1) > 1 for axis in ("pp", "cp"))
    return CORE if hopper and split else "heddle"


def _fact(text: Mapping[str, str], fact: str, value: str) -> Any:
    if fact == "fp8_casts":
        if value not in ("step", "microbatch"):
            raise CannotModelError(f"fp8_casts = {value!r} is neither 'step' nor 'microbatch'")
        return value
    if fact in YES_OR_NO:
        if value not in YES + NO:
            raise CannotModelError(f"{fact} = {value!r} is neither yes nor no")
        return value in YES
    if fact.endswith("overlap") and value in YES + NO:
        return float(value in YES)
    return number_of(text, fact)


def row_kernels(software: Software, text: Mapping[str, str], model: ModelSpec) -> Kernels:
    """The kernels of a row: its software's, changed by what its notes and its date say."""
    facts, notes = software.facts, text.get("notes", "").lower()
    found = kernels_of(facts)
    if facts.kernels == "torchtitan":
        found = TORCHTITAN_2025 if published(text) >= 2025 else found
        found = TORCHTITAN_EAGER if "eager" in notes else found
    elif facts.kernels == "kempnerforge":
        found = found._replace(eager=int("eager" in notes))
    elif facts.kernels == "megatron" and _fuses_loss(text):
        found = MEGATRON_FUSED_LOSS._replace(adds_in_place=found.adds_in_place)
    elif facts.kernels == "heddle":
        found = found._replace(eager=int("eager" in notes))
    if software.profile == "megatron-deepspeed 2022" and "megatron" not in text.get("framework", "").lower():
        found = HEDDLE_GPU._replace(adds_in_place=found.adds_in_place)  # DeepSpeed by itself brings no kernels
    unfused = re.search(r"unfused|naive|eager|math", text.get("attn", "").lower()) is not None
    fused = int(not unfused and facts.fused_kernels)
    return found._replace(fused=fused, eager=found.eager * int(model.norm == "rmsnorm"))


def _fuses_loss(text: Mapping[str, str]) -> bool:
    """Whether output layer and loss are Transformer Engine's: as said, and in all recipes of Megatron Bridge."""
    said = re.search(r"fused (cross.?entropy|loss)|cross.?entropy fusion", text.get("notes", ""), re.IGNORECASE)
    return said is not None or "bridge" in text.get("framework", "").lower()


def _own_casts(text: Mapping[str, str]) -> bool:
    """Whether casts to 8 bits are kernels of their own: with MXFP8, and where tensors are scaled by what they hold now.

    That is the "fp8" of Megatron Bridge's recipes, and of others where they say so.
    """
    said = f"{text.get('framework', '')} {text.get('precision', '')} {text.get('notes', '')}".lower()
    return re.search(r"bridge|mxfp8|fp8.?cs|current.?scaling", said) is not None and "delayed" not in said


def with_notes(software: Software, text: Mapping[str, str]) -> Software:
    """What a row says of its software in other words than the names of facts; a column of that name counts more.

    Asynchronous tensor parallelism hides about half of its exchange. Words such as "overlap of tensor and gradient
    exchange off" are believed. Attention is of its time: cuDNN 9 and FlashAttention-3 came in the middle of 2024.
    """
    notes = text.get("notes", "").lower()
    said: dict[str, Any] = {}
    if "asynctp" in notes.replace(" ", "").replace("-", ""):
        said["tensor_overlap"] = 0.5
    precision = text.get("precision", "").lower()
    if software.facts.kernels == "megatron" and "fp8" in precision and _own_casts(text):
        # no norm can write 8 bits before all of its output is known. (Transformer Engine's norms and activations find
        # the largest value on the way, FUSED_NORM_AMAX_FP8; blocks of MXFP8 have their own.)
        said["fused_casts"] = 0.0
    if off := re.search(r"overlap of ([^;.]*) off|no overlap of ([^;.]*)", notes):
        for word, names in OVERLAPS.items():
            if word in (off[1] or off[2]):
                said |= dict.fromkeys(names, 0.0)
    if software.facts.hopper_attention > 1 and released(text) < HOPPER_ATTENTION:
        said["hopper_attention"] = 1.0
    return replace(software, **{name: value for name, value in said.items() if getattr(software, name) is None})


def released(text: Mapping[str, str]) -> float:
    """The year and month, as 2024.25, of a row's software: of a container such as 24.03, else of its paper's number."""
    said = f"{text.get('framework', '')} {text.get('software', '')} {text.get('source', '')} {text.get('notes', '')}"
    found = re.search(
        r"(?:nemo|container|bridge|pytorch|ngc|release)\D{0,12}?\b(2\d)\.(0[1-9]|1[0-2])\b", said, re.IGNORECASE
    )
    found = found or re.search(r"arxiv[:\s./a-z]*?(2\d)(0[1-9]|1[0-2])\.\d", said, re.IGNORECASE)
    return 2000 + int(found[1]) + (int(found[2]) - 1) / 12 if found else np.inf


def context_exchange(software: Software, text: Mapping[str, str]) -> int:
    """How keys and values reach those who share samples: by the row's own words, else by its software."""
    said, notes = text.get("cp_exchange", "").lower(), text.get("notes", "").lower()
    for words, name in CONTEXT_WORDS:
        if re.search(words, said) or (name == "all-to-all" and re.search(words, notes)):
            return CONTEXT_EXCHANGES.index(name)
    if said:
        raise CannotModelError(f"cp_exchange = {said!r} is not one of {', '.join(CONTEXT_EXCHANGES)}")
    return CONTEXT_EXCHANGES.index(software.facts.context_exchange)

"""The manual's table of the longest samples that fit, against the simulation."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from heddle.simulating.simulation import simulate_if_fits
from heddle.spec import Job, ModelSpec, Plan, Train
from heddle.spec.shorthand import cluster_from_table, model_from_table

PAGE = Path(__file__).parents[2] / "docs" / "train" / "long-sequences.md"
STEP = 8192
CONTEXTS = (1, 2, 4, 8)
# the preset of a model, its tensor degree, and nodes of 8 devices
SETTINGS = {"8B": ("llama-3.1-8b", 1, 1), "70B": ("llama-3-70b", 8, 8)}


@cache
def model_of(preset: str) -> ModelSpec:
    return model_from_table({"preset": preset})


def fits(name: str, recompute: str, context: int, sequence: int) -> bool:
    preset, tensor, nodes = SETTINGS[name]
    cluster = cluster_from_table({"preset": "dgx-h100", "nodes": nodes})
    data = 8 * nodes // (tensor * context)
    plan = Plan(tensor=tensor, sequence=tensor > 1, context=context, data=data, zero=3, recompute=recompute)
    model = replace(model_of(preset), sequence=sequence)
    train = Train(global_batch=data, precision="bf16")
    return simulate_if_fits(Job(model=model, train=train, plan=plan, cluster=cluster)) is not None


def longest(name: str, recompute: str, context: int) -> int:
    low, high = 0, 1
    while fits(name, recompute, context, high * STEP):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(name, recompute, context, middle * STEP) else (low, middle)
    return low * STEP


def stated() -> dict[tuple[str, str, int], int]:
    found = {}
    for name, recompute, numbers in re.findall(
        r"^\| (8B|70B)[^|]* \| `\"(\w+)\"` \| ([\d, |]+) \|$", PAGE.read_text("utf-8"), re.M
    ):
        for context, number in zip(CONTEXTS, numbers.split("|"), strict=True):
            found[name, recompute, context] = int(number.replace(",", ""))
    return found


def test_the_table_is_whole():
    assert len(stated()) == len(SETTINGS) * 2 * len(CONTEXTS)


@pytest.mark.parametrize("case", stated() or [None], ids=str)
def test_what_the_manual_says_fits_and_no_more(case):
    sequence = stated()[case]
    assert fits(*case, sequence)  # type: ignore[call-arg]
    assert not fits(*case, sequence + STEP)  # type: ignore[call-arg]

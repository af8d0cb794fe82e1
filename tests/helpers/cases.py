"""Grids of cases: the few that between them meet every feature run always, the others with `-m slow`."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import fields
from types import MappingProxyType
from typing import Any

import pytest

from heddle.spec import ModelSpec, Plan
from heddle.spec.axes import DEGREES


def thinned(cases: Iterable[Any], slow: Iterable[Any]) -> list[Any]:
    """All cases, as parameters of a test; those in `slow` run in the slow suite only."""
    every, left = list(cases), list(slow)
    assert all(case in every for case in left), "a slow case is none of the cases"
    return [_slow(case) if case in left else case for case in every]


def _slow(case: Any) -> Any:
    values = case if isinstance(case, tuple) else (case,)
    return pytest.param(*values, marks=pytest.mark.slow)


def covering(cases: Mapping[str, tuple[Any, ...]], pairs: bool = True) -> set[str]:
    """Names of few small jobs that between them have every value of a grid, and every pair of mechanisms in it.

    A case is a model, a plan, a global batch, and what of [train] is not as usual. One that brings something new is
    always among them.
    """
    left = {name: values_of(*case) | (pairs_of(*case) if pairs else set()) for name, case in cases.items()}
    found, missing = set(), set().union(*left.values())
    while missing:
        best = max(left, key=lambda name: (len(left[name] & missing) / cases[name][1].world, name))
        found.add(best)
        missing -= left.pop(best)
    return found


def values_of(model: ModelSpec, plan: Plan, batch: int, *more: object) -> set[Hashable]:
    """Every value of a job's model and plan."""
    found: set[Hashable] = {(field.name, getattr(plan, field.name)) for field in fields(plan) if field.name != "stages"}
    found |= {(field.name, getattr(model, field.name)) for field in fields(model) if field.name != "layers"}
    found |= {("uneven", len(set(plan.stages)) > 1), *map(repr, more)}
    if plan.pipeline > 1:
        microbatches = plan.microbatches(batch)
        found |= {("few", microbatches < plan.pipeline), ("odd", microbatches % plan.pipeline > 0)}
    return found


def pairs_of(
    model: ModelSpec,
    plan: Plan,
    batch: int,
    train: Mapping[str, object] = MappingProxyType({}),
) -> set[Hashable]:
    """Which mechanisms of a job meet: those that work on the same tensors, or at the same time."""
    axes = tuple(name for name in DEGREES if getattr(plan, name) > 1)
    recompute = plan.recompute if isinstance(plan.recompute, str) else "by layer"
    found: set[Hashable] = {(axes, word, getattr(plan, word)) for word in ("zero", "sequence", "schedule")}
    return found | {
        (axes, "tied", model.tied),
        (plan.update, model.tied, plan.data > 1, train.get("precision", "fp32")),
        (plan.schedule, recompute, plan.tensor > 1),
        (plan.zero, recompute),
        (plan.zero, "within", plan.zero_within > 0),
        ("chunks", plan.tensor_chunks > 1, plan.sequence),
        (plan.schedule, plan.virtual > 1),
        ("dropout", model.dropout > 0, recompute),
    }

"""Every two mechanisms that a job can combine, in some job: what one assumes, another may have changed.

The jobs are searched for, few that between them have every pair, and those triples that work on the same tensors.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Hashable, Iterator, Mapping
from itertools import combinations, product
from typing import Any

import pytest

from heddle.errors import HeddleError
from heddle.schedule import NAMES
from heddle.schedule.late import UPDATES
from heddle.spec import Job, Plan
from heddle.training.prove.prove import conclude, observe
from heddle.training.prove.shrink import Shrunk
from tests.helpers.small_models import gpt, llama
from tests.helpers.world import SIZE
from tests.numerics.test_equality_grid import LOW_STEPS, job

Choice = Mapping[str, Hashable]

FACTORS: dict[str, tuple[Hashable, ...]] = {
    "tensor": ("none", "whole", "sequence"),
    "context": ("none", "ring", "gather", "all-to-all"),
    "order": ("one stage", *NAMES, *UPDATES),
    "replicas": ("one", "equal", "shares"),
    "zero": (0, 1, 2, 3),
    "recompute": ("none", "selective", "full", "mixed"),
    "offload": ("none", "optimizer", "activations", "input", "weights"),
    "check": ("before", "after"),
    "tied": (False, True),
    "family": ("gpt", "llama"),
    "dropout": (False, True),
    "window": (0, 3),
    "precision": ("fp32", "bf16", "fp16"),
    "microbatches": ("many", "few", "odd"),
    "correction": ("none", "rate", "beta1", "nesterov", "feedback"),
    "warmup": (0, 3),
    "clip": (0.0, 0.1),
}
# what works on the same tensors, or hangs on the same step
TRIPLES = (
    ("context", "tensor", "window"),
    ("order", "recompute", "tensor"),
    ("order", "tied", "replicas"),
    ("order", "tied", "precision"),
)
TRIPLES += (("order", "zero", "recompute"), ("order", "zero", "precision"), ("offload", "zero", "precision"))


def built(choice: Choice) -> Job | None:
    """The job; None where its parts cannot be combined."""
    order, layers = choice["order"], 4
    late = order in UPDATES
    virtual = 2 if order in ("interleaved", "zb-v", "dualpipev") else 1
    pipeline = 1 if order == "one stage" else 2
    data = 1 if choice["replicas"] == "one" else 2
    count = {"many": 4, "few": 1, "odd": 5}[str(choice["microbatches"])]
    shares = (count, count + 2) if choice["replicas"] == "shares" else ()
    recompute: Any = choice["recompute"]
    offload = {"none": (), "weights": ("weights:disk", "optimizer:disk")}
    keys: dict[str, Any] = {
        "tensor": 1 if choice["tensor"] == "none" else 2,
        "sequence": choice["tensor"] == "sequence",
        "context": 1 if choice["context"] == "none" else 2,
        "context_exchange": "ring" if choice["context"] == "none" else choice["context"],
        "pipeline": pipeline,
        "virtual": virtual,
        "data": data,
        "shares": shares,
        "zero": choice["zero"],
        "schedule": "1f1b" if late or pipeline == 1 else order,
        "update": order if late else "synchronous",
        "recompute": ("full", "none", "selective", "full") if recompute == "mixed" else recompute,
        "offload": offload.get(str(choice["offload"]), (f"{choice['offload']}:host",)),
        "check_step": choice["check"],
    }
    small = {"layers": layers, "tied": choice["tied"], "dropout": 0.1 if choice["dropout"] else 0.0}
    model = (gpt if choice["family"] == "gpt" else llama)(window=choice["window"] or None, **small)
    train = {"precision": choice["precision"], "delay_correction": choice["correction"], "clip": choice["clip"]}
    train |= {"delay_warmup": choice["warmup"], "steps": LOW_STEPS if choice["precision"] != "fp32" else 12}
    plain = not late and (choice["correction"] != "none" or choice["warmup"])
    if plain or (
        choice["zero"] and data * keys["context"] == 1
    ):  # they change nothing, and the pair would only seem to be tried
        return None
    try:
        plan = Plan(**keys)
        if plan.world > SIZE:
            return None
        a_job = job(model, plan, sum(shares) or count * data)
        a_job = dataclasses.replace(a_job, train=dataclasses.replace(a_job.train, **train))
        a_job.planned.plan.check(model, a_job.train.global_batch, a_job.sequence)
    except HeddleError:
        return None
    return a_job


def meetings(choice: Choice) -> set[Hashable]:
    """What a job would show, if it were tried."""
    groups = [*combinations(FACTORS, 2), *TRIPLES]
    return {tuple((name, choice[name]) for name in group) for group in groups}


def every_meeting() -> set[Hashable]:
    groups = [*combinations(FACTORS, 2), *TRIPLES]
    return {
        tuple(zip(group, values, strict=True)) for group in groups for values in product(*(FACTORS[n] for n in group))
    }


def usual(names: Mapping[str, Hashable]) -> Choice:
    """A job with these values, and as little else as they need."""
    return {name: names.get(name, values[0]) for name, values in FACTORS.items()}


NEEDED: dict[Hashable, Choice] = {  # what a value cannot do without
    "shares": {"replicas": "shares"},
    "input": {"recompute": "full"},
    "after": {"order": "1f1b"},
    **{value: {"order": "ouroboros"} for value in FACTORS["correction"][1:]},
}


def found(seed: int = 0, tries: int = 60) -> list[Choice]:
    """Few choices that have every meeting which any job can have."""
    rng, missing, chosen = random.Random(seed), every_meeting(), []
    order = sorted(missing, key=lambda pairs: (-len(pairs), repr(pairs)))  # type: ignore[arg-type]
    for pairs in order:
        if pairs not in missing:
            continue
        best, most = None, 0
        for number in range(tries):
            if best is not None and number > 12:
                break
            choice = dict(usual(dict(pairs)) if number == 0 else sampled(rng, dict(pairs)))  # type: ignore[arg-type]
            if (new := len(meetings(choice) & missing)) > most and built(choice) is not None:
                best, most = choice, new
        missing.discard(pairs)
        if best is not None:
            chosen.append(best)
            missing -= meetings(best)
    return chosen  # type: ignore[return-value]


def sampled(rng: random.Random, fixed: Mapping[str, Hashable]) -> Choice:
    """A choice at random, with fewer of those values that exclude many others."""
    choice: dict[str, Hashable] = {}
    for name, values in FACTORS.items():
        rare = name in ("offload", "check", "correction", "warmup", "zero") and rng.random() < 0.6
        choice[name] = values[0] if rare else rng.choice(values)
    choice |= fixed
    for value in fixed.values():
        choice |= {name: each for name, each in NEEDED.get(value, {}).items() if name not in fixed}
    return choice


def named(choice: Choice) -> str:
    return ", ".join(f"{name} {value}" for name, value in choice.items() if value != FACTORS[name][0])


def wrong(world: Any, choices: list[Choice]) -> Iterator[str]:
    """Which of these jobs do not learn what they should, and how far off they are."""
    for choice in choices:
        a_job = built(choice)
        assert a_job is not None
        try:
            parallel, *_ = world.run(observe, a_job.plan, a_job)
        except AssertionError as error:
            yield f"{named(choice)}: {str(error).strip().splitlines()[-1]}"
            continue
        proof = conclude(Shrunk(a_job.planned, ()), parallel, 0.0)
        if not proof.comparison.equal:
            limits = f"{proof.comparison.loss_limit:.0e}, {proof.comparison.gradient_limit:.0e}"
            sizes = f"{proof.comparison.max_loss_diff:.1e}, {proof.comparison.max_gradient_diff:.1e} of {limits}"
            yield f"{named(choice)}: {proof.cause} ({sizes})"


@pytest.mark.slow
@pytest.mark.dist
@pytest.mark.timeout(3600)
def test_every_two_mechanisms_learn_what_one_device_learns(world):
    choices = found()
    assert len(choices) > 100
    assert not list(wrong(world, choices))

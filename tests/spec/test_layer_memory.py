"""Strategies of layers: written as runs, read as one for each layer, and refused where they contradict each other."""

from __future__ import annotations

import random
import tomllib
from itertools import groupby
from typing import Any

import pytest

from heddle.errors import HeddleError
from heddle.spec import ModelSpec, Plan
from heddle.spec.layer_memory import LayerMemory, LayerRun, runs_of
from heddle.spec.tables import build, to_table, to_toml

MODEL = ModelSpec(layers=12, hidden=16, heads=4, vocab=61, sequence=8)


def written(plan: Plan) -> str:
    return to_toml({"plan": to_table(plan)})


def read(text: str) -> Plan:
    return build(Plan, tomllib.loads(text)["plan"], "plan")


def test_a_run_says_only_what_differs() -> None:
    plan = Plan(
        data=2,
        zero=1,
        offload=("optimizer:disk",),
        layers=(LayerRun(layers="0-5", recompute="full"), LayerRun(layers="7", zero=3, offload=())),
    )
    assert plan.memory_of(0) == LayerMemory("full", 1, ("optimizer:disk",))
    assert plan.memory_of(5) == plan.memory_of(0)
    assert plan.memory_of(6) == LayerMemory("none", 1, ("optimizer:disk",))
    assert plan.memory_of(7) == LayerMemory("none", 3, ())
    assert [plan.recompute_of(layer) for layer in (5, 6)] == ["full", "none"]
    assert plan.memory_of(6).tier("optimizer") == "disk"
    assert plan.memory_of(7).tier("optimizer") is None


def test_a_plan_that_says_nothing_of_it_is_written_as_before() -> None:
    text = written(Plan())
    assert all(key not in text for key in ("offload", "prefetch", "layers"))
    assert Plan().hash == "86f6a73eda11"


def random_strategy(chance: random.Random, replicas: int) -> LayerMemory:
    recompute = chance.choice(["none", "selective", "elementwise", "full"])
    kinds = ["input" if recompute == "full" else "activations", "optimizer"]
    zero = chance.randrange(4)
    chosen = [kind for kind in kinds if chance.random() < 0.4]
    if "optimizer" in chosen and (zero == 3 or replicas == 1) and chance.random() < 0.4:
        chosen.append("weights")
    offload = tuple(f"{kind}:{chance.choice(['host', 'disk'])}" for kind in chosen)
    return LayerMemory(recompute, zero, offload)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(50))
def test_any_strategies_survive_being_written_and_read(seed: int) -> None:
    chance = random.Random(seed)
    data = chance.choice([1, 2])
    some = [random_strategy(chance, data) for _ in range(3)]
    layers = [chance.choice(some) for _ in range(MODEL.layers)]
    plan = Plan(data=data, zero=chance.randrange(4)).with_memory(layers)
    again = read(written(plan))
    assert again == plan
    assert [again.memory_of(layer) for layer in range(MODEL.layers)] == layers
    assert len(plan.layers) <= len(list(groupby(layers)))  # as few runs as there can be
    again.check(MODEL, 8, 8)


def test_equal_layers_need_no_run() -> None:
    usual = LayerMemory("full", 1, ())
    assert runs_of([usual] * 5, usual) == ()
    (one,) = runs_of([usual, usual._replace(zero=2), usual._replace(zero=2), usual], usual)
    assert one == LayerRun(layers="1-2", zero=2)


@pytest.mark.parametrize(
    ("table", "what", "hint"),
    [
        ({"offload": ["optimizr:disk"]}, "'optimizr:disk' is not known", "optimizer:disk"),
        ({"offload": ["optimizer"]}, "'optimizer' is not known", "optimizer:"),
        ({"offload": ["optimizer:disk", "optimizer:host"]}, "names optimizer 2 times", "optimizer:host"),
        ({"offload": ["input:host"]}, 'offloads its input but has recompute = "none"', "activations:host"),
        ({"recompute": "full", "offload": ["activations:disk"]}, 'has recompute = "full"', "input:disk"),
        ({"offload": ["weights:disk"]}, "keeps the optimizer state on the device", "optimizer:disk"),
        ({"data": 2, "zero": 1, "offload": ["weights:disk", "optimizer:disk"]}, "has zero = 1, with 2",
         "zero = 3"),
        ({"layers": [{"layers": "5-3"}]}, "names the layers '5-3'", "0-5"),
        ({"layers": [{"layers": "0-999999999"}]}, "names the layers '0-999999999'", "0-5"),
        ({"layers": [{"layers": 2}]}, "plan.layers[0].layers = 2 has the wrong type", 'layers = "2"'),
        ({"offload": "optimizer:disk"}, "has the wrong type", 'offload = ["optimizer:disk"]'),
        ({"layers": [{"layers": "1", "zero": "3"}]}, "zero = '3' is not known", "0, 1, 2, 3, without quotes"),
        ({"schedule": "1f1b", "context_exchange": 5}, "context_exchange = 5 is not known", "2d, in quotes"),
        ({"layers": [{"layers": "two"}]}, "names the layers 'two'", "0-5"),
        ({"layers": [{"layers": "٣"}]}, "names the layers '٣'", "0-5"),
        ({"layers": [{"layers": "0-5"}, {"layers": "5"}]}, "the range '5' after layer 5", "layer 6"),
        ({"layers": [{"layers": "9-12"}]}, "the model has 12 layers", "The last one is 11"),
        ({"layers": [{"layers": "1", "recompute": "all"}]}, "is not known", "selective"),
        ({"layers": [{"layers": "1", "color": "red"}]}, "no key 'color'", "recompute"),
        ({"layers": [{"layers": "3", "offload": ["input:disk"]}]}, "Layer 3 offloads its input", 'recompute = "full"'),
        ({"recompute": ["full x 12"], "layers": [{"layers": "1", "recompute": "none"}]}, "lists layers", "one word"),
        ({"recompute": ["full x 11", "none"], "layers": [{"layers": "9-11", "offload": ["input:disk"]}]}, "Layer 11",
         "full"),
        ({"prefetch": 65}, "plan.prefetch must be in [0, 64], got 65", "64"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(table: dict[str, Any], what: str, hint: str) -> None:
    with pytest.raises(HeddleError) as caught:
        build(Plan, table, "plan").check(MODEL, 8, 8)
    assert what in caught.value.what
    assert hint in caught.value.hint
    assert caught.value.why

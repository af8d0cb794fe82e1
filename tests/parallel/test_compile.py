"""Compiled layers: one graph for all that do the same, whatever is recomputed and dropped; and the same numbers."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import pytest
import torch
import torch._dynamo
import torch.distributed as dist
from torch._dynamo.backends.debugging import aot_eager
from torch.testing._internal.distributed.fake_pg import FakeStore

from heddle.parallel.mesh import Mesh, build_mesh
from heddle.spec import Data, Job, ModelSpec, Plan, Train
from heddle.training.prove.prove import synthetic_tokens
from heddle.training.step.trainer import Trainer
from tests.helpers.cases import thinned
from tests.helpers.small_models import gpt, llama

# torch's own look at a tensor that is no leaf, which it means to be silent about
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute")


@contextmanager
def counted() -> Iterator[list[Any]]:
    """Compiling in which the graphs are collected and then run as they are: what a code generator does is not ours."""
    graphs: list[Any] = []

    def backend(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return aot_eager(graph, inputs)

    compile_ = torch.compile
    torch._dynamo.reset()
    with patch.object(torch, "compile", lambda function: compile_(function, backend=backend)):
        yield graphs
    torch._dynamo.reset()


def losses(mesh: Mesh, model: ModelSpec, plan: Plan, compiled: bool) -> tuple[list[float], int]:
    """Of three steps, and the number of graphs."""
    train = Train(steps=3, global_batch=4, learning_rate=1e-2, compile=compiled)
    job = Job(model=model, data=Data(text="-"), train=train, plan=plan)
    with counted() as graphs:
        trainer = Trainer(job, synthetic_tokens(job), mesh)
        return [trainer.train_step().loss for _ in range(3)], len(graphs)


@pytest.mark.parametrize(
    ("recompute", "dropout"),
    thinned(
        itertools.product(("none", "selective", "full"), (0.0, 0.1)),
        slow=[("none", 0.1), ("selective", 0.0), ("full", 0.0)],
    ),
)
def test_layers_share_one_graph(recompute, dropout):
    """More layers than torch compiles of one function before it gives up, which is eight."""
    model = llama(layers=10, dropout=dropout)
    plan = Plan(microbatch=2, recompute=recompute)
    found, graphs = losses(Mesh(), model, plan, compiled=True)
    assert graphs == 1
    plain, _ = losses(Mesh(), model, plan, compiled=False)
    assert found == pytest.approx(plain, rel=1e-5)


def test_each_kind_of_layer_has_a_graph():
    model = gpt(layers=9, dropout=0.1)
    _, graphs = losses(Mesh(), model, Plan(recompute=3 * ("none", "selective", "full")), compiled=True)
    assert graphs == 2  # what is recomputed whole is compiled like what is not recomputed


class Noted:
    """Stands for a mark of a GPU's stream: what is told of a collective must not be traced."""

    def __init__(self) -> None:
        self.traced: list[bool] = []

    def __call__(self, *_: object) -> None:
        self.traced.append(torch.compiler.is_compiling())
        torch.zeros(1)  # a tensor in the frame, as an event is: Dynamo looks at such frames


@pytest.mark.parametrize("sequence", [False, True])
def test_exchanges_and_who_watches_them_stay_out_of_graphs(sequence):
    """Two ranks, of which one is here: what the other would send does not matter."""
    plan = Plan(tensor=2, sequence=sequence, microbatch=2)
    job = Job(model=llama(), data=Data(text="-"), train=Train(global_batch=2, compile=True), plan=plan)
    noted = Noted()
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    try:
        mesh = build_mesh(plan, 0, 2)
        mesh = dataclasses.replace(mesh, tensor=dataclasses.replace(mesh.tensor, watch=noted))
        with counted() as graphs:
            Trainer(job, synthetic_tokens(job), mesh).train_step()
    finally:
        dist.destroy_process_group()
    assert graphs
    assert len(noted.traced) > 8
    assert not any(noted.traced)
    assert not any("c10d" in str(graph.code) for graph in graphs)


@pytest.mark.dist
@pytest.mark.parametrize(
    "plan",
    [
        pytest.param(
            Plan(tensor=2, sequence=True, microbatch=2, recompute="full"), marks=pytest.mark.slow, id="tensor"
        ),
        pytest.param(Plan(data=2, zero=1), marks=pytest.mark.slow, id="zero1"),
        pytest.param(Plan(data=2, zero=3, microbatch=1), marks=pytest.mark.slow, id="zero3"),
    ],
)
def test_compiled_layers_run_in_parallel(world, plan):
    model = llama(dropout=0.1)
    (found, graphs), *_ = world.run(losses, plan, model, plan, True)
    (_, bounded), *_ = world.run(losses, plan, dataclasses.replace(model, layers=6), plan, True)
    plain, _ = losses(Mesh(), model, Plan(microbatch=4), compiled=False)
    assert found == pytest.approx(plain, rel=1e-5)
    assert 0 < graphs == bounded, (graphs, bounded)


@pytest.mark.slow
def test_what_lies_between_kept_products_is_compiled():
    """In pieces, which all layers share: what is kept is no part of a graph."""
    model = llama(layers=3, dropout=0.1)
    plan = Plan(microbatch=2, recompute="elementwise")
    (plain, _), (compiled, graphs) = (losses(Mesh(), model, plan, compiled) for compiled in (False, True))
    assert compiled == pytest.approx(plain, rel=1e-6)
    assert graphs <= 10

"""What makes gradients whole, and who keeps what: sums over replicas, shares of ZeRO, and only one's own shard."""

from __future__ import annotations

import math
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import heddle.parallel.replicas.reducer
from heddle.models import Transformer, initialize
from heddle.parallel.apply import Parallel, parallelize
from heddle.parallel.mesh import Mesh
from heddle.parallel.replicas.reducer import Reducer
from heddle.spec import Data, Job, ModelSpec, Plan, Train
from heddle.training.prove.collect import assemble, gather_boxes, gradients, local_boxes, weights
from heddle.training.prove.prove import synthetic_tokens
from heddle.training.step.trainer import Trainer

pytestmark = pytest.mark.dist

SHAPES = {"a": (5, 3), "b": (7,), "c": (2, 2), "d": (11,)}
MODEL = ModelSpec(layers=4, hidden=16, heads=4, vocab=61, sequence=8, ffn=32)


def parameters(dtype: torch.dtype) -> dict[str, nn.Parameter]:
    return {name: nn.Parameter(torch.zeros(shape, dtype=dtype)) for name, shape in SHAPES.items()}


def gradient_of(name: str, rank: int, microbatch: int) -> Tensor:
    """Small whole numbers, so that sums are exact in any order and precision."""
    generator = torch.Generator().manual_seed(hash((len(name), ord(name), rank, microbatch)) % 1000)
    return torch.randint(-4, 5, SHAPES[name], generator=generator).float()


def backward(named: dict[str, nn.Parameter], rank: int, microbatch: int) -> None:
    terms = [(p * gradient_of(name, rank, microbatch).to(p.dtype)).sum() for name, p in named.items()]
    torch.stack(terms).sum().backward()


def reduce(mesh: Mesh, zero: int, dtype: torch.dtype, bucket: int) -> tuple[dict[str, np.ndarray], int]:
    """Two steps of three microbatches; the gradients of the second, put together, and elements updated here."""
    with patch.object(heddle.parallel.replicas.reducer, "bucket_elements", lambda _: bucket):
        named = parameters(dtype)
        reducer = Reducer({0: list(named.items())}, mesh, lambda _: zero)
    for _ in range(2):
        reducer.clear()
        reducer.expect(3)
        for microbatch in range(3):
            backward(named, mesh.rank, microbatch)
            begun = [part.handle is not None for part in reducer.buckets[0]]
            assert all(begun) if microbatch == 2 else not any(begun), "the sum starts with the last gradient"
        reducer.finish()
    boxes = gather_boxes(local_boxes(reducer.pieces, gradients), mesh)
    return assemble(boxes), sum(piece.master.numel() for piece in reducer.pieces)


@pytest.mark.parametrize("bucket", [1, 20, 1000], ids=["one-each", "some", "all-in-one"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize("zero", [0, 1])
@pytest.mark.parametrize("data", [2, 3])
def test_gradients_are_summed_over_microbatches_and_replicas(world, data, zero, dtype, bucket):
    results = world.run(reduce, Plan(data=data), zero, dtype, bucket)
    whole, _ = results[0]
    for name in SHAPES:
        expected = sum(gradient_of(name, rank, i) for rank in range(data) for i in range(3))
        np.testing.assert_array_equal(whole[name], expected.numpy())
    elements = sum(map(math.prod, SHAPES.values()))
    updated = [count for _, count in results]
    if zero:
        assert sum(updated) == elements  # everything exactly once
        assert max(updated) <= math.ceil(elements / data) + (len(SHAPES) if bucket < 1000 else 0)
    else:
        assert updated == data * [elements]


def test_what_a_replica_sends_of_a_bucket_stays_long_enough():
    sizes = {replicas: heddle.parallel.replicas.reducer.bucket_elements(replicas) for replicas in (1, 2, 8, 64, 512)}
    assert {4 * sizes[few] for few in (1, 2, 8)} == {32 << 20}  # bytes
    assert all(4 * size // replicas >= 4 << 20 for replicas, size in sizes.items())


def share(mesh: Mesh) -> list[list[float]]:
    """Each replica changes only what it is responsible for; afterwards all have everything."""
    named = parameters(torch.float32)
    reducer = Reducer({0: list(named.items())}, mesh, lambda _: 1)
    for piece in reducer.pieces:
        piece.master.fill_(mesh.data.rank + 1)
    reducer.share()
    reducer.wait_for_weights()
    return [parameter.flatten().tolist() for parameter in named.values()]


def test_replicas_share_their_updates(world):
    first, *others = world.run(share, Plan(data=3))
    assert all(other == first for other in others)
    values = sorted(value for parameter in first for value in parameter)
    assert values == 13 * [1.0] + 13 * [2.0] + 11 * [3.0]  # 37 elements in shares of 13, the last with two to spare


def steps(mesh: Mesh, job: Job, at_once: bool) -> tuple[list[float], dict[str, np.ndarray], bool]:
    """Losses and weights of three steps, and whether weights were still on their way after one."""
    tokens = synthetic_tokens(job)
    with patch.object(heddle.parallel.replicas.reducer, "bucket_elements", lambda _: 1000):
        trainer = Trainer(job, tokens, mesh)
    losses, under_way = [], False
    for _ in range(3):
        losses.append(trainer.train_step().loss)
        under_way |= any(bucket.gathering is not None for bucket in trainer.parallel.gradients.first_used_first)
        if at_once:
            trainer.wait_for_weights()
    losses.append(trainer.evaluate(tokens))
    trainer.wait_for_weights()
    return losses, assemble(gather_boxes(local_boxes(trainer.optimizer.pieces, weights), mesh)), under_way


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_weights_are_gathered_beside_the_next_forward_with_the_same_bits(world, precision):
    model = replace(MODEL, tied=True)  # whose two ends use one weight
    plan = Plan(data=2, zero=1, microbatch=1, recompute="full")
    train = Train(steps=3, global_batch=4, learning_rate=1e-2, eval_batches=1, precision=precision)
    job = Job(model=model, data=Data(text="-"), train=train, plan=plan)
    waited, overlapped = world.run(steps, plan, job, True), world.run(steps, plan, job, False)
    for (losses, _, _), (others, _, under_way) in zip(waited, overlapped, strict=True):
        assert others == losses
        assert under_way
    for name, values in waited[0][1].items():
        np.testing.assert_array_equal(overlapped[0][1][name], values)


def test_weights_are_gathered_in_the_order_in_which_a_forward_uses_them():
    named = {0: [("a", parameter(8)), ("b", parameter(8))], 2: [("c", parameter(8)), ("d", parameter(8))]}
    with patch.object(heddle.parallel.replicas.reducer, "bucket_elements", lambda _: 1):
        reducer = Reducer(named, Mesh(), lambda _: 1)
    order = [name for bucket in reducer.first_used_first for name, _ in bucket.parameters]
    assert order == ["a", "b", "c", "d"]


def parameter(elements: int) -> nn.Parameter:
    return nn.Parameter(torch.zeros(elements, dtype=torch.bfloat16))


class Passes(TorchDispatchMode):
    """Notes kernels that write a tensor of so many elements."""

    def __init__(self, elements: int) -> None:
        super().__init__()
        self.elements, self.names = elements, []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        made = isinstance(result, Tensor) and result.numel() == self.elements
        if made and not func.is_view and "detach" not in str(func):
            self.names.append(func._schema.name.removeprefix("aten::"))
        return result


def passes(mesh: Mesh, dtype: torch.dtype) -> list[list[str]]:
    """What each of three microbatches writes in the size of a weight, from the product that makes its gradient on."""
    weight = nn.Parameter(torch.ones(48, 32, dtype=dtype))
    reducer = Reducer({0: [("w", weight)]}, mesh, lambda _: 0)
    counted = []
    reducer.expect(3)
    for _ in range(3):
        loss = nn.functional.linear(torch.ones(8, 32, dtype=dtype), weight).sum()
        with Passes(weight.numel()) as seen:
            loss.backward()
        counted.append([name for name in seen.names if "all" not in name])
    reducer.finish()
    return counted


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
def test_a_gradient_is_added_in_one_pass(world, dtype):
    """Beside the product that makes it: the first is copied into its bucket, later ones are added in place."""
    for counted in world.run(passes, Plan(data=2), dtype):
        assert counted == [["mm", "copy_"], ["mm", "add_"], ["mm", "add_"]]


def test_a_gradient_that_nobody_else_adds_to_is_handed_over():
    """In full precision, without replicas: the first is not even copied."""
    assert passes(Mesh(), torch.float32) == [["mm"], ["mm", "add_"], ["mm", "add_"]]


def add_up(mesh: Mesh) -> float:
    """A small gradient, added often to a large one in low precision."""
    parameter = nn.Parameter(torch.zeros(1, dtype=torch.bfloat16))
    reducer = Reducer({0: [("w", parameter)]}, mesh, lambda _: 0)
    for value in [256.0] + 64 * [0.5]:
        (parameter * value).sum().backward()
    reducer.finish()
    return float(reducer.pieces[0].master.grad)


def test_low_precision_gradients_add_up_in_full_precision(world):
    assert world.run(add_up, Plan(data=2)) == 2 * [2 * (256 + 32)]  # in bf16, 256 + 0.5 is 256


def build(mesh: Mesh, model: ModelSpec, plan: Plan, dtype: torch.dtype = torch.float32) -> Parallel:
    return parallelize(model, plan.resolved(model), mesh, torch.device("cpu"), dtype, seed=3)


def initial(
    mesh: Mesh, model: ModelSpec, plan: Plan, dtype: torch.dtype = torch.float32
) -> tuple[dict[str, np.ndarray], bool]:
    """Masters, put together; and whether every parameter here is its master, rounded."""
    pieces = build(mesh, model, plan, dtype).gradients.pieces
    rounded = all(torch.equal(piece.target, piece.master.to(dtype)) for piece in pieces if piece.target is not None)
    return assemble(gather_boxes(local_boxes(pieces, weights), mesh)), rounded


@pytest.mark.parametrize(
    "plan",
    [
        Plan(tensor=4),
        Plan(tensor=2, pipeline=2, data=2, zero=1),
        Plan(pipeline=2, virtual=2, schedule="interleaved"),
        Plan(tensor=2, sequence=True, data=4, zero=2),
        Plan(data=3, zero=3),
    ],
    ids=["tensor", "all", "interleaved", "zero2", "zero3"],
)
@pytest.mark.parametrize(
    ("tied", "dtype"),
    [(True, torch.float32), (False, torch.float32), (True, torch.bfloat16)],
    ids=["tied", "untied", "bf16"],
)
def test_every_plan_starts_from_the_same_weights(world, plan, tied, dtype):
    """Masters are in full precision, and the same bits, whatever precision is computed in."""
    model = ModelSpec(layers=4, hidden=16, heads=4, vocab=61, sequence=8, ffn=32, tied=tied)
    results = world.run(initial, plan, model, plan, dtype)
    whole, _ = results[0]
    assert all(rounded for _, rounded in results)
    serial = Transformer(model)
    initialize(serial, seed=3)
    expected = dict(serial.named_parameters())
    assert whole.keys() == expected.keys()
    for name, values in whole.items():
        np.testing.assert_array_equal(values, expected[name].detach().numpy(), err_msg=name)


def shapes(mesh: Mesh, plan: Plan) -> dict[str, tuple[int, ...]]:
    return {name: tuple(parameter.shape) for parameter, name in build(mesh, MODEL, plan).names.items()}


def test_a_rank_holds_its_own_shard(world):
    held = world.run(shapes, plan := Plan(tensor=2, pipeline=2, data=2), plan)
    ours = {name: shape for name, shape in held[0].items() if name.startswith(("embed", "layers.0.", "norm"))}
    assert ours == {
        "embed.tokens.weight": (31, 16),  # 61 rows over two ranks, one of padding
        "embed.positions.weight": (8, 16),
        "layers.0.attention_norm.weight": (16,),
        "layers.0.attention_norm.bias": (16,),
        "layers.0.attention.qkv.weight": (24, 16),
        "layers.0.attention.qkv.bias": (24,),
        "layers.0.attention.out.weight": (16, 8),
        "layers.0.attention.out.bias": (16,),
        "layers.0.mlp_norm.weight": (16,),
        "layers.0.mlp_norm.bias": (16,),
        "layers.0.mlp.up.weight": (16, 16),
        "layers.0.mlp.up.bias": (16,),
        "layers.0.mlp.down.weight": (16, 16),
        "layers.0.mlp.down.bias": (16,),
    }
    layers = [{name.split(".")[1] for name in rank if name.startswith("layers")} for rank in held]
    assert layers == 4 * [{"0", "1"}] + 4 * [{"2", "3"}]
    assert held[4]["embed.tokens.weight"] == (31, 16)  # the last stage's copy of the tied embedding
    assert "embed.positions.weight" not in held[4]


def shares(mesh: Mesh, plan: Plan) -> tuple[int, int]:
    """Numbers that are updated here, and bytes of the parameters while nothing is computed."""
    parallel = build(mesh, MODEL, plan)
    memory = {p.untyped_storage()._cdata: p.untyped_storage().nbytes() for p in parallel.names}
    return sum(piece.master.numel() for piece in parallel.gradients.pieces), sum(memory.values())


@pytest.mark.parametrize(
    "plan", [Plan(data=4, zero=3), Plan(data=2, pipeline=2, zero=2)], ids=["zero3", "zero2-pipeline"]
)
def test_each_replica_holds_a_share_of_every_parameter(world, plan):
    held = world.run(shares, plan, plan)
    copy = MODEL.vocab * MODEL.hidden * (plan.pipeline > 1)  # of the tied embedding
    assert sum(elements for elements, _ in held) == MODEL.parameters + copy
    # weights are there when they are used; the last norm, which is never sharded, stays
    assert {size for _, size in held} <= {0, 2 * 4 * MODEL.hidden}


class Largest(TorchDispatchMode):
    """Notes the largest tensor with memory that any operation makes."""

    elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for made in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(made, Tensor) and made.device.type != "meta":
                self.elements = max(self.elements, made.numel())
        return result


BIG = ModelSpec(layers=1, hidden=256, heads=4, vocab=4096, sequence=8)  # its embedding has 2²⁰ elements


def largest_made(mesh: Mesh, plan: Plan) -> int:
    with Largest() as noted:
        build(mesh, BIG, plan)
    return noted.elements


def test_nothing_larger_than_a_shard_is_ever_made(world):
    """Not even on the way: a model that fits only when split must be built split."""
    assert world.run(largest_made, plan := Plan(), plan) == [BIG.vocab * BIG.hidden]
    assert world.run(largest_made, plan := Plan(tensor=4), plan) == 4 * [BIG.vocab * BIG.hidden // 4]


def losses_with_garbage(mesh: Mesh, how: Job, garbage: bool) -> list[float]:
    """What nobody has written is NaN, where that is asked for."""
    torch.use_deterministic_algorithms(garbage)
    try:
        trainer = Trainer(how, synthetic_tokens(how), mesh)
        return [trainer.train_step().loss for _ in range(3)]
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("zero", [2, 3])
def test_nothing_is_summed_that_was_not_written(world, zero):
    """Three replicas: the last one's share of a layer ends in padding, which no update looks at."""
    plan = Plan(data=3, zero=zero, microbatch=1)
    how = Job(model=MODEL, data=Data(text="-"), train=Train(global_batch=6, precision="fp32"), plan=plan)
    found, expected = (world.run(losses_with_garbage, plan, how, garbage)[0] for garbage in (True, False))
    assert found == expected
    assert all(map(math.isfinite, found))


def test_what_the_loss_does_not_depend_on_has_a_gradient_of_zero():
    """Of a layer that one parameter of was used."""
    plan = Plan(offload=("weights:host", "optimizer:host"))
    how = Job(model=MODEL, data=Data(text="-"), train=Train(global_batch=1, precision="fp32"), plan=plan)
    trainer = Trainer(how, synthetic_tokens(how))
    group = next(group for group in trainer.gradients.groups if len(group.parameters) > 1)
    group.ready()
    used = group.parameters[0]
    used.grad = torch.ones_like(used)
    torch.use_deterministic_algorithms(True)  # what nobody has written is NaN
    try:
        group._arrival(0)(used)
        group.finish()
    finally:
        torch.use_deterministic_algorithms(False)
    sums = [float(piece.master.grad.sum()) for piece in group.pieces]
    assert sums == [used.numel(), *[0.0] * (len(sums) - 1)]

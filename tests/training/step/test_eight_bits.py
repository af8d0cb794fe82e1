"""Moments in eight bits: bitsandbytes' codes, the same under every plan whose cuts keep blocks whole, exact resume."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from heddle.checkpoint.checkpoint import Saver
from heddle.errors import HeddleError
from heddle.parallel.mesh import Mesh
from heddle.parallel.parameter_layout import ParameterLayout
from heddle.parallel.shards import Piece
from heddle.spec import Data, Job, ModelSpec, Plan, Train
from heddle.training.prove.prove import synthetic_tokens
from heddle.training.step.eight_bits import NEGATIVE, Blocks, EightBitAdamW, _lengths, blocks_of, codebook
from heddle.training.step.trainer import Trainer
from tests.helpers.small_models import llama
from tests.helpers.world import World

CPU = torch.device("cpu")
# every cut between ranks is at a multiple of 256 numbers of a row, or of 256 numbers of rows that follow each other
EVEN = llama(hidden=512, heads=8, kv_heads=4, head_size=64, ffn=512, vocab=128, qk_norm=False)


def test_codes_are_those_of_bitsandbytes():
    functional = pytest.importorskip("bitsandbytes", reason="bitsandbytes is not installed").functional
    for signed in (True, False):
        theirs = functional.create_dynamic_map(signed=signed)
        ours = codebook(signed, CPU)
        assert torch.equal(theirs[1:], ours[1:])
        assert ours[0] == (-1.0 if signed else 0.0)
        assert ours[NEGATIVE if signed else 0] == 0
    torch.manual_seed(0)
    values = torch.randn(4096) * torch.logspace(-6, 1, 4096)
    p = torch.zeros(4096)
    adam = EightBitAdamW([{"params": [p]}], {p: Blocks(np.full(16, 256))}, lr=0.1, fused=True)
    adam.take_moments(p, {"exp_avg": values, "exp_avg_sq": values.square()})
    for kind, given in (("exp_avg", values), ("exp_avg_sq", values.square())):
        theirs, state = functional.quantize_blockwise(given, code=codebook(kind == "exp_avg", CPU), blocksize=256)
        # ours are the nearest of all; theirs are looked up in a coarse table first, and now and then are not
        shares, code = (given.view(-1, 256) / state.absmax[:, None]).view(-1), codebook(kind == "exp_avg", CPU)
        nearest = (shares[:, None] - code).abs().amin(1)
        torch.testing.assert_close((shares - code[adam.state[p][kind].int()]).abs(), nearest, rtol=0, atol=1e-7)
        assert (adam.state[p][kind] != theirs).float().mean() < 0.1
        assert torch.equal(adam.state[p][f"{kind}_scale"], state.absmax)


@pytest.mark.parametrize("lengths", [np.full(8, 256), np.array([100, 256, 256, 30])])
def test_what_is_saved_gives_the_same_codes_again(lengths):
    torch.manual_seed(1)
    p = torch.zeros(int(lengths.sum()))
    adam = EightBitAdamW([{"params": [p]}], {p: Blocks(lengths)}, lr=0.1, fused=True)
    adam.take_moments(p, {"exp_avg": -torch.rand(len(p)), "exp_avg_sq": torch.rand(len(p)) * 1e-9})
    before = {name: values.clone() for name, values in adam.state[p].items()}
    adam.take_moments(p, adam.moments(p))
    assert all(torch.equal(before[name], values) for name, values in adam.state[p].items())


def test_an_update_is_nearly_that_of_adamw():
    torch.manual_seed(2)
    start, gradients = torch.randn(8192), torch.randn(20, 8192)
    plain, coded = start.clone(), start.clone()
    options = {"lr": 1e-2, "weight_decay": 0.1, "fused": True}
    adam = torch.optim.AdamW([plain], **options)
    eight = EightBitAdamW([{"params": [coded]}], {coded: Blocks(np.full(32, 256))}, **options)
    for gradient in gradients:
        plain.grad, coded.grad = gradient.clone(), gradient.clone()
        adam.step()
        eight.step()
    moved = (plain - start).norm()
    assert 0 < (plain - coded).norm() < 0.05 * moved
    assert eight.state[coded]["exp_avg"].dtype == torch.uint8
    bad = torch.ones(())
    eight.grad_scale, eight.found_inf = torch.ones(()), bad  # type: ignore[attr-defined]
    before = {name: values.clone() for name, values in eight.state[coded].items()}
    coded.grad = torch.full_like(coded, torch.inf)
    eight.step()
    assert all(torch.equal(before[name], values) for name, values in eight.state[coded].items())


def brute_force(shape: tuple[int, ...], local: tuple[int, ...], offset: tuple[int, ...], start: int, stop: int) -> list:
    """The block of every number of a piece, by its place in the whole parameter."""
    places = np.arange(np.prod(shape)).reshape(shape)[
        tuple(slice(o, o + n) for o, n in zip(offset, local, strict=True))
    ]
    flat = places.flatten()[start:stop]
    cuts = np.flatnonzero((flat[1:] // 256 != flat[:-1] // 256) | (np.diff(flat) != 1)) + 1
    return np.diff([0, *cuts, len(flat)]).tolist()


@pytest.mark.parametrize(
    ("shape", "local", "offset", "start", "stop"),
    [
        ((8, 1024), (8, 1024), (0, 0), 0, 8192),
        ((8, 1024), (4, 1024), (4, 0), 0, 4096),
        ((8, 1024), (8, 512), (0, 512), 0, 4096),
        ((8, 1024), (8, 512), (0, 512), 700, 3001),
        ((64, 100), (64, 50), (0, 50), 13, 2999),
        ((5000,), (2500,), (2500,), 100, 2500),
        ((4, 30, 40), (4, 15, 40), (0, 15, 0), 7, 2000),
    ],
)
def test_blocks_are_cut_from_the_whole_parameter(shape, local, offset, start, stop):
    master = torch.zeros(stop - start)
    place = ParameterLayout(torch.Size(shape), offset)
    piece = Piece("x", place, torch.Size(local), start, master, None, decay=True, counted=True)
    found = blocks_of(piece)
    assert found is not None
    assert np.diff(found.starts).tolist() == brute_force(shape, local, offset, start, stop)
    assert _lengths(np.array([0]), np.array([256])).tolist() == [256]


def job(model: ModelSpec, plan: Plan, **train: object) -> Job:
    given = {"global_batch": 4, "steps": 3, "precision": "fp32", "learning_rate": 1e-3, "optimizer": "adamw8bit"}
    return Job(model=model, data=Data(text="-"), train=Train(**given | train), plan=plan)  # type: ignore[arg-type]


def codes_after(mesh: Mesh, given: Job, folder: Path | None = None) -> tuple[list[float], bool, float]:
    """Losses, whether all blocks are whole ones of their parameters, and bytes of moments for each number."""
    trainer = Trainer(given, synthetic_tokens(given), mesh)
    losses = [trainer.train_step().loss for _ in range(given.train.steps)]
    if folder is not None:
        saver = Saver(folder, mesh)
        trainer.save(saver)
        saver.wait()
        losses.append(trainer.train_step().loss)
    adam = trainer.optimizer.adam
    assert isinstance(adam, EightBitAdamW)
    kept = sum(x.numel() * x.itemsize for state in adam.state.values() for x in state.values())
    whole = all(blocks is None or blocks.even for blocks in adam.blocks.values())
    return losses, whole, kept / sum(piece.master.numel() for piece in trainer.optimizer.pieces)


@pytest.mark.dist
def test_plans_that_keep_blocks_whole_learn_the_same(world: World):
    whole, even, each = codes_after(Mesh(), job(EVEN, Plan()))
    assert even
    assert each == pytest.approx(2 * (1 + 4 / 256), rel=0.02)
    plain = Trainer(job(EVEN, Plan(), optimizer="adamw"), synthetic_tokens(job(EVEN, Plan())))
    full = [plain.train_step().loss for _ in range(3)]
    assert full[0] == whole[0]
    assert 0 < abs(full[2] - whole[2]) < 0.02 * full[2]
    for plan in (
        Plan(tensor=2, microbatch=4),
        Plan(data=2, zero=1, microbatch=2),
        Plan(data=2, zero=3, microbatch=2),
        Plan(tensor=2, pipeline=2, microbatch=2),
    ):
        results = world.run(codes_after, plan, job(EVEN, plan))
        assert all(even for _, even, _ in results), plan
        # gradients that are rounded otherwise become other codes now and then
        assert results[0][0] == pytest.approx(whole, rel=1e-5), plan


def taken_up(mesh: Mesh, given: Job, folder: Path) -> float:
    trainer = Trainer(given, synthetic_tokens(given), mesh)
    trainer.load(folder / "step-00000002")
    return trainer.train_step().loss


@pytest.mark.dist
def test_a_resumed_run_goes_on_to_the_bit_and_under_another_plan(world: World, tmp_path):
    given = job(EVEN, Plan(), steps=2)
    losses = codes_after(Mesh(), given, tmp_path)[0]
    assert taken_up(Mesh(), given, tmp_path) == losses[2]
    plan = Plan(data=2, zero=2, microbatch=2)
    assert world.run(taken_up, plan, job(EVEN, plan), tmp_path)[0] == pytest.approx(losses[2], rel=1e-5)
    # and a run whose moments are in full precision, or the other way round
    assert taken_up(Mesh(), job(EVEN, Plan(), optimizer="adamw"), tmp_path) == pytest.approx(losses[2], rel=1e-5)


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (Plan(pipeline=2, microbatch=1, update="2bw"), "update"),
        (Plan(data=2, microbatch=1, local_steps=2), "local_steps"),
        (Plan(offload=("optimizer:host",)), "offload of the optimizer"),
        (Plan(pipeline=2, microbatch=1, check_step="after"), "check_step"),
        (Plan(adapt=True), "adapt"),
    ],
)
def test_what_looks_into_moments_is_refused(plan, words):
    with pytest.raises(HeddleError, match=f"adamw8bit' cannot be combined with {words}"):
        job(EVEN, plan)

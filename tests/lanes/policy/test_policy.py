"""The policy: legal, the same every time, the same in machine code and torch; and that it learns."""

import numpy as np
import pytest

pytest.importorskip("llvmlite")

from heddle.errors import HeddleError
from heddle.lanes import cost, ir, packs
from heddle.lanes.choose import choice
from heddle.lanes.choose.schedule import arrange
from heddle.lanes.dependence import regions
from heddle.lanes.policy import subjects as learning
from heddle.lanes.policy.decide import decide, shipped
from heddle.lanes.policy.kernels import kernel
from heddle.lanes.policy.network import SHAPES, features, read_weights
from heddle.lanes.policy.rollout import Demands, State
from heddle.lanes.policy.scores import scores
from heddle.lanes.portfolio import read


def graphs(seeds):
    for seed in seeds:
        module = ir.take_apart(read(kernel(seed, 1 + seed % 3).text))
        for function in module.functions:
            for region in regions(function, module):
                yield packs.build(region, cost.table("znver3"))


def made_up_weights(seed=0):
    chance = np.random.default_rng(seed)
    return {name: chance.normal(size=shape).astype(np.float32) / 5 for name, shape in SHAPES.items()}


def test_every_decision_is_legal_even_of_an_untrained_network():
    for graph in graphs(range(300, 312)):
        found = decide(graph, made_up_weights(), tries=2)
        chosen = list(found.packing.order)
        assert choice.used(graph, chosen) == sorted(chosen)
        arrange(graph, chosen)  # raises if they wait for each other
        done = [m for n in chosen if graph.productions[n].gives < 0 for m in graph.productions[n].members]
        assert sorted(done) == sorted(graph.stores)  # every store once
        assert found.cost <= choice.cost_of(graph, choice.used(graph, choice.scalar_choice(graph)))


def test_the_same_every_time():
    graph = next(graphs([310]))
    first, second = decide(graph, made_up_weights()), decide(graph, made_up_weights())
    assert first.packing.order == second.packing.order


def test_machine_code_and_torch_see_the_same():
    torch = pytest.importorskip("torch")
    from heddle.lanes.policy.train import _tensors, with_gradients

    graph = next(graphs([311]))
    seen = State.first(Demands(graph)).marked(features(graph))
    w = made_up_weights()
    ours = scores(w, seen)
    theirs = with_gradients({k: torch.from_numpy(v) for k, v in w.items()}, _tensors(seen))
    np.testing.assert_allclose(ours, theirs.numpy(), atol=1e-4)


@pytest.mark.skipif(shipped() is None, reason="no weights ship")
def test_the_weights_that_ship_pack():
    """Kernels the policy has not seen: most of what the integer program saves, and nothing made worse."""
    ours, theirs = [], []
    for s in learning.subjects(None, cost.table("znver3"), range(90_000, 90_012)):
        ours.append(1 - decide(s.graph).cost / s.scalar)
        theirs.append(1 - s.best / s.scalar)
    assert len(ours) > 5
    assert sum(ours) > 0.75 * sum(theirs)


def test_variants_of_one_program_have_one_name():
    text = "  %a = fadd float %x, %y\n  %b = fsub float %x, %y\n  %c = mul nsw i32 %p, %q"
    swapped = {learning.commuted(text, seed) for seed in range(30)}
    assert any("fadd float %y, %x" in t for t in swapped)
    assert any("mul nsw i32 %q, %p" in t for t in swapped)
    assert all("fsub float %x, %y" in t for t in swapped)


def test_training_writes_weights(tmp_path, monkeypatch):
    pytest.importorskip("torch")
    from heddle.lanes.policy import train

    monkeypatch.setattr(train, "EPOCHS", 1)
    monkeypatch.setattr(train, "DAGGER", 1)
    path = tmp_path / "weights.safetensors"
    said = list(train.train(None, "znver3", path, made_up=14))
    assert "14 generated kernels" in said[0]
    assert "held out" in said[1]
    assert "turn 1" in said[-2]
    assert {k: v.shape for k, v in read_weights(path).items()} == SHAPES
    with pytest.raises(HeddleError, match=r"has no \.c or \.ll file"):
        list(train.train(tmp_path, "znver3", path))
    (tmp_path / "empty.ll").write_text("define void @f() {\n  ret void\n}\n")
    with pytest.raises(HeddleError, match="too little to learn from"):
        list(train.train(tmp_path, "znver3", path, made_up=0))


def test_weights_of_another_shape_are_refused(tmp_path):
    path = tmp_path / "other.safetensors"
    path.write_bytes(b"\x02\0\0\0\0\0\0\0{}")
    with pytest.raises(HeddleError, match="does not hold the weights of a policy"):
        read_weights(path)

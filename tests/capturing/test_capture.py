"""Captured modules: the graph says what stages really do, and stages together are the module."""

from __future__ import annotations

import copy
import itertools
from functools import cache

import numpy as np
import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _pytree as pytree

import heddle
from heddle.capturing.files import load_stage, save_stage
from heddle.capturing.placed import Placed
from heddle.capturing.program import bytes_of
from heddle.capturing.split import real_values, whole
from heddle.capturing.times import measured
from heddle.errors import HeddleError
from heddle.planning.placement.operator_graph import document_of, graph_from
from heddle.planning.placement.place import place
from tests.helpers.cases import thinned
from tests.helpers.placement_check import evaluate, leads_back
from tests.helpers.small_modules import HUGGING_FACE, OWN

CPU = torch.device("cpu")


def made(name):
    """A module in evaluation mode, with its inputs."""
    torch.manual_seed(0)
    if name in OWN:
        case = OWN[name]()
    else:
        transformers = pytest.importorskip("transformers", reason="transformers is not installed")
        case = HUGGING_FACE[name](transformers)
    case[0].eval()
    return case


def run_in_turn(stages, inputs, outputs):
    """All stages one after the other, in this process."""
    passed, flat = (), [None] * outputs
    for stage in stages:
        passed, made = stage(*passed, *(inputs[number] for number in stage.inputs))
        for number, value in zip(stage.outputs, made, strict=True):
            flat[number] = value
    return flat


def tensors(value):
    return [
        leaf for leaf in pytree.tree_leaves(dict(value) if hasattr(value, "keys") else value) if torch.is_tensor(leaf)
    ]


def loss_of(output, _target):
    return sum((tensor.float() ** 2).mean() for tensor in tensors(output) if tensor.is_floating_point())


@cache
def captured(name, training):
    """A module, its inputs flat, and its graph: capturing takes longer than what is asked of it."""
    module, inputs, keywords = made(name)
    module.train(training)
    options = {"training": True, "loss": loss_of} if training else {}
    inputs = (*inputs, torch.zeros(())) if training else inputs
    graph = heddle.capture(module, inputs, keywords, times="modeled", **options)
    return module, inputs, keywords, graph


@pytest.mark.parametrize("name", thinned((*OWN, *HUGGING_FACE), slow=("resnet50", "bert", "t5")))
def test_stages_together_are_the_module(name, monkeypatch):
    module, inputs, keywords, graph = captured(name, False)
    monkeypatch.setattr(torch.backends.mha, "get_fastpath_enabled", lambda: False)  # other kernels than any export's
    with torch.no_grad():
        expected = tensors(module(*inputs, **keywords))
    for devices in (2, 3):
        placed = Placed(graph, place(graph, devices=devices))
        assert placed.placement.optimal
        assert len(placed.stages) == devices
        with torch.no_grad():
            flat = run_in_turn(placed.stages, pytree.tree_leaves((inputs, keywords)), len(graph.program.outputs))
        for ours, theirs in zip(tensors(graph.program.restore(flat)), expected, strict=True):
            assert torch.equal(ours, theirs)


@pytest.mark.parametrize(
    ("name", "training"),
    thinned(
        itertools.product(("resnet50", "inception", "seq2seq"), (False, True)),
        slow=[("resnet50", False), ("resnet50", True), ("seq2seq", True)],
    ),
)
def test_loads_are_what_stages_do_and_send(name, training):
    """A load is the time of a stage's operators, and of every tensor it gets or gives, there and back."""
    *_, graph = captured(name, training)
    found = place(graph)
    document = document_of(graph)
    devices = [{"kind": device.kind, "operators": device.operators} for device in found.devices]
    assert not leads_back(document, devices)
    assert evaluate(document, devices, graph.memory) == pytest.approx([device.load for device in found.devices])
    placed = Placed(graph, found)
    program, times = graph.program, graph.times
    sizes = {node.name: bytes_of(node) for node in program.operators}
    operators = {node.name: number for number, node in enumerate(program.operators)}
    loads = []
    parts = graph.parts([device.operators for device in found.devices])
    for stage, part in zip(placed.stages, parts, strict=True):
        numbers = [operators[node.name] for node in part]
        moved = [name for way in (stage.received, stage.sent) for name in (*way.names, *way.backward.names)]
        seconds = sum(times.forward[i] + times.backward[i] for i in numbers) + sum(times.move(sizes[n]) for n in moved)
        loads.append(1e3 * seconds)
    assert sorted(loads) == pytest.approx(sorted(device.load for device in found.devices))


def test_a_graph_goes_into_the_published_format_and_back():
    *_, graph = captured("inception", False)
    again = graph_from(document_of(graph))
    for name in ("accelerator", "size", "move", "backward"):
        np.testing.assert_array_equal(getattr(again, name), getattr(graph, name))
    assert place(again).value == place(graph).value


def test_parameters_are_memory_and_constants_are_no_operators():
    module, *_, graph = captured("seq2seq", False)
    own = sum(p.numel() * p.element_size() for p in module.parameters())
    table = module.words.weight.numel() * 4  # read by three operators, which may be far apart
    constant = 7 * 7 * 4  # the mask as numbers, for the decoder's self-attention
    assert own + 2 * table <= graph.size.sum() <= own + 2 * table + 4 * constant
    assert not any("arange" in name for name in graph.operators)


def test_backward_operators_follow_their_twins():
    *_, graph = captured("inception", True)
    assert graph.backward.any()
    assert (graph.accelerator[graph.backward] > 0).any()
    found = place(graph, devices=3)
    where = {operator: number for number, device in enumerate(found.devices) for operator in device.operators}
    for operator in np.array(graph.operators, dtype=object)[graph.backward]:
        assert where[operator] == where[operator.removesuffix("'")]


def test_fake_modules_are_placed_without_running():
    """Weights of a size that this machine could not hold."""
    with FakeTensorMode():
        module = nn.Sequential(*(nn.Linear(65_536, 65_536) for _ in range(8)))
        placed = heddle.place(module, (torch.ones(1, 65_536),), times="modeled", devices=2, memory=2**38)
    assert [len(device.operators) for device in placed.placement.devices] == [4, 4]
    assert placed.graph.size.sum() > 2**37 - 2**20
    with pytest.raises(HeddleError, match="has no values"):
        placed.run([(torch.ones(1, 65_536),)])


def test_measured_times_are_those_of_the_whole_and_nothing_is_changed(tmp_path):
    module, inputs, _, graph = captured("inception", True)
    before, program = copy.deepcopy(module.state_dict()), graph.program
    save_stage(whole(program, real_values(program)), tmp_path / "stage.pt")
    forward, backward = measured(
        load_stage(tmp_path / "stage.pt", CPU), inputs, True, CPU, rounds=9
    )  # medians: others use the cores, too
    slow = {node.name for node, seconds in zip(program.operators, forward, strict=True) if seconds > 0}
    assert {node.name for node in program.operators} == slow
    assert sum(backward) > sum(forward) / 2
    for name, value in module.state_dict().items():
        assert torch.equal(value, before[name]), name
    assert all(parameter.grad is None for parameter in module.parameters())


class Widened(nn.Module):
    """Writes down a device; its positions are a constant."""

    def forward(self, x):
        return x.to(CPU, torch.float64) + torch.arange(4)


def test_a_stage_goes_to_any_device(tmp_path):
    """Nothing may be left where it was captured."""
    program = heddle.capture(Widened(), (torch.ones(2, 4),), times="modeled").program
    save_stage(whole(program, real_values(program)), tmp_path / "stage.pt")
    meta = torch.device("meta")
    assert "device(type='cpu')" in load_stage(tmp_path / "stage.pt", CPU).module.code
    _, (output,) = load_stage(tmp_path / "stage.pt", meta)(torch.ones(2, 4, device=meta))
    assert (output.device, output.shape, output.dtype) == (meta, (2, 4), torch.float64)


class Branching(nn.Module):
    def forward(self, x):
        return x if x.sum() > 0 else -x


class Choosing(nn.Module):
    def forward(self, x):
        return x[x > 0]


@pytest.mark.parametrize(
    ("part", "told"),
    [
        (Branching(), [r"cannot be captured: 1 \(Branching\)", "test_capture.py:[0-9]+: return x if x.sum"]),
        (Choosing(), ["cannot be captured: 1.index returns a tensor of unknown size"]),
    ],
)
def test_what_cannot_be_captured_is_named(part, told, capfd):
    with pytest.raises(HeddleError) as caught:
        heddle.capture(nn.Sequential(nn.Linear(3, 3), part), (torch.ones(2, 3),))
    for text in told:
        assert caught.match(text)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("arguments", "options", "told"),
    [
        ((print, ()), {}, "is not a torch.nn.Module"),
        ((nn.Linear(3, 3), torch.ones(2, 3)), {}, "The example inputs are a Tensor"),
        ((nn.Linear(3, 3), (torch.ones(2, 3),)), {"times": "guessed"}, "Unknown times 'guessed'"),
        ((nn.Linear(3, 3), (torch.ones(2, 3),)), {"devices": 0}, "devices = 0"),
        ((nn.Linear(3, 3), (torch.ones(2, 3),)), {"training": True}, "training needs one number, the loss"),
        ((nn.Linear(3, 3), (torch.ones(2, 4),)), {}, "cannot be captured: the module itself"),
        ((nn.Identity(), (torch.ones(2, 3),)), {}, "The module computes nothing"),
    ],
)
def test_mistakes_are_told(arguments, options, told):
    with pytest.raises(HeddleError, match=told):
        heddle.capture(*arguments, **{"times": "modeled", **options})

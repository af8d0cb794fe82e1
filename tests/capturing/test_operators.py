"""Operators of other libraries: the processes of stages import what registered them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

import heddle
from heddle.capturing.operators import Custom, Registrar, register
from heddle.capturing.operators import custom_operators as found_in
from heddle.errors import HeddleError
from tests.helpers import custom_operators
from tests.helpers.commands import call


def test_who_registered_an_operator_is_known():
    torch_only = found_in([torch.ops.aten.relu.default, torch.ops.prims.sum.default, max])
    assert torch_only == Custom((), (), ())
    ops = torch.ops.heddle_test_library.twice.default, torch.ops.heddle_test_custom.thrice.default
    found = found_in([torch.ops.aten.relu.default, *ops])
    assert found.operators == (("heddle_test_library", "twice"), ("heddle_test_custom", "thrice"))
    assert found.registrars == (Registrar("tests.helpers.custom_operators", custom_operators.__file__),)


def test_a_file_that_python_does_not_know_is_loaded_by_its_path(tmp_path):
    file = tmp_path / "somewhere_else.py"
    file.write_text(Path(custom_operators.__file__).read_text().replace("heddle_test", "heddle_moved"))
    wanted = Custom((("heddle_moved_library", "twice"),), (Registrar("somewhere_else", str(file)),), ())
    register(wanted)
    assert torch.equal(torch.ops.heddle_moved_library.twice(torch.ones(2)), torch.full((2,), 2.0))
    del sys.modules["somewhere_else"]


def test_an_operator_that_nothing_brings_is_told():
    with pytest.raises(HeddleError, match="nowhere::nothing is not known"):
        register(Custom((("nowhere", "nothing"),), (Registrar("no_such_module", None),), ()))


@pytest.mark.dist
def test_custom_operators_run_in_the_stages():
    module, inputs = custom_operators.make()
    placed = heddle.place(module, inputs, devices=2, times="modeled")
    assert all(device.operators for device in placed.placement.devices)
    found = placed.run([inputs] * 3)
    assert found.stages == 2
    with torch.no_grad():
        assert torch.equal(found.outputs[2], module(*inputs))


@pytest.mark.dist
def test_custom_operators_of_a_users_file_are_measured(capsys):
    Path("mine.py").write_text(Path(custom_operators.__file__).read_text().replace("heddle_test", "heddle_users"))
    assert call("place", "mine.py:make") == 0
    assert " ms " in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.dist
def test_a_mixture_of_experts_of_transformers_runs_as_it_was_placed():
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    experts = {"num_key_value_heads": 2, "num_local_experts": 4, "num_experts_per_tok": 2, "vocab_size": 97}
    model = transformers.MixtralForCausalLM(transformers.MixtralConfig(**sizes, **experts)).eval()
    keywords = {"input_ids": torch.randint(0, 97, (2, 8))}
    with pytest.raises(HeddleError, match=r"returns a key-value cache(.|\n)*use_cache=False"):
        heddle.place(model, (), keywords, times="modeled")
    model.config.use_cache = False
    placed = heddle.place(model, (), keywords, times="modeled")
    found = placed.run([((), keywords)] * 2)
    assert found.stages == 2
    with torch.no_grad():
        assert torch.equal(found.outputs[1].logits, model(**keywords).logits)

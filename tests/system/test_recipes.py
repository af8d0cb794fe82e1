"""Each contributor recipe, applied to a copy of the package as it is written, does what it promises."""

import re

import pytest

from tests.helpers.recipes import Copy


@pytest.mark.dist
def test_the_recipe_for_an_axis(tmp_path):
    copy = Copy(tmp_path, "add-an-axis.md")
    assert sorted(copy.changed) == [
        "heddle/cost/work.py",
        "heddle/parallel/mesh.py",
        "heddle/spec/axes.py",
        "heddle/spec/axes.py",
        "heddle/spec/plan.py",
    ]
    printed = copy.promised()
    assert "equal" in printed
    assert "mirror 2" in printed


LOADING = """
import heddle
from heddle.cost.work import work_of
from heddle.simulating.closed_form import closed_form
job, without = (heddle.load_job("loading.toml", [f"cluster.efficiency.sample_us={each}"]) for each in (500, 0))
here, before = heddle.simulate(job), heddle.simulate(without)
quick = closed_form(work_of(job, job.cluster), job.cluster)
print(here.step_seconds - before.step_seconds, here.breakdown.loading, float(quick.breakdown.loading))
print(sum(here.breakdown) - here.step_seconds, float(sum(quick.breakdown) - quick.seconds))
print(here.trace.duration - here.step_seconds, float(quick.seconds) / here.step_seconds - 1)
"""


def test_the_recipe_for_a_cost_term(tmp_path):
    copy = Copy(tmp_path, "add-a-cost-term.md")
    assert sorted(set(copy.changed)) == [
        "heddle/cost/breakdown.py",
        "heddle/cost/step.py",
        "heddle/simulating/closed_form.py",
        "heddle/simulating/simulation.py",
        "heddle/simulating/timeline.py",
        "heddle/spec/cluster.py",
    ]
    printed = copy.promised()
    assert re.search(r"loading +0\.0080 s", printed), printed
    longer, adds_up, agrees = (
        [float(word) for word in line.split()] for line in copy.python("-c", LOADING).splitlines()
    )
    assert longer == pytest.approx([8e-3] * 3)  # 16 samples at 500 µs
    assert adds_up == pytest.approx([0.0, 0.0], abs=1e-9)
    assert agrees == pytest.approx([0.0, 0.0], abs=1e-3)


HYPERCLOVA = """
import sys, warnings
from pathlib import Path
import torch, transformers
warnings.simplefilter("ignore")
transformers.logging.set_verbosity_error()
from heddle.checkpoint.load_model import load_model
from heddle.checkpoint.source import huggingface_source
from heddle.models import Microbatch
for post_norm in (True, False):
    config = transformers.AutoConfig.for_model(
        "hyperclovax", hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=10, vocab_size=99, max_position_embeddings=32, pad_token_id=None,
        use_post_norm=post_norm, embedding_multiplier=3.0, logits_scaling=0.3, residual_multiplier=0.5,
        attention_multiplier=0.2, bos_token_id=1, eos_token_id=2,
    )
    theirs = transformers.AutoModelForCausalLM.from_config(config).eval()
    for parameter in theirs.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    theirs.save_pretrained(f"clova-{post_norm}")
    ours = load_model(huggingface_source(Path(f"clova-{post_norm}")), torch.float32, torch.device("cpu"))
    ids = torch.randint(0, 99, (1, 20))
    with torch.no_grad():
        expected, found = theirs(ids).logits[0], ours(ids[0], Microbatch(sequence=20))
    print("off by", float((found - expected).abs().max() / expected.abs().max()))
"""


@pytest.mark.dist
@pytest.mark.slow
def test_the_recipe_for_a_model_family(tmp_path):
    pytest.importorskip("transformers", reason="transformers is not installed")
    made = ("heddle/spec/hf/families.py", "heddle/models/huggingface_names.py")
    copy = Copy(tmp_path, "add-a-model-family.md", made)
    assert sorted(copy.changed) == [
        "heddle/models/activations.py",
        "heddle/models/huggingface_names.py",
        "heddle/spec/hf/config_keys.py",
        "heddle/spec/hf/families.py",
        "heddle/spec/model.py",
    ]
    printed = copy.promised()
    assert "hyperclovax" in printed
    assert "equal" in printed
    found = [float(word) for word in re.findall(r"off by (\S+)", copy.python("-c", HYPERCLOVA))]
    assert len(found) == 2
    assert max(found) < 1e-5

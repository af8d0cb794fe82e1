"""Every family against transformers: logits, files, training and generation, on one device and on several."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from heddle.checkpoint.exchange.convert import export_huggingface, import_huggingface
from heddle.checkpoint.load_model import load_model
from heddle.checkpoint.source import checkpoint_source, huggingface_source
from heddle.data import Samples
from heddle.models import Microbatch
from heddle.models.generate import generate
from heddle.parallel.mesh import Mesh
from heddle.spec import Data, Job, Plan, Train
from heddle.spec.hf.families import FAMILIES
from heddle.spec.huggingface import read_config
from heddle.training.prove.prove import synthetic_tokens
from heddle.training.step.trainer import Trainer
from tests.helpers.cases import thinned
from tests.helpers.families import MODELS, PLAIN_MODELS, SINGLE, family_of

transformers = pytest.importorskip("transformers", reason="transformers is not installed")

ANY_SIZE = 1 << 40
LIMIT = 1e-5  # relative, in fp32
STEPS, BATCH, SEQUENCE = 5, 4, 16
# Mixtures of experts take more and smaller steps: a choice that differs would show in all that follow, and so does what
# large steps of a random model make of rounding.
EXPERTS = {"steps": 10, "learning_rate": 1e-3}
TRAIN = Train(
    steps=STEPS,
    global_batch=BATCH,
    learning_rate=3e-3,
    schedule="constant",
    epsilon=1e-5,  # Adam would make a full step of a gradient that is nothing but rounding
    weight_decay=0.0,
    clip=0.0,
    precision="fp32",
)
# tensor and pipeline together, and sequence parallelism for every second one
PLANS = (
    Plan(tensor=2, pipeline=2, microbatch=1),
    Plan(tensor=2, sequence=True, pipeline=2, microbatch=2, data=2, zero=1, stages=(1, 3), recompute="selective"),
)


# Between them these have every feature; the others run with the slow tests.
QUICK = {
    *(
        "gemma2",
        "gemma3_text-odd",
        "phi-odd",
        "phi3-odd",
        "olmo",
        "olmo2-odd",
        "smollm3-odd",
        "granite_swa",
        "gpt_neox",
    ),
    *("stablelm-odd", "starcoder2-odd", "cohere-odd", "cohere2", "falcon-odd", "gptj", "gpt_neo", "glm4", "exaone4"),
    *("nemotron-odd", "hunyuan_v1_dense", "gpt_bigcode-one", "qwen2-odd", "deepseek_v3", "gpt_oss"),
}
TRIED = thinned(MODELS, slow=MODELS.keys() - QUICK)
# of these, one for each way to lay a layer out over ranks: what they compute is compared for all
SPREAD = {
    *("gemma3_text-odd", "gpt_neox", "cohere-odd", "falcon-odd", "gpt_bigcode-one", "deepseek_v3", "gpt_oss"),
}
TRAINED = thinned(MODELS, slow=MODELS.keys() - SPREAD)


@pytest.fixture(autouse=True)
def _quiet():
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def made(name: str, folder: Path) -> Any:
    """A model of transformers with random weights, saved."""
    torch.manual_seed(0)
    ends = {"bos_token_id": 1, "eos_token_id": 2}
    config = transformers.AutoConfig.for_model(family_of(name), **ends | MODELS[name])
    for key in ("attention_dropout", "attn_pdrop", "resid_pdrop", "embd_pdrop", "residual_dropout"):
        if hasattr(config, key):
            setattr(config, key, 0.0)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    for key, parameter in model.named_parameters():
        # norms and biases that matter, and products large enough that a row out of place is seen
        small = parameter.dim() == 1 or "norm" in key
        parameter.data += torch.randn_like(parameter) * (0.1 if small else 0.15)
    for key, buffer in model.named_buffers():
        if key.endswith("e_score_correction_bias"):
            buffer += torch.randn_like(buffer) * 0.1
    model.save_pretrained(folder)
    return model


def test_every_family_is_tried():
    assert set(PLAIN_MODELS) == set(FAMILIES)


@pytest.mark.parametrize("name", TRIED)
def test_logits_files_and_generated_text_are_those_of_transformers(name, tmp_path):
    theirs = made(name, tmp_path / "theirs")
    ids = torch.randint(3, 131, (2, 40))
    ours = load_model(huggingface_source(tmp_path / "theirs"), torch.float32, torch.device("cpu"))
    with torch.no_grad():
        expected = theirs(ids).logits
        found = ours(ids.flatten(), Microbatch(sequence=40)).view_as(expected)
    assert float((found - expected).abs().max() / expected.abs().max()) < LIMIT

    import_huggingface(huggingface_source(tmp_path / "theirs"), tmp_path / "imported")
    export_huggingface(checkpoint_source(tmp_path / "imported"), tmp_path / "once", None, ANY_SIZE)
    import_huggingface(huggingface_source(tmp_path / "once"), tmp_path / "again")
    export_huggingface(checkpoint_source(tmp_path / "again"), tmp_path / "twice", None, ANY_SIZE)
    once, twice = (load_file(tmp_path / folder / "model.safetensors") for folder in ("once", "twice"))
    before = load_file(tmp_path / "theirs" / "model.safetensors")
    assert all(torch.equal(tensor, before[key]) for key, tensor in once.items())
    assert all(torch.equal(tensor, twice[key]) for key, tensor in once.items())
    configs = [json.loads((tmp_path / folder / "config.json").read_text()) for folder in ("once", "twice")]
    assert configs[0] == configs[1]
    assert configs[0]["model_type"] == family_of(name)
    opened = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "once", attn_implementation="eager").eval()
    with torch.no_grad():
        assert float((opened(ids).logits - expected).abs().max() / expected.abs().max()) < LIMIT

    prompt = ids[0, :5]
    theirs.generation_config.eos_token_id = theirs.config.eos_token_id = None
    kept = transformers.GenerationConfig(max_new_tokens=30, do_sample=False, pad_token_id=0)
    if ours.spec.sequence >= 35:
        text = theirs.generate(prompt[None], kept)[0, 5:].tolist()
        assert list(islice(generate(ours, prompt.tolist(), temperature=0), 30)) == text


def job_of(folder: Path, plan: Plan) -> Job:
    model = read_config(json.loads((folder / "config.json").read_text()))
    train = Train(**{**vars(TRAIN), "sequence": SEQUENCE} | (EXPERTS if model.experts else {}))
    return Job(model=model, data=Data(text="-"), train=train, plan=plan)


def trained(mesh: Mesh, job: Job, folder: Path) -> list[float]:
    trainer = Trainer(job, synthetic_tokens(job), mesh)
    trainer.start_from(huggingface_source(folder, mesh))
    return [trainer.train_step().loss for _ in range(job.train.steps)]


def plain(model: Any, job: Job) -> list[float]:
    """Training as anybody would write it over transformers."""
    train = job.train
    adam = torch.optim.Adam(
        model.parameters(), lr=train.learning_rate, betas=(train.beta1, train.beta2), eps=train.epsilon
    )
    samples, losses = Samples(synthetic_tokens(job), SEQUENCE, train.seed), []
    for step in range(train.steps):
        ids, targets = (torch.from_numpy(part) for part in samples.batch(step * BATCH, BATCH))
        loss = torch.nn.functional.cross_entropy(model(ids).logits.flatten(0, 1), targets.flatten())
        adam.zero_grad()
        loss.backward()
        adam.step()
        losses.append(loss.item())
    return losses


@pytest.mark.dist
@pytest.mark.parametrize("name", TRAINED)
def test_a_family_trains_as_a_loop_over_transformers_does(world, name, tmp_path):
    theirs = made(name, tmp_path / "theirs")
    number = list(MODELS).index(name) % 2
    plan = Plan(pipeline=2) if name in SINGLE else PLANS[number]
    if "gemma3" in name:  # whose layers are more
        plan = replace(plan, stages=())
    alone = job_of(tmp_path / "theirs", Plan(microbatch=2))
    expected = plain(theirs, alone)
    found = {"one device": trained(Mesh(), alone, tmp_path / "theirs")}
    found["several"] = world.run(trained, plan, job_of(tmp_path / "theirs", plan), tmp_path / "theirs")[0]
    for where, losses in found.items():
        off = max(abs(a - b) / b for a, b in zip(losses, expected, strict=True))
        assert off < LIMIT, f"{where}: {losses} instead of {expected}"

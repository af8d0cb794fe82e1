"""Hugging Face in and out: the same logits, the same bits, one file in memory, and nothing believed unseen."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import re
import struct
import weakref
from contextlib import chdir
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from heddle.checkpoint import source, storage
from heddle.checkpoint.checkpoint import Saver, read_progress
from heddle.checkpoint.exchange import agreement
from heddle.checkpoint.exchange import convert as exchange
from heddle.checkpoint.exchange.convert import export_huggingface, import_huggingface, pack
from heddle.checkpoint.huggingface import HuggingFaceReader
from heddle.checkpoint.index import read_index
from heddle.checkpoint.load_model import load_model
from heddle.checkpoint.source import checkpoint_source, find_source, huggingface_source
from heddle.checkpoint.storage import Boxes
from heddle.data import Samples, load_tokenizer
from heddle.data.tokenizer import ByteTokenizer, train_bpe
from heddle.errors import HeddleError
from heddle.models import Microbatch
from heddle.parallel.mesh import Mesh
from heddle.spec import Data, Job, ModelSpec, Plan, Train
from heddle.spec.huggingface import read_config
from heddle.spec.job import dumps_job, load_job
from heddle.training.step.trainer import Trainer
from tests.helpers.cases import thinned
from tests.helpers.commands import call, losses, write_job
from tests.helpers.hf_folder import CONFIGS, UNLIKE, logits, random_weights, write_folder

IDS = torch.tensor([5, 200, 31, 7, 7, 90, 256, 0, 13, 64, 1])
ANY_SIZE = 1 << 40


def folder_of(name: str = "llama", path: str = "hf", shards: int = 1, dtype: torch.dtype = torch.float32) -> Path:
    return write_folder(Path(path), CONFIGS[name], random_weights(CONFIGS[name], dtype=dtype), shards)


def our_logits(found: source.WeightSource, ids: torch.Tensor = IDS) -> torch.Tensor:
    model = load_model(found, torch.float32, torch.device("cpu"))
    with torch.no_grad():
        return model(ids, Microbatch(sequence=len(ids)))


def weights_in(folder: Path) -> dict[str, torch.Tensor]:
    return {name: tensor for path in folder.glob("*.safetensors") for name, tensor in load_file(path).items()}


def imported(folder: Path, output: str = "imported") -> source.WeightSource:
    import_huggingface(huggingface_source(folder), Path(output))
    return checkpoint_source(Path(output))


# --- Logits -----------------------------------------------------------------------------------------------

VARIANTS = {
    **CONFIGS,
    **UNLIKE,
    "gpt2-untied": CONFIGS["gpt2"] | {"tie_word_embeddings": False},
    "llama-tied": CONFIGS["llama"] | {"tie_word_embeddings": True},
    "llama-biases": CONFIGS["llama"] | {"attention_bias": True, "mlp_bias": True},
    "qwen3-one-kv-head": CONFIGS["qwen3"] | {"num_key_value_heads": 1},
}


@pytest.mark.parametrize("shards", thinned((1, 3), slow=(1,)))
@pytest.mark.parametrize("config", VARIANTS.values(), ids=VARIANTS)
def test_an_imported_model_computes_what_the_folder_computes(config, shards):
    weights = random_weights(config)
    folder = write_folder(Path("hf"), config, weights, shards)
    expected = logits(config, weights, IDS)
    assert expected.abs().max() > 1  # numbers that could be told apart
    torch.testing.assert_close(our_logits(imported(folder)), expected, atol=1e-4, rtol=0)
    torch.testing.assert_close(our_logits(huggingface_source(folder)), expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_files_of_the_bare_body_and_constants_of_old_files_are_read(name):
    weights = random_weights(CONFIGS[name])
    old = {key.removeprefix("transformer.").removeprefix("model."): tensor for key, tensor in weights.items()}
    if name == "gpt2":
        old |= {"h.0.attn.bias": torch.ones(1, 1, 16, 16, dtype=torch.bool), "h.1.attn.masked_bias": torch.ones(())}
    else:
        old |= {"layers.0.self_attn.rotary_emb.inv_freq": torch.ones(3)}
    found = imported(write_folder(Path("hf"), CONFIGS[name], old))
    torch.testing.assert_close(our_logits(found), logits(CONFIGS[name], weights, IDS), atol=1e-4, rtol=0)


# --- Round trips ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shards", [1, 2])
@pytest.mark.parametrize("name", CONFIGS)
def test_out_of_an_import_comes_what_went_in_bit_for_bit(name, shards):
    folder = folder_of(name, shards=shards)
    total = sum(tensor.nbytes for tensor in weights_in(folder).values())
    limit = total // 2 if shards > 1 else ANY_SIZE
    written = export_huggingface(imported(folder), Path("again"), None, limit)
    assert (written.files > 1) == (shards > 1)
    before, after = weights_in(folder), weights_in(Path("again"))
    assert before.keys() == after.keys()
    assert all(torch.equal(before[key], after[key]) and before[key].dtype == after[key].dtype for key in before)
    assert read_config(json.loads(Path("again/config.json").read_text())) == read_config(CONFIGS[name])


def test_shards_and_their_index_are_as_transformers_writes_them():
    folder = folder_of("llama")
    limit = 20_000
    written = export_huggingface(huggingface_source(folder), Path("out"), None, limit)
    files = sorted(path.name for path in Path("out").glob("*.safetensors"))
    assert files == [f"model-{i + 1:05}-of-{len(files):05}.safetensors" for i in range(len(files))]
    assert len(files) == written.files > 3
    index = json.loads(Path("out/model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] == sum(tensor.nbytes for tensor in weights_in(folder).values())
    assert index["weight_map"] == {key: file for file in files for key in load_file(Path("out") / file)}
    sizes = [sum(tensor.nbytes for tensor in load_file(Path("out") / file).values()) for file in files]
    largest = max(tensor.nbytes for tensor in weights_in(folder).values())
    assert all(size <= max(limit, largest) for size in sizes)
    for file in files:  # without it, transformers refuses a file
        with safe_open(Path("out") / file, "pt") as opened:
            assert opened.metadata()["format"] == "pt"


def test_files_are_filled_in_order_and_no_tensor_is_cut():
    new = {name: exchange.New((size,), torch.float16, ()) for name, size in zip("abcde", (2, 3, 9, 1, 1), strict=True)}
    assert pack(new, 10) == [["a", "b"], ["c"], ["d", "e"]]
    assert pack(new, 1) == [[name] for name in "abcde"]
    assert pack(new, ANY_SIZE) == [list("abcde")]


MODEL = ModelSpec(layers=2, hidden=32, heads=4, vocab=257, sequence=16)


def tokens() -> np.ndarray:
    return (np.arange(3000) * 7 % 251).astype("<u2")


def trained(model: ModelSpec = MODEL, steps: int = 3, folder: str = "run", **train) -> Trainer:
    """A run with one checkpoint, without its tokenizer."""
    job = Job(model=model, data=Data(text="-"), train=Train(global_batch=4, **train), plan=Plan(microbatch=2))
    trainer, saver = Trainer(job, tokens()), Saver(Path(folder) / "checkpoints", Mesh())
    for _ in range(steps):
        trainer.train_step()
    trainer.save(saver)
    saver.wait()
    Path(folder, "job.toml").write_text(dumps_job(job.planned))
    return trainer


@pytest.mark.parametrize("name", ["gpt2", "qwen2", "qwen3"])
def test_a_run_survives_export_and_import_bit_for_bit(name):
    trainer = trained(dataclasses.replace(read_config(CONFIGS[name]), dropout=0.1 if name == "gpt2" else 0.0))
    found = find_source(Path("run"), Mesh(), pytest.fail)
    export_huggingface(found, Path("hf"), None, ANY_SIZE)
    again = imported(Path("hf"))
    assert again.model == trainer.job.model
    masters = {piece.name: piece.master.view(piece.local) for piece in trainer.optimizer.pieces}
    assert masters.keys() == again.tensors.keys()
    for key, master in masters.items():
        values = torch.empty_like(master)
        again.load({key: Boxes(tuple(master.shape), [((0,) * master.dim(), values)])})
        assert torch.equal(values, master), key


@pytest.mark.parametrize("name", UNLIKE)
def test_layers_that_differ_are_imported_trained_and_exported(name, capsys):
    config = UNLIKE[name]
    write_job(Path())
    folder = write_folder(Path("hf"), config, random_weights(config))
    ByteTokenizer().save(folder)
    assert call("import", "hf", "hf", "-o", "imported") == 0
    job = Path("job.toml")
    job.write_text(f'[data]{job.read_text().partition("[data]")[2]}from = "imported"\n')
    assert call("train", "job.toml", "--set", "train.steps=2") == 0
    assert call("train", "job.toml", "--set", "train.steps=3", "--resume", "--set", "train.warmup=0") == 0
    for command in ("inspect runs/small --verify", "generate runs/small --tokens 2", "export hf runs/small -o out"):
        assert call(*command.split()) == 0
    said = capsys.readouterr().out
    assert said.count("Checked: the logits of") == 2 * (agreement._transformers() is not None)
    exported = json.loads(Path("out/config.json").read_text())
    assert read_config(exported) == read_config(config)
    ours = our_logits(find_source(Path("runs/small"), Mesh(), pytest.fail))
    torch.testing.assert_close(logits(config, weights_in(Path("out")), IDS), ours, atol=1e-4, rtol=0)
    assert not torch.equal(ours, our_logits(checkpoint_source(Path("imported"))))  # it has learned


def test_the_imported_folder_is_a_checkpoint_like_any_other():
    found = imported(folder_of("llama", shards=2))
    index = read_index(Path("imported"))
    assert sum(np.prod(tensor.shape) for tensor in index.values()) == found.model.parameters
    assert not any(":" in name for name in index)  # no optimizer state
    assert read_progress(Path("imported")).step == 0
    for file in {box.file for tensor in index.values() for box in tensor.boxes}:
        storage.check_file(Path("imported") / file)
    assert found.model == read_config(CONFIGS["llama"])
    assert "[model]" in Path("imported/model.toml").read_text()


# --- Precision --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_an_import_keeps_the_precision(dtype):
    found = imported(folder_of("gpt2", dtype=dtype))
    assert {storage.DTYPE_OF[tensor.dtype] for tensor in found.tensors.values()} == {dtype}
    expected = logits(CONFIGS["gpt2"], random_weights(CONFIGS["gpt2"], dtype=dtype), IDS)
    torch.testing.assert_close(our_logits(found), expected, atol=1e-4, rtol=0)


def test_an_export_rounds_if_asked():
    folder = folder_of("llama")
    export_huggingface(huggingface_source(folder), Path("half"), torch.bfloat16, ANY_SIZE)
    before, after = weights_in(folder), weights_in(Path("half"))
    assert all(torch.equal(before[key].bfloat16(), after[key]) for key in before)
    assert json.loads(Path("half/config.json").read_text())["torch_dtype"] == "bfloat16"


def test_parts_in_several_precisions_meet_in_one_that_loses_nothing():
    weights = random_weights(CONFIGS["llama"])
    weights = {key: tensor.bfloat16() if "k_proj" in key else tensor for key, tensor in weights.items()}
    found = imported(write_folder(Path("hf"), CONFIGS["llama"], weights))
    assert found.tensors["layers.0.attention.qkv.weight"].dtype == "F32"
    torch.testing.assert_close(our_logits(found), logits(CONFIGS["llama"], weights, IDS), atol=1e-4, rtol=0)


# --- Tied weights -----------------------------------------------------------------------------------------


def test_a_tied_model_has_no_output_layer_in_the_file():
    folder = folder_of("qwen2")
    found = imported(folder)
    assert "head.weight" not in found.tensors
    export_huggingface(found, Path("out"), None, ANY_SIZE)
    assert "lm_head.weight" not in weights_in(Path("out"))


def test_a_tied_output_layer_that_is_there_all_the_same_must_be_the_embedding():
    weights = random_weights(CONFIGS["qwen2"])
    twice = weights | {"lm_head.weight": weights["model.embed_tokens.weight"].clone()}
    assert "head.weight" not in imported(write_folder(Path("hf"), CONFIGS["qwen2"], twice)).tensors
    twice["lm_head.weight"][256, 3] += 1
    with pytest.raises(HeddleError, match=r"lm_head.weight and model.embed_tokens.weight .* differ"):
        huggingface_source(write_folder(Path("other"), CONFIGS["qwen2"], twice, shards=2))


# --- Memory -----------------------------------------------------------------------------------------------


def resident() -> int:
    """Bytes of this process that are its own: mapped files, which the system may drop at any time, do not count."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) * 1024


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="asks Linux")
def test_no_more_than_one_file_is_ever_in_memory(monkeypatch):
    """Ten shards go in and come out; at each write, the fullest moment, one of them is there."""
    config = CONFIGS["llama"] | {"hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 8, "head_dim": 64}
    config |= {"num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 1024}
    weights = random_weights(config)
    total, largest = (of(tensor.nbytes for tensor in weights.values()) for of in (sum, max))
    folder = write_folder(Path("hf"), config, weights, shards=10)
    limit = total // 10
    del weights
    made: list[weakref.ref[torch.Tensor]] = []
    alive, mine = [], []

    def watched(path, new, *notes):
        made.extend(weakref.ref(tensor) for _, tensor in new)
        alive.append(sum(tensor.nbytes for each in made if (tensor := each()) is not None))
        mine.append(resident())
        storage.write_file(path, new, *notes)

    monkeypatch.setattr(exchange, "write_file", watched)
    monkeypatch.setattr(exchange, "PART_BYTES", limit)
    before = resident()
    assert import_huggingface(huggingface_source(folder), Path("in")).files >= 8
    assert export_huggingface(checkpoint_source(Path("in")), Path("out"), None, limit).files >= 8
    assert len(alive) >= 16
    assert max(alive) <= max(limit, largest)
    assert max(mine) - before < total / 3  # allocators keep a little


def test_of_a_folder_only_what_is_asked_for_is_read(monkeypatch):
    """Half of the rows of each matrix, as a tensor-parallel rank would: half of the numbers leave the disk."""
    read = []
    plain = HuggingFaceReader.read_part

    def counted(self, file, box, part):
        values = plain(self, file, box, part)
        read.append(values.numel())
        return values

    monkeypatch.setattr(HuggingFaceReader, "read_part", counted)
    for name in ("gpt2", "llama"):
        found = huggingface_source(folder_of(name, path=name))
        whole = our_logits(found)  # reads all
        assert sum(read) == found.model.parameters
        read.clear()
        for key, tensor in found.tensors.items():
            rows = tensor.shape[0] // 2
            part = torch.empty((rows, *tensor.shape[1:]))
            found.load({key: Boxes(tensor.shape, [((rows, *(0 for _ in tensor.shape[1:])), part)])})
        assert abs(sum(read) - found.model.parameters / 2) <= found.model.vocab * 24  # an odd row of the embeddings
        read.clear()
        assert whole.isfinite().all()


# --- Tokenizers and other companions ----------------------------------------------------------------------


def test_tokenizer_and_generation_settings_travel_along(tmp_path):
    folder = write_folder(
        Path("hf"), CONFIGS["llama"] | {"bos_token_id": 3, "eos_token_id": 256}, random_weights(CONFIGS["llama"])
    )
    ByteTokenizer().save(folder)
    for name in ("special_tokens_map.json", "generation_config.json"):
        (folder / name).write_text('{"eos_token": "<|endoftext|>"}')
    (folder / "vocab.json").write_text("{}")
    (folder / "merges.txt").write_text("#version: 0.2\n")
    (folder / "training_args.bin").write_bytes(b"\x80\x04")  # what lies beside and is no concern of ours
    found = imported(folder)
    assert load_tokenizer(Path("imported")).vocab == 257
    export_huggingface(found, Path("out"), None, ANY_SIZE)
    carried = ["tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "generation_config.json"]
    for name in (*carried, "vocab.json", "merges.txt"):
        assert (Path("out") / name).read_bytes() == (folder / name).read_bytes()
    assert not (Path("out") / "training_args.bin").exists()
    config = json.loads(Path("out/config.json").read_text())
    assert (config["bos_token_id"], config["eos_token_id"]) == (3, 256)


def test_a_run_is_exported_with_its_tokenizer():
    trained()
    tokenizer = train_bpe(300, ["the weaver leads each thread to its place. " * 50])
    tokenizer.save(Path("run/tokenizer"))
    for number, weights in enumerate(("run", "run/checkpoints/step-00000003")):
        export_huggingface(find_source(Path(weights), Mesh(), pytest.fail), Path(f"hf{number}"), None, ANY_SIZE)
        assert load_tokenizer(f"hf{number}").encode("the weaver").tolist() == tokenizer.encode("the weaver").tolist()
        assert json.loads(Path(f"hf{number}/config.json").read_text())["eos_token_id"] == tokenizer.end


# --- Starting from --------------------------------------------------------------------------------------


def start_losses(start: str, model: ModelSpec, steps: int = 3, **train) -> list[float]:
    job = Job(model=model, data=Data(text="-"), train=Train(global_batch=4, **train), plan=Plan(microbatch=2))
    trainer = Trainer(job, tokens())
    trainer.start_from(find_source(Path(start), Mesh(), pytest.fail))
    return [trainer.train_step()[0] for _ in range(steps)]


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_a_run_starts_where_the_folder_stands(name):
    config, model = CONFIGS[name], read_config(CONFIGS[name])
    folder = folder_of(name)
    imported(folder)
    mine = start_losses("imported", model)
    inputs, targets = Samples(tokens(), 16, 0).batch(0, 4)
    weights = random_weights(config)
    expected = torch.stack([logits(config, weights, torch.from_numpy(row)) for row in inputs]).flatten(0, 1)
    loss = F.cross_entropy(expected, torch.from_numpy(targets).flatten())
    assert mine[0] == pytest.approx(float(loss), rel=1e-5)
    assert start_losses("hf", model) == mine  # read in place
    export_huggingface(checkpoint_source(Path("imported")), Path("exported"), None, ANY_SIZE)
    assert start_losses("exported", model) == mine


def test_a_run_starts_from_another_runs_weights_and_nothing_else():
    before = trained(steps=3)
    ends = {piece.name: piece.master.clone() for piece in before.optimizer.pieces}
    fresh = Trainer(before.job, tokens())
    fresh.start_from(find_source(Path("run"), Mesh(), pytest.fail))
    assert all(torch.equal(piece.master, ends[piece.name]) for piece in fresh.optimizer.pieces)
    assert (fresh.step, fresh.optimizer.updates) == (0, 0)
    assert not any("exp_avg" in kept for kept in fresh.optimizer.adam.state.values())
    assert start_losses("run", MODEL) == start_losses("run/checkpoints/step-00000003", MODEL)


def test_low_precision_parameters_follow_their_masters():
    folder = folder_of("llama")
    model = read_config(CONFIGS["llama"])
    job = Job(model=model, data=Data(text="-"), train=Train(precision="bf16", global_batch=4), plan=Plan())
    trainer = Trainer(job, tokens())
    trainer.start_from(huggingface_source(folder))
    for piece in trainer.optimizer.pieces:
        assert piece.master.dtype == torch.float32
        assert piece.target is not None
        assert torch.equal(piece.target, piece.master.bfloat16())
    assert start_losses("hf", model, precision="bf16") == pytest.approx(start_losses("hf", model), rel=0.02)


def test_the_key_in_the_file_is_from_and_survives_the_round_trip(tmp_path):
    job = write_job(tmp_path / "jobs")
    job.write_text(job.read_text() + 'from = "../hf"\n')
    ByteTokenizer().save(folder_of("llama", str(tmp_path / "hf")))
    loaded = load_job(job)
    assert Path(loaded.train.start_from or "").resolve() == (tmp_path / "hf").resolve()  # relative to the file
    Path("again.toml").write_text(dumps_job(loaded))
    assert load_job("again.toml") == loaded.stating()
    job.write_text(job.read_text().replace("from =", "start_from ="))
    with pytest.raises(HeddleError, match=r"\[train\] has no key 'start_from'"):
        load_job(job)


def started_from(job: Path, folder: Path) -> None:
    """A job that starts from a folder, with the model and the tokenizer that come with it."""
    ByteTokenizer().save(folder)
    job.write_text(f'[data]{job.read_text().partition("[data]")[2]}from = "{folder.absolute()}"\n')


def test_another_model_is_refused_before_anything_is_made(tmp_path, capsys):
    job = write_job(tmp_path)
    ByteTokenizer().save(folder_of("llama"))
    job.write_text(job.read_text() + 'from = "hf"\n')
    assert call("train", job) == 2
    said = capsys.readouterr().err
    assert "hf belongs to another model" in said
    assert said.count("wanted") == 3
    assert not Path("runs").exists()


@pytest.mark.parametrize(("tied", "said"), [(True, "head.weight is 257 × 24, wanted not there"), (False, "")])
def test_weights_are_never_left_over(tied, said, tmp_path, capsys):
    job = write_job(tmp_path)
    started_from(job, folder_of("llama"))
    assert call("train", job, "--set", f"model.tied={str(tied).lower()}", "--set", "train.steps=1") == (
        2 if tied else 0
    )
    assert said in capsys.readouterr().err


def test_the_same_shapes_with_other_arithmetic_are_told(tmp_path, capsys):
    job = write_job(tmp_path)
    started_from(job, folder_of("llama"))
    assert call("train", job, "--set", "train.steps=1", "--set", "model.rope_theta=9000.0") == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "[model] differs from that of" in said
    assert "rope_theta was 500.0, is 9000.0" in said
    assert "Starting from the weights of" in said


def test_resuming_does_not_start_again(tmp_path):
    job = write_job(tmp_path)
    folder = folder_of("llama")
    started_from(job, folder)
    assert call("train", job, "--name", "whole", "--set", "train.schedule=constant") == 0
    assert call("train", job, "--set", "train.steps=3", "--set", "train.schedule=constant") == 0
    (folder / "model.safetensors").unlink()  # no longer needed
    assert call("train", job, "--resume", "--set", "train.schedule=constant") == 0
    assert losses(Path("runs/small")) == losses(Path("runs/whole"))


@pytest.fixture(scope="module")
def continued(tmp_path_factory):
    """A Hugging Face folder, a job that starts from it, and its losses on one device."""
    folder = tmp_path_factory.mktemp("continued")
    with chdir(folder):
        job = write_job(folder)
        # one more token than two ranks divide: the vocabulary is padded
        config = CONFIGS["qwen2"] | {"vocab_size": 259}
        write_folder(folder / "hf", config, random_weights(config), shards=3)
        ByteTokenizer().save(folder / "hf")
        imported(folder / "hf")
        started_from(job, folder / "hf")
        assert call("train", job, "--name", "serial", "--set", "plan.microbatch=1") == 0
    return folder


PLANS = {
    "tensor-pipeline": ["tensor=2", "pipeline=2"],
    "zero1-of-a-checkpoint": ["data=2", "zero=1"],
    "zero3-tensor": ["tensor=2", "data=2", "zero=3", "sequence=true"],
}


@pytest.mark.dist
@pytest.mark.parametrize("plan", PLANS)
def test_a_run_goes_on_from_a_folder_under_any_plan(continued, plan):
    changes = [f"plan.{degree}" for degree in PLANS[plan]]
    if "checkpoint" in plan:
        changes.append(f"train.from={continued / 'imported'}")
    with chdir(continued):
        arguments = [word for change in changes for word in ("--set", change)]
        assert call("train", "job.toml", "--name", plan, *arguments) == 0
    serial = losses(continued / "runs" / "serial")
    assert losses(continued / "runs" / plan) == pytest.approx(serial, rel=1e-5)
    assert serial[0] > serial[-1]


@pytest.mark.dist
def test_a_mistake_is_told_once_by_several_processes(continued, capfd):
    with chdir(continued):
        changes = ["model.config=hf/config.json", "data.tokenizer=bytes", "train.from=nowhere", "plan.tensor=2"]
        assert call("train", "job.toml", "--name", "x", *(f"--set={change}" for change in changes)) == 2
    said = capfd.readouterr().err
    assert said.count("is not a run, a checkpoint or a Hugging Face model") == 1
    assert not (continued / "runs" / "x").exists()


# --- Refusals -----------------------------------------------------------------------------------------------


def refused(folder: Path) -> HeddleError:
    with pytest.raises(HeddleError) as caught:
        huggingface_source(folder)
    assert caught.value.why
    return caught.value


@pytest.mark.parametrize("count", [1, 5])
def test_missing_tensors_are_named_the_first_three(count):
    weights = random_weights(CONFIGS["llama"])
    gone = list(weights)[-count:]
    error = refused(write_folder(Path("hf"), CONFIGS["llama"], {k: v for k, v in weights.items() if k not in gone}))
    assert "does not hold the model" in error.what
    assert error.why.count("not there") == min(count, 3)
    assert all(name in error.why for name in gone[:3])
    assert ("and 2 more" in error.why) == (count == 5)


def test_an_untied_model_needs_its_output_layer():
    weights = random_weights(CONFIGS["llama"])
    del weights["lm_head.weight"]
    assert (
        "lm_head.weight is not there, wanted 257 × 24"
        in refused(write_folder(Path("hf"), CONFIGS["llama"], weights)).why
    )


def test_a_wrong_shape_is_named():
    weights = random_weights(CONFIGS["gpt2"])
    weights["transformer.h.1.mlp.c_fc.weight"] = weights["transformer.h.1.mlp.c_fc.weight"].T.contiguous()
    error = refused(write_folder(Path("hf"), CONFIGS["gpt2"], weights))
    assert error.why == "transformer.h.1.mlp.c_fc.weight is 96 × 24, wanted 24 × 96."


def test_what_is_left_over_is_named():
    weights = random_weights(CONFIGS["llama"]) | {
        "score.weight": torch.zeros(2, 24),
        "model.layers.2.x": torch.zeros(1),
    }
    error = refused(write_folder(Path("hf"), CONFIGS["llama"], weights))
    assert error.why == "model.layers.2.x; score.weight."
    assert "never ignores" in error.hint


def test_numbers_of_another_kind_are_refused():
    weights = random_weights(CONFIGS["llama"])
    weights["model.norm.weight"] = weights["model.norm.weight"].to(torch.float8_e4m3fn)
    error = refused(write_folder(Path("hf"), CONFIGS["llama"], weights))
    assert error.why == "model.norm.weight is F8_E4M3."


def test_an_unknown_architecture_lists_the_known():
    folder = folder_of("llama")
    (folder / "config.json").write_text(json.dumps(CONFIGS["llama"] | {"model_type": "bloom"}))
    error = refused(folder)
    assert error.what == "hf/config.json: model_type = 'bloom' is not known."
    assert "llama, ministral, mistral" in error.hint


def test_pickles_stay_shut():
    folder = folder_of("llama")
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(b"\x80\x04cposix\nsystem\n")
    error = refused(folder)
    assert "pytorch_model.bin" in error.what
    assert "never unpickles anything" in error.why
    (folder / "pytorch_model.bin").unlink()
    assert "holds no weights" in refused(folder).what


@pytest.mark.parametrize("name", ["../secret.safetensors", "/etc/passwd", "sub/x.safetensors", ".."])
def test_an_index_that_points_elsewhere_is_refused(name):
    folder = folder_of("llama", shards=2)
    save_file({"x": torch.zeros(1)}, "secret.safetensors")
    index = folder / "model.safetensors.index.json"
    table = json.loads(index.read_text())
    table["weight_map"]["lm_head.weight"] = name
    index.write_text(json.dumps(table))
    error = refused(folder)
    assert repr(name) in error.what
    assert "own folder" in error.why


@pytest.mark.parametrize("shards", [1, 2])
def test_a_link_that_leads_elsewhere_is_refused(shards):
    folder = folder_of("llama", shards=shards)
    first = sorted(folder.glob("*.safetensors"))[0]
    first.rename("elsewhere.safetensors")
    first.symlink_to(Path("elsewhere.safetensors").absolute())
    assert "is outside the folder" in refused(folder).what


def test_the_links_of_the_hubs_cache_are_followed():
    blobs, snapshot = Path("models--a--b/blobs"), Path("models--a--b/snapshots/0123abcd")
    blobs.mkdir(parents=True)
    snapshot.mkdir(parents=True)
    for path in folder_of("llama", shards=2).iterdir():
        path.rename(blobs / path.name)
        (snapshot / path.name).symlink_to(Path("../../blobs") / path.name)
    assert huggingface_source(snapshot).model.layers == 2
    (blobs / "words").write_text("#version: 0.2\n")
    (snapshot / "merges.txt").symlink_to("../../blobs/words")
    imported(snapshot)
    assert not Path("imported/merges.txt").is_symlink()
    assert Path("imported/merges.txt").read_text() == "#version: 0.2\n"
    # but not beyond the blobs
    first = sorted(snapshot.glob("*.safetensors"))[0]
    (blobs / first.name).rename("elsewhere.safetensors")
    first.unlink()
    first.symlink_to(Path("elsewhere.safetensors").absolute())
    assert "is outside the folder" in refused(snapshot).what


@pytest.mark.parametrize("name", ["merges.txt", "tokenizer.json", "generation_config.json", "config.json"])
def test_a_companion_that_leads_elsewhere_is_refused_and_nothing_is_made(name):
    """Whatever the link leads to, a key or a password, would lie in the checkpoint, and in what is shared of it."""
    folder = folder_of("llama")
    if (folder / name).exists():
        (folder / name).rename("secret")
    else:
        Path("secret").write_text('{"password": "hunter2"}')
    (folder / name).symlink_to(Path("secret").absolute())
    with pytest.raises(HeddleError, match=f"{re.escape(name)} is a link out of the model's folder"):
        import_huggingface(huggingface_source(folder), Path("imported"))
    assert not Path("imported").exists()


def test_a_checkpoint_does_not_export_what_its_links_lead_to():
    imported(folder_of("llama"))
    Path("secret").write_text("hunter2")
    Path("imported/merges.txt").symlink_to(Path("secret").absolute())
    with pytest.raises(HeddleError, match=r"merges\.txt is a link out of"):
        export_huggingface(checkpoint_source(Path("imported")), Path("out"), None, ANY_SIZE)
    assert not Path("out").exists()


def test_a_checkpoint_whose_files_are_links_elsewhere_is_refused():
    imported(folder_of("llama"))
    part = Path("imported/part-00000.safetensors")
    part.rename("elsewhere.safetensors")
    part.symlink_to(Path("elsewhere.safetensors").absolute())
    with pytest.raises(HeddleError, match=r"names the file 'part-00000\.safetensors'"):
        read_index(Path("imported"))


def test_a_missing_shard_and_an_index_of_nothing_are_named():
    folder = folder_of("llama", shards=2)
    (folder / "model-00002-of-00002.safetensors").unlink()
    assert "model-00002-of-00002.safetensors is missing" in refused(folder).what
    (folder / "model.safetensors.index.json").write_text('{"weight_map": {}}')
    assert "has no weight_map" in refused(folder).what


def test_a_tensor_in_two_shards_is_refused():
    folder = folder_of("llama", shards=2)
    second = folder / "model-00002-of-00002.safetensors"
    save_file(
        load_file(second) | {"lm_head.weight": torch.zeros(257, 24), "model.embed_tokens.weight": torch.zeros(1)},
        second,
    )
    assert "the same tensor twice" in refused(folder).what


def lie(folder: Path, change) -> Path:
    """Change the header of a file; the numbers stay where they are."""
    path = folder / "model.safetensors"
    content = path.read_bytes()
    length = struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8 : 8 + length])
    change(header)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + content[8 + length :])
    return folder


def beyond(header):
    header["model.norm.weight"]["data_offsets"][1] += 1 << 20
    header["model.norm.weight"]["shape"] = [24 + (1 << 18)]


def overlapping(header):
    header["model.norm.weight"]["data_offsets"] = header["model.layers.0.input_layernorm.weight"]["data_offsets"]


def too_few_bytes(header):
    header["model.norm.weight"]["shape"] = [24, 1000]


def too_large(header):
    header["model.norm.weight"]["shape"] = [1 << 62, 1 << 62]


def negative(header):
    header["model.norm.weight"]["data_offsets"] = [-96, 0]


@pytest.mark.parametrize("change", [beyond, overlapping, too_few_bytes, too_large, negative])
def test_a_header_that_lies_is_refused(change):
    error = refused(lie(folder_of("llama"), change))
    assert error.what == "hf/model.safetensors is damaged."


@pytest.mark.parametrize("length", [0, 7, 1 << 20, 1 << 40, (1 << 64) - 1])
def test_an_absurd_header_length_is_refused(length):
    folder = folder_of("llama")
    path = folder / "model.safetensors"
    path.write_bytes(struct.pack("<Q", length) + path.read_bytes()[8:])
    assert refused(folder).what == "hf/model.safetensors is damaged."


@pytest.mark.parametrize("size", [0, 5, 100, -8])
def test_a_file_cut_off_is_refused(size):
    folder = folder_of("llama")
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:size])
    assert refused(folder).what == "hf/model.safetensors is damaged."


def test_a_folder_of_neither_kind_is_told(tmp_path):
    Path("empty").mkdir()
    Path("file").touch()
    for path, why in (("empty", "no job.toml"), ("nowhere", "not there"), ("file", "a file")):
        with pytest.raises(HeddleError, match="is not a run, a checkpoint or a Hugging Face model") as caught:
            find_source(Path(path), Mesh(), print)
        assert why in caught.value.why


def test_a_damaged_checkpoint_is_refused_before_it_is_used():
    imported(folder_of("llama"))
    part = Path("imported/part-00000.safetensors")
    content = bytearray(part.read_bytes())
    content[-5] ^= 1
    part.write_bytes(content)
    with pytest.raises(HeddleError, match="is not intact") as caught:
        find_source(Path("imported"), Mesh(), print)
    assert "checksum" in caught.value.why


@pytest.mark.parametrize("change", [{"boxes": []}, {"dtype": "I4"}, {"shape": [25, 257]}])
def test_an_index_that_leaves_numbers_out_is_refused(change):
    """What no box holds would never be read, and whatever memory held before would be trained."""
    imported(folder_of("llama"))
    index = Path("imported/index.json")
    table = json.loads(index.read_text())
    table["head.weight"] |= change
    index.write_text(json.dumps(table))
    with pytest.raises(HeddleError, match=r"is not intact") as caught:
        find_source(Path("imported"), Mesh(), print)
    assert "head.weight" in caught.value.why


# --- Whole or not at all ----------------------------------------------------------------------------------


def test_nothing_is_written_over():
    found = huggingface_source(folder_of("llama"))
    Path("there").mkdir()
    for write in (
        lambda: import_huggingface(found, Path("there")),
        lambda: export_huggingface(found, Path("there"), None, 1),
    ):
        with pytest.raises(HeddleError, match="there exists already"):
            write()
    assert not list(Path("there").iterdir())


@pytest.mark.parametrize("direction", ["import", "export"])
def test_a_full_disk_is_told_and_leaves_nothing(direction, monkeypatch):
    found = huggingface_source(folder_of("llama"))
    written = []

    def full(path, new, *notes):
        if written:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written.append(path)
        storage.write_file(path, new, *notes)

    monkeypatch.setattr(exchange, "write_file", full)
    monkeypatch.setattr(exchange, "PART_BYTES", 10_000)
    more = (None, 10_000) if direction == "export" else ()
    with pytest.raises(HeddleError, match="out cannot be written") as caught:
        {"import": import_huggingface, "export": export_huggingface}[direction](found, Path("out"), *more)
    assert "No space left on device" in caught.value.why
    assert sorted(path.name for path in Path().iterdir()) == ["hf"]


def test_a_place_that_cannot_be_written_is_told():
    found = huggingface_source(folder_of("llama"))
    with pytest.raises(HeddleError, match="cannot be written"):
        import_huggingface(found, Path("hf/config.json/below"))


def test_a_model_that_no_family_fits_is_refused_before_anything_is_written():
    trained(dataclasses.replace(MODEL, kv_heads=2))
    with pytest.raises(HeddleError, match="fits no Hugging Face family"):
        export_huggingface(find_source(Path("run"), Mesh(), print), Path("out"), None, ANY_SIZE)
    assert not Path("out").exists()


# --- The check against transformers -----------------------------------------------------------------------


def pretend(monkeypatch, shift: float) -> None:
    """A transformers that computes what the reference computes, and a little more."""
    config = CONFIGS["llama"]

    class Pretended:
        __version__ = "0"

    def their_logits(_, folder, ids):
        return logits(config, weights_in(folder), ids) + shift

    monkeypatch.setattr(agreement, "_transformers", lambda: Pretended)
    monkeypatch.setattr(agreement, "_their_logits", their_logits)


@pytest.mark.parametrize("dtype", [None, torch.bfloat16])
def test_agreement_is_found_whatever_the_rounding(dtype, monkeypatch):
    pretend(monkeypatch, 0.0)
    found = huggingface_source(folder_of("llama"))
    agreed = agreement.Agreed(found.model, wanted=True)
    export_huggingface(found, Path("out"), dtype, ANY_SIZE, lambda made: agreed.check(made, found, dtype))
    assert agreed.found is not None
    assert 0 <= agreed.found.difference < 1e-4
    assert agreed.found.tokens == 16
    assert str(agreed).startswith("Checked: the logits of 16 tokens differ from those of transformers 0 by at most")


def test_weights_that_compute_something_else_are_not_kept(monkeypatch):
    pretend(monkeypatch, 0.01)
    folder = folder_of("llama")
    found = huggingface_source(folder)
    agreed = agreement.Agreed(found.model, wanted=True)
    with pytest.raises(HeddleError, match="Heddle and transformers disagree"):
        import_huggingface(found, Path("out"), lambda made: agreed.check(folder, checkpoint_source(made)))
    assert not Path("out").exists()


def test_where_the_check_is_left_out_that_is_said(monkeypatch):
    model = read_config(CONFIGS["llama"])
    assert str(agreement.Agreed(model, wanted=False)) == "Not compared with transformers: --no-check."
    monkeypatch.setattr(agreement, "_transformers", lambda: None)
    assert "not installed; to compare: pip install transformers" in str(agreement.Agreed(model, wanted=True))
    monkeypatch.setattr(agreement, "_transformers", lambda: agreement)
    assert agreement.obstacle(model) is None
    monkeypatch.setattr(agreement, "_free_memory", lambda: 1000)
    assert "are free" in str(agreement.Agreed(model, wanted=True))


@pytest.mark.parametrize("end", [257, -1, 10**30, 2.5, "2", [1, 257], [None]])
def test_an_end_token_that_the_model_does_not_have_is_refused(end, capsys):
    config = CONFIGS["llama"] | {"eos_token_id": end}
    write_folder(Path("hf"), config, random_weights(config))
    assert call("import", "hf", "hf", "-o", "imported") == 2
    said = capsys.readouterr().err
    assert "eos_token_id" in said
    assert "the tokens 0 to 256" in said
    assert not Path("imported").exists()


def test_a_tokenizer_whose_end_the_model_does_not_have_writes_nothing(capsys):
    config = CONFIGS["llama"] | {"vocab_size": 200}
    ByteTokenizer().save(write_folder(Path("hf"), config, random_weights(config)))
    assert call("generate", "hf", "--tokens", "1") == 2
    assert "is token 256, which the model does not have" in capsys.readouterr().err


@pytest.mark.filterwarnings("ignore")
def test_what_transformers_refuses_is_told(capsys):
    pytest.importorskip("transformers", reason="transformers is not installed")
    sharded = write_folder(Path("index"), CONFIGS["llama"], random_weights(CONFIGS["llama"]), shards=2)
    index = sharded / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": json.loads(index.read_text())["weight_map"]}))
    odd = CONFIGS["llama"] | {"sliding_window": [1, 2], "initializer_range": "much"}
    write_folder(Path("list"), odd, random_weights(odd))
    for folder in ("index", "list"):
        assert call("import", "hf", folder, "-o", f"{folder}-in") == 2
        said = capsys.readouterr().err
        assert "transformers cannot compute with this model" in said
        assert "It says: " in said
        assert not Path(f"{folder}-in").exists()
        assert call("import", "hf", folder, "-o", f"{folder}-in", "--no-check") == 0


def test_an_index_of_millions_of_files_is_refused_at_once(monkeypatch):
    folder = write_folder(Path("hf"), CONFIGS["llama"], random_weights(CONFIGS["llama"]), shards=2)
    names = {f"t{number}": f"model-{number}.safetensors" for number in range(1000)}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
    looked = []
    monkeypatch.setattr(os.path, "realpath", lambda path, **_: looked.append(path) or str(path))
    with pytest.raises(HeddleError, match=r"model-0\.safetensors is missing"):
        huggingface_source(folder)
    assert len(looked) < 20  # not one for each name


@pytest.mark.parametrize("name", ["a\0b", "..", "a/b", "/etc/passwd"])
def test_a_name_that_no_file_of_the_folder_can_have_is_refused(name):
    folder = write_folder(Path("hf"), CONFIGS["llama"], random_weights(CONFIGS["llama"]), shards=2)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"t": name}}))
    with pytest.raises(HeddleError, match="outside the folder"):
        huggingface_source(folder)


# --- With transformers itself -----------------------------------------------------------------------------


def their_model(transformers, name, seed=0):
    torch.manual_seed(seed)
    config = (CONFIGS | UNLIKE)[name]
    kind = type(transformers.AutoConfig.for_model(config["model_type"]))
    keys = {key: value for key, value in config.items() if key not in ("model_type", "architectures")}
    ends = {"bos_token_id": 1, "eos_token_id": 2}  # by default GPT-2's own, which a small vocabulary does not have
    model = transformers.AutoModelForCausalLM.from_config(kind(**ends | keys))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    return model.eval()


def their_logits(model):
    with torch.no_grad():
        return model(IDS[None]).logits[0]


@pytest.mark.peers
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("shard", ["20KB", "5GB"])
@pytest.mark.parametrize("name", CONFIGS | UNLIKE)
def test_what_transformers_saves_is_imported(name, shard):
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    model = their_model(transformers, name)
    model.save_pretrained("hf", max_shard_size=shard)
    assert Path("hf/model.safetensors").exists() == (shard == "5GB")
    assert their_logits(model).abs().max() > 1
    torch.testing.assert_close(our_logits(imported(Path("hf"))), their_logits(model), atol=1e-4, rtol=0)


@pytest.mark.peers
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("limit", [20_000, ANY_SIZE])
@pytest.mark.parametrize("name", CONFIGS | UNLIKE)
def test_transformers_loads_what_a_run_exports(name, limit):
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    trained(read_config((CONFIGS | UNLIKE)[name]), learning_rate=0.05, steps=5)
    found = find_source(Path("run"), Mesh(), pytest.fail)
    assert (export_huggingface(found, Path("hf"), None, limit).files > 1) == (limit < ANY_SIZE)
    model, told = transformers.AutoModelForCausalLM.from_pretrained("hf", output_loading_info=True)
    assert not any(told[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert model.config.model_type == (CONFIGS | UNLIKE)[name]["model_type"]
    torch.testing.assert_close(their_logits(model.eval()), our_logits(found), atol=1e-4, rtol=0)


@pytest.mark.peers
@pytest.mark.filterwarnings("ignore")
def test_transformers_reads_the_rounded_dtype():
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    trained()
    export_huggingface(find_source(Path("run"), Mesh(), pytest.fail), Path("hf"), torch.bfloat16, ANY_SIZE)
    assert transformers.AutoModelForCausalLM.from_pretrained("hf", dtype="auto").dtype == torch.bfloat16


@pytest.mark.peers
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["bytes", "bpe"])
def test_transformers_reads_our_tokenizers(kind):
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    trained()
    text = "the weaver leads each thread, naïve or not, to its place → 😀\n\tdef f(x): return x<|endoftext|>"
    tokenizer = ByteTokenizer() if kind == "bytes" else train_bpe(300, [text * 20])
    tokenizer.save(Path("run/tokenizer"))
    export_huggingface(find_source(Path("run"), Mesh(), pytest.fail), Path("hf"), None, ANY_SIZE)
    theirs = transformers.AutoTokenizer.from_pretrained("hf")
    assert theirs(text)["input_ids"] == tokenizer.encode(text).tolist()
    assert theirs.decode(theirs(text)["input_ids"]) == text
    assert theirs.eos_token_id == tokenizer.end

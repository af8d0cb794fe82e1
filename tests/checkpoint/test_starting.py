"""Weights bring their model and their tokenizer; data in other tokens is refused before anything is made."""

import json
import shutil
from pathlib import Path

import pytest

from heddle.data import load_tokenizer
from heddle.data.tokenizer import ByteTokenizer, train_bpe, vocabulary
from heddle.errors import HeddleError
from heddle.spec.job import load_job
from tests.helpers.commands import DOCUMENTS, call, write_job
from tests.helpers.hf_folder import CONFIGS, random_weights, write_folder

VOCAB = 300


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A Hugging Face model with a tokenizer of its own, and a job that starts from it and says nothing else of it."""
    monkeypatch.chdir(tmp_path)
    job = write_job(tmp_path)
    config = CONFIGS["llama"] | {"vocab_size": VOCAB + 20}  # padded: no tokenizer has so many
    folder = write_folder(tmp_path / "hf", config, random_weights(config))
    train_bpe(VOCAB, DOCUMENTS).save(folder)
    job.write_text(f'[data]{job.read_text().partition("[data]")[2]}from = "hf"\n')
    return folder


def test_from_brings_model_and_tokenizer_and_the_export_has_both(folder):
    job = load_job("job.toml")
    assert (job.model.vocab, job.model.hidden, job.model.positions) == (VOCAB + 20, 24, "rotary")
    assert Path(job.data.tokenizer) == folder / "tokenizer.json"
    assert call("train", "job.toml", "--set", "train.steps=2") == 0
    assert call("export", "hf", "runs/small", "-o", "out", "--no-check") == 0
    assert vocabulary(Path("out/tokenizer.json")) == vocabulary(folder / "tokenizer.json")
    meta = json.loads(Path("runs/small/data.json").read_text())
    assert meta["vocab"] == load_tokenizer(folder).vocab


def test_a_folder_as_transformers_writes_it_today_is_fine_tuned_and_generated_from(folder, capsys):
    """It writes how long a text may be where no limit is known as int(1e30), of more bits than a number of ours."""
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(config | {"model_max_length": int(1e30)}))
    assert call("import", "hf", "hf", "-o", "imported", "--no-check") == 0
    assert call("train", "job.toml", "--set", "train.steps=1") == 0
    for start in ("hf", "imported", "runs/small"):
        assert call("generate", start, "--tokens", "1") == 0
        changes = (f"train.from={start}", "train.steps=1", f"train.name=next-{Path(start).name}")
        assert call("train", "job.toml", *(f"--set={change}" for change in changes)) == 0
    assert call("export", "hf", "runs/next-small", "-o", "out", "--no-check") == 0
    assert json.loads(Path("out/tokenizer_config.json").read_text())["model_max_length"] == int(1e30)


def test_what_else_came_with_the_weights_goes_with_what_is_trained_from_them(folder):
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(config | {"chat_template": "{{ messages }}"}))
    (folder / "chat_template.jinja").write_text("{% for m in messages %}{{ m.content }}{% endfor %}")
    (folder / "generation_config.json").write_text('{"eos_token_id": [1, 2], "temperature": 0.6}')
    assert call("train", "job.toml", "--set", "train.steps=2") == 0
    assert call("train", "job.toml", "--set", "train.steps=1", "--set", "train.from=runs/small", "--name", "next") == 0
    assert call("export", "hf", "runs/next", "-o", "out", "--no-check") == 0
    for name in ("tokenizer_config.json", "chat_template.jinja", "generation_config.json"):
        assert Path("out", name).read_bytes() == (folder / name).read_bytes(), name


def test_a_chat_template_that_is_a_link_elsewhere_is_refused_before_there_is_a_run(folder, capsys):
    (folder / "chat_template.jinja").symlink_to("/etc/passwd")
    assert call("train", "job.toml", "--set", "train.steps=2") == 2
    assert "is a link out of the model's folder" in capsys.readouterr().err
    assert not Path("runs/small").exists()


def test_a_run_and_its_checkpoints_bring_theirs_too(folder):
    assert call("train", "job.toml", "--set", "train.steps=2") == 0
    for number, start in enumerate(("runs/small", "runs/small/checkpoints/step-00000002")):
        job = load_job("runs/small/job.toml")
        assert call("train", "job.toml", "--name", f"next-{number}", "--set", f"train.from={start}") == 0
        assert load_job(f"runs/next-{number}/job.toml").model == job.model
        assert (
            Path(load_job(f"runs/next-{number}/job.toml").data.tokenizer)
            == Path("runs/small/tokenizer/tokenizer.json").absolute()
        )
    # a byte-level run stays one: its tokenizer.json is not read as a BPE of no merges
    assert call("import", "hf", "hf", "-o", "imported", "--no-check") == 0
    assert load_job("runs/next-0/job.toml").model == job.model
    write_job(Path("bytes"))
    assert call("train", "bytes/job.toml", "--name", "bytes", "--set", "train.steps=1") == 0
    changes = ["--set=train.steps=1", "--set=train.from=../runs/bytes", "--set=train.name=again"]
    assert call("train", "bytes/job.toml", *changes) == 0
    assert isinstance(load_tokenizer("runs/again/tokenizer"), ByteTokenizer)


def test_single_keys_of_the_model_may_be_changed(folder):
    assert call("train", "job.toml", "--set", "model.dropout=0.1", "--set", "train.steps=1") == 0
    model = load_job("runs/small/job.toml").model
    assert (model.dropout, model.hidden) == (0.1, 24)


@pytest.mark.parametrize("tokenizer", ["bytes", "bpe:280"])
def test_data_in_other_tokens_is_refused(folder, tokenizer, capsys):
    assert call("train", "job.toml", "--set", f"data.tokenizer={tokenizer}") == 2
    said = capsys.readouterr().err
    assert f"data.tokenizer = '{tokenizer}' is not the tokenizer that the weights in" in said
    assert "have a different id there, or none" in said
    assert "Leave [data] tokenizer out" in said
    assert not Path("runs").exists()


def test_tokens_that_were_prepared_with_another_tokenizer_are_refused(folder, capsys):
    for name, tokenizer in (("other", "bytes"), ("own", "hf/tokenizer.json")):
        assert call("data", "prepare", "corpus/*.txt", "-o", name, "--tokenizer", tokenizer) == 0
    job = Path("job.toml")
    job.write_text(job.read_text().replace('text = "corpus/*.txt"', 'tokens = "other"'))
    assert call("train", "job.toml") == 2
    assert "'bytes' is not the tokenizer that the weights in" in capsys.readouterr().err
    assert call("train", "job.toml", "--set", "data.tokens=own", "--set", "train.steps=1") == 0


def test_a_tokenizer_with_more_tokens_than_the_weights_came_with_is_fine_if_they_have_room(folder, capsys):
    shutil.copytree(folder, "more")
    table = json.loads(Path("more/tokenizer.json").read_text())
    for number in range(VOCAB, VOCAB + 20):
        table["added_tokens"].append(table["added_tokens"][0] | {"id": number, "content": f"<extra-{number}>"})
    Path("more/tokenizer.json").write_text(json.dumps(table))
    assert call("train", "job.toml", "--set", "data.tokenizer=more/tokenizer.json", "--set", "train.steps=1") == 0
    table["added_tokens"].append(table["added_tokens"][0] | {"id": VOCAB + 20, "content": "<one-too-many>"})
    Path("more/tokenizer.json").write_text(json.dumps(table))
    assert call("train", "job.toml", "--name", "x", "--set", "data.tokenizer=more/tokenizer.json") == 2
    assert f"model.vocab = {VOCAB + 20} is too small" in capsys.readouterr().err


def test_weights_without_a_tokenizer_need_one_to_be_named(folder, capsys):
    for path in folder.glob("tokenizer*"):
        path.unlink()
    with pytest.raises(HeddleError, match=r"hf has no tokenizer\.json") as told:
        load_job("job.toml")
    assert "[data] tokenizer" in told.value.hint
    assert call("train", "job.toml", "--set", "data.tokenizer=bytes", "--set", "train.steps=1") == 0
    (folder / "tokenizer.model").write_bytes(b"sentencepiece")
    assert call("train", "job.toml", "--name", "x", "--set", "data.tokenizer=bytes") == 2
    assert "has its own tokenizer in tokenizer.model" in capsys.readouterr().err


def test_a_tokenizer_that_is_a_link_elsewhere_is_refused(folder, capsys):
    (folder / "tokenizer.json").rename("secret.json")
    (folder / "tokenizer.json").symlink_to(Path("secret.json").absolute())
    assert call("train", "job.toml") == 2
    assert "tokenizer.json is a link out of" in capsys.readouterr().err


def test_a_job_without_a_model_and_without_a_start_is_refused(folder):
    job = Path("job.toml")
    job.write_text(job.read_text().replace('from = "hf"\n', ""))
    with pytest.raises(HeddleError, match=r"The table \[model\] is missing") as told:
        load_job(job)
    assert "[train] from" in told.value.why

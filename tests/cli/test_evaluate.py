"""`heddle evaluate`: perplexity against transformers, and tasks against lm-eval's own model."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch

import heddle
from heddle.data.tokenizer import ByteTokenizer
from heddle.errors import HeddleError
from tests.helpers.commands import call

transformers = pytest.importorskip("transformers")

TEXT = "The weaver throws the shuttle, and the heddle lifts every other thread. " * 5


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A small Llama with a tokenizer of bytes, as transformers writes it."""
    folder = tmp_path_factory.mktemp("model") / "llama"
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, vocab_size=257,
        max_position_embeddings=48, initializer_range=0.3, eos_token_id=256, bos_token_id=256,
    )  # fmt: skip
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    ByteTokenizer().save(folder)
    return folder


def losses(folder: Path, ids: list[int], window: int) -> torch.Tensor:
    """Of every token but the first, by transformers' model over windows that do not overlap."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    found = []
    for start in range(0, len(ids) - 1, window):
        part = torch.tensor(ids[start : start + window + 1])
        with torch.no_grad():
            logits = model(part[None, :-1]).logits[0]
        found.append(torch.nn.functional.cross_entropy(logits, part[1:], reduction="none"))
    return torch.cat(found)


def test_perplexity_is_that_of_transformers(tmp_path, folder):
    for number, text in enumerate((TEXT, "Another text.")):
        (tmp_path / f"{number}.txt").write_text(text)
    found = heddle.evaluate(folder, [str(tmp_path / "*.txt")], sequence=20)
    expected = losses(folder, [*TEXT.encode(), 256, *b"Another text.", 256], 20)
    assert found.perplexity.tokens == len(expected)
    assert found.perplexity.loss == pytest.approx(float(expected.mean()), rel=1e-5)
    assert found.perplexity.perplexity == pytest.approx(math.exp(float(expected.mean())), rel=1e-5)
    bits = float(expected.sum()) / math.log(2) / (len(TEXT) + 13)
    assert found.perplexity.bits_per_byte == pytest.approx(bits, rel=1e-5)


def test_of_conversations_only_answers_count(tmp_path, folder):
    rows = [{"prompt": "2+2=", "completion": "four"}, {"prompt": "1+1=", "completion": "2"}]
    (tmp_path / "c.jsonl").write_text("\n".join(map(json.dumps, rows)))
    found = heddle.evaluate(folder, str(tmp_path / "c.jsonl"), chat=True)
    parts = [losses(folder, [*b"2+2=four", 256], 48)[3:], losses(folder, [*b"1+1=2", 256], 48)[3:]]
    assert found.perplexity.tokens == 7
    assert found.perplexity.bits_per_byte is None
    assert found.perplexity.loss == pytest.approx(float(torch.cat(parts).mean()), rel=1e-5)


def test_a_run_is_evaluated_on_what_it_kept(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text(TEXT * 9)
    job = heddle.job(
        {"layers": 1, "hidden": 16, "heads": 2, "vocab": 257, "sequence": 32},
        data={"text": "text.txt", "validation": 0.3, "tokenizer": "bytes"},
        train={"steps": 2, "global_batch": 4, "eval_batches": 1000, "precision": "fp32"},
        plan={},
    )
    result = heddle.train(job)
    capsys.readouterr()
    assert call("evaluate", "runs/run", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["loss"] == pytest.approx(result.validation_loss, rel=2e-2)  # of whole windows alone
    assert call("evaluate", "runs/run", "text.txt") == 0
    assert "bits per byte" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("files", "options", "words"),
    [
        ([], {}, "is no run"),
        (["none.txt"], {}, "none.txt"),
        (["empty.txt"], {}, "There is no text"),
    ],
)
def test_mistakes_are_told(tmp_path, monkeypatch, folder, files, options, words):
    monkeypatch.chdir(tmp_path)
    Path("empty.txt").write_text("")
    with pytest.raises(HeddleError) as caught:
        heddle.evaluate(folder, files, **options)
    assert words in str(caught.value)


TASK = """
task: letters
dataset_path: json
dataset_kwargs:
  data_files: {{test: {folder}/letters.jsonl}}
test_split: test
output_type: {kind}
doc_to_text: "{{{{question}}}}"
doc_to_target: "{{{{answer}}}}"
{more}
"""


def write_task(folder: Path, kind: str) -> None:
    rows = [
        {"question": f"{a} and then", "answer": i % 3, "choices": [f" {b}" for b in "xyz"]}
        for i, a in enumerate("abcdefgh")
    ]
    (folder / "letters.jsonl").write_text("\n".join(map(json.dumps, rows)))
    more = {
        "multiple_choice": "doc_to_choice: choices\nmetric_list:\n  - metric: acc\n  - metric: acc_norm",
        "loglikelihood_rolling": "metric_list:\n  - metric: word_perplexity\n  - metric: bits_per_byte",
        "generate_until": "generation_kwargs: {until: ['e'], max_gen_toks: 8}\nmetric_list:\n  - metric: exact_match",
    }[kind]
    (folder / "letters.yaml").write_text(TASK.format(folder=folder, kind=kind, more=more))


@pytest.mark.peers
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["multiple_choice", "loglikelihood_rolling", "generate_until"])
def test_tasks_have_the_numbers_of_lm_evals_own_model(tmp_path, monkeypatch, folder, kind):
    lm_eval = pytest.importorskip("lm_eval")
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks import TaskManager

    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    write_task(tmp_path, kind)
    ours = heddle.evaluate(folder, tasks=["letters"], task_folder=tmp_path).tasks["letters"]
    theirs = lm_eval.simple_evaluate(
        HFLM(str(folder), device="cpu", batch_size=1),
        tasks=["letters"],
        task_manager=TaskManager(include_path=str(tmp_path)),
        bootstrap_iters=0,
    )["results"]["letters"]
    numbers = {name.removesuffix(",none"): x for name, x in theirs.items() if isinstance(x, int | float)}
    assert ours == pytest.approx(numbers, rel=1e-4)
    with pytest.raises(HeddleError, match="Did you mean 'letters'"):
        heddle.evaluate(folder, tasks=["leters"], task_folder=tmp_path)

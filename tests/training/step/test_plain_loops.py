"""Ten steps of fine-tuning beside a plain loop over transformers and PEFT, on the same batches: full, LoRA, DPO."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import heddle
from heddle.checkpoint.adapters import export_peft
from heddle.checkpoint.checkpoint import Saver
from heddle.checkpoint.source import find_source
from heddle.data import prepared_for
from heddle.parallel.mesh import Mesh
from heddle.spec.model import IGNORE
from heddle.training.step.trainer import Trainer
from tests.helpers.tuned_base import ignore_old_name, save_base

transformers = pytest.importorskip("transformers")

pytestmark = ignore_old_name

STEPS, BATCH, RATE, DECAY, BETA = 10, 4, 3e-3, 0.1, 0.3
LORA = "[tune]\nlora = { rank = 4, alpha = 16.0 }"
DPO = f"[preference]\nbeta = {BETA}"


@pytest.fixture(scope="module")
def base(tmp_path_factory) -> Path:
    return save_base(tmp_path_factory.mktemp("base") / "model", transformers)


def ours(folder: Path, base: Path, tables: str) -> Trainer:
    """A trainer at its beginning, over rows of very different lengths."""
    if "preference" in tables:
        rows = [{"prompt": f"{i}+{i}=", "chosen": f"{2 * i}", "rejected": "no" * (1 + i % 7)} for i in range(60)]
    else:
        rows = [{"prompt": f"{i} and {i}", "completion": " make" * (1 + i % 4) + f" {2 * i}"} for i in range(60)]
    (folder / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (folder / "job.toml").write_text(
        f"""
[data]
chat = "rows.jsonl"
cache = "{folder}/cache"
validation = 0.0
[train]
from = "{base}"
steps = {STEPS}
global_batch = {BATCH}
learning_rate = {RATE}
schedule = "constant"
weight_decay = {DECAY}
precision = "fp32"
sequence = 40
{tables}
[plan]
microbatch = 2
"""
    )
    job = heddle.load_job(folder / "job.toml")
    trainer = Trainer(job, prepared_for(job.corpus).train)
    trainer.start_from(find_source(base, Mesh(), print))
    return trainer


def theirs(folder: Path, base: Path, trainer: Trainer) -> Any:
    """The same model from transformers, with the same adapters from PEFT."""
    model = transformers.AutoModelForCausalLM.from_pretrained(base, attn_implementation="eager")
    if trainer.job.tune is None:
        return model
    peft = pytest.importorskip("peft")
    saver = Saver(folder / "saved", Mesh())
    trainer.save(saver)
    saver.wait()
    adapter = export_peft(folder / "saved" / "step-00000000", folder / "adapter", print)
    return peft.PeftModel.from_pretrained(model, adapter, is_trainable=True)


def batches(trainer: Trainer) -> Iterator[list[tuple[torch.Tensor, torch.Tensor]]]:
    """Every document of each step by itself: its tokens, and what follows each."""
    for step in range(STEPS):
        numbers = range(step * BATCH, (step + 1) * BATCH)
        ids, targets = (torch.from_numpy(part) for part in trainer.feed.samples.batch_of(numbers))
        lengths = trainer.feed.samples.lengths_of(numbers) or [[trainer.job.sequence]] * BATCH
        found = []
        for row, own in enumerate(lengths):
            for x, y in zip(ids[row, : sum(own)].split(own), targets[row, : sum(own)].split(own), strict=True):
                found.append((x, y.where(y != IGNORE, -100)))
        yield found


def log_probability(model: Any, ids: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return -F.cross_entropy(model(ids[None]).logits[0], targets, reduction="sum")


def loss_of(model: Any, reference: Any, batch: list[tuple[torch.Tensor, torch.Tensor]]) -> torch.Tensor:
    """Written as TRL writes both: a mean over all tokens that are learned, or over pairs."""
    logs = torch.stack([log_probability(model, *each) for each in batch])
    if reference is None:
        return -logs.sum() / sum(int((targets != -100).sum()) for _, targets in batch)
    with torch.no_grad():
        before = torch.stack([log_probability(reference, *each) for each in batch])
    chosen, rejected = logs.view(-1, 2).unbind(1)
    ref_chosen, ref_rejected = before.view(-1, 2).unbind(1)
    return -F.logsigmoid(BETA * ((chosen - rejected) - (ref_chosen - ref_rejected))).mean()


def plain_loop(model: Any, reference: Any, trainer: Trainer) -> list[float]:
    learned = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in learned if p.dim() > 1], "weight_decay": DECAY},
        {"params": [p for p in learned if p.dim() == 1], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=RATE, betas=(0.9, 0.95), eps=1e-8)
    losses = []
    for batch in batches(trainer):
        loss = loss_of(model, reference, batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(learned, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.detach()))
    return losses


@pytest.mark.parametrize("tables", ["", LORA, DPO, f"{LORA}\n{DPO}"], ids=["sft", "lora", "dpo", "dpo-lora"])
def test_ten_steps_are_those_of_a_plain_loop(tmp_path, base, tables):
    trainer = ours(tmp_path, base, tables)
    model = theirs(tmp_path, base, trainer)
    frozen = None
    if trainer.job.preference is not None:
        frozen = transformers.AutoModelForCausalLM.from_pretrained(base, attn_implementation="eager")
    expected = plain_loop(model, frozen, trainer)
    found = [trainer.train_step().loss for _ in range(STEPS)]
    assert found == pytest.approx(expected, rel=1e-5)
    assert abs(expected[-1] - expected[0]) > 1e-2  # it learns


def rows_in_order(folder: Path, trainer: Trainer, steps: int) -> list[dict[str, str]]:
    """The rows of the first steps, one sample each."""
    rows = [json.loads(line) for line in (folder / "rows.jsonl").read_text().splitlines()]
    assert trainer.feed.samples.count == len(rows)
    return [rows[number] for number in trainer.feed.samples.order.of(range(steps * BATCH))]


def settings(folder: Path, steps: int) -> dict[str, Any]:
    return {
        "output_dir": str(folder / "trl"), "max_steps": steps, "per_device_train_batch_size": BATCH,
        "learning_rate": RATE, "lr_scheduler_type": "constant", "weight_decay": DECAY, "adam_beta2": 0.95,
        "max_grad_norm": 1.0, "train_sampling_strategy": "sequential", "report_to": "none", "use_cpu": True,
        "bf16": False, "gradient_checkpointing": False, "max_length": None, "save_strategy": "no",
    }  # fmt: skip


def recorded(kind: Any) -> Any:
    """The same trainer, which keeps its losses to the last digit, and the rewards of pairs."""

    class Recorded(kind):
        def compute_loss(self, *arguments, **more):
            found = super().compute_loss(*arguments, **more)
            self.losses = [
                *getattr(self, "losses", []),
                float((found[0] if isinstance(found, tuple) else found).detach()),
            ]
            metrics = self._metrics["train"]
            kept = [metrics.get(f"rewards/{name}") for name in ("chosen", "rejected", "accuracies")]
            self.rewards = [*getattr(self, "rewards", []), tuple(each[-1] for each in kept if each)]
            return found

    return Recorded


@pytest.mark.peers
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("tables", ["", LORA], ids=["sft", "lora"])
def test_ten_steps_are_those_of_trl(tmp_path, base, tables):
    trl, datasets = pytest.importorskip("trl"), pytest.importorskip("datasets")
    trainer = ours(tmp_path, base, tables)
    peer = recorded(trl.SFTTrainer)(
        theirs(tmp_path, base, trainer),
        args=trl.SFTConfig(
            **settings(tmp_path, STEPS), completion_only_loss=True, packing=False, shuffle_dataset=False
        ),
        train_dataset=datasets.Dataset.from_list(rows_in_order(tmp_path, trainer, STEPS)),
        processing_class=transformers.AutoTokenizer.from_pretrained(base),
    )
    peer.train()
    found = [trainer.train_step().loss for _ in range(STEPS)]
    assert found == pytest.approx(peer.losses, rel=1e-5)


@pytest.mark.peers
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("tables", [DPO, f"{LORA}\n{DPO}"], ids=["dpo", "dpo-lora"])
def test_preferences_have_the_losses_of_trl(tmp_path, base, tables):
    """The first is log 2 for everybody; the others depend on the reference, and on the gradients before."""
    trl, datasets = pytest.importorskip("trl"), pytest.importorskip("datasets")
    trainer = ours(tmp_path, base, tables)
    peer = recorded(trl.DPOTrainer)(
        theirs(tmp_path, base, trainer),
        args=trl.DPOConfig(**settings(tmp_path, STEPS), beta=BETA),
        train_dataset=datasets.Dataset.from_list(rows_in_order(tmp_path, trainer, STEPS)),
        processing_class=transformers.AutoTokenizer.from_pretrained(base),
    )
    peer.train()
    found = [trainer.train_step() for _ in range(STEPS)]
    assert [step.loss for step in found] == pytest.approx(peer.losses, rel=1e-5)
    for step, expected in zip(found, peer.rewards, strict=True):
        assert step.rewards == pytest.approx(expected, rel=1e-4, abs=1e-6)

"""One site of a run whose sites come and go: trains a small job, tells after every meeting, at the end its weights."""

from __future__ import annotations

import hashlib
import json
import sys
import time

import torch

from heddle.parallel.mesh import Mesh
from heddle.spec.job import job_from_tables
from heddle.training.prove.prove import synthetic_tokens
from heddle.training.step.trainer import Trainer


def main() -> None:
    torch.set_num_threads(1)
    options = json.loads(sys.argv[1])
    _tell(here=True)
    sys.stdin.readline()  # starting Python takes longer than joining: tests say when
    job = job_from_tables(options["job"])
    trainer = Trainer(job, synthetic_tokens(job), Mesh())
    while trainer.step < job.train.steps:
        result = trainer.train_step()
        time.sleep(options.get("pause", 0.0))
        if trainer.outer.due(trainer.step):  # type: ignore[attr-defined]
            _tell(step=trainer.step, met=trainer.outer.met, loss=result.loss, weights=_digest(trainer))  # type: ignore[attr-defined]
    _tell(end=True, weights=_digest(trainer))


def _digest(trainer: Trainer) -> str:
    parts = [piece.master.detach().numpy().tobytes() for piece in trainer.optimizer.pieces]
    return hashlib.sha256(b"".join([*parts, trainer.outer.velocity.numpy().tobytes()])).hexdigest()  # type: ignore[attr-defined]


def _tell(**facts: object) -> None:
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()

"""A trained model and its tokenizer, ready to generate."""

from __future__ import annotations

from pathlib import Path

import torch

from heddle.models import Transformer, materialize
from heddle.spec.job import load_job
from heddle.train.checkpoint import Checkpoint, newest
from heddle.train.data import Tokenizer, load_tokenizer
from heddle.train.device import DTYPES, pick_device
from heddle.train.run import open_run


def load_for_inference(folder: Path) -> tuple[Transformer, Tokenizer]:
    """The newest weights of a run."""
    run = open_run(folder)
    job = load_job(run.job_file)
    checkpoint = Checkpoint(newest(run.checkpoints))
    with torch.device("meta"):
        model = Transformer(job.model)
    materialize(model, pick_device(), DTYPES[job.train.precision])
    parameters = dict(model.named_parameters())
    checkpoint.check({name: tuple(parameter.shape) for name, parameter in parameters.items()})
    with torch.no_grad():
        for name, parameter in parameters.items():
            checkpoint.read_into(parameter, "parameter", name, (0,) * parameter.dim())
    return model.eval(), load_tokenizer(run.tokenizer)

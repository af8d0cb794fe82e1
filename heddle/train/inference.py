"""A trained model and its tokenizer, ready to generate."""

from __future__ import annotations

from pathlib import Path

import torch
import typer

from heddle.models import Transformer, materialize
from heddle.parallel.mesh import Mesh
from heddle.spec.job import load_job
from heddle.train.checkpoint import check_model, load_state, newest_good
from heddle.train.data import Tokenizer, load_tokenizer
from heddle.train.device import DTYPES, pick_device
from heddle.train.run import open_run
from heddle.train.storage import Boxes


def load_for_inference(folder: Path) -> tuple[Transformer, Tokenizer]:
    """The newest weights of a run."""
    run = open_run(folder)
    job = load_job(run.job_file)
    checkpoint = newest_good(run.checkpoints, Mesh(), lambda words: typer.secho(words, err=True))
    with torch.device("meta"):
        model = Transformer(job.model)
    materialize(model, pick_device(), DTYPES[job.train.precision])
    parameters = dict(model.named_parameters())
    check_model(checkpoint, {name: tuple(parameter.shape) for name, parameter in parameters.items()})
    # read in full precision, as they were written, and rounded on the way in
    state = {name: torch.empty(parameter.shape) for name, parameter in parameters.items()}
    load_state(checkpoint, {name: Boxes(tuple(t.shape), [((0,) * t.dim(), t)]) for name, t in state.items()}, Mesh())
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(state[name])
    return model.eval(), load_tokenizer(run.tokenizer)

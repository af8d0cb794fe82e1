"""A trained model and its tokenizer, ready to generate."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch

from heddle.checkpoint.source import WeightSource, find_source
from heddle.checkpoint.storage import Boxes
from heddle.data import Tokenizer, load_tokenizer
from heddle.errors import HeddleError, shorten
from heddle.models import Transformer, materialize
from heddle.parallel.mesh import Mesh
from heddle.runs.folder import Run, open_run
from heddle.runtime.device import DTYPES, pick_device
from heddle.spec.job import load_job
from heddle.spec.start import is_start


def load_for_inference(folder: Path, warn: Callable[[str], None]) -> tuple[Transformer, Tokenizer]:
    """The newest weights of a run, in its precision; or those of a checkpoint or a Hugging Face folder."""
    if not is_start(folder):
        open_run(folder)  # says what runs there are
    source = find_source(folder, Mesh(), warn)
    if source.model.own:
        raise HeddleError(
            f"{folder} holds a module that is code of its user's.",
            "Heddle knows how to train it, not how to generate with it, and runs no code that weights name.",
            "`heddle export hf` writes the weights under the module's own names; load them into it.",
        )
    run = Run(folder)
    precision = load_job(run.job_file).storage if run.job_file.is_file() else "fp32"
    tokenizer = load_tokenizer(source.companions or folder)
    if tokenizer.end >= source.model.vocab:
        raise HeddleError(
            f"The end of text, {shorten(tokenizer.end_name)}, is token {tokenizer.end}, which the model does not have.",
            f"Its vocabulary has the tokens 0 to {source.model.vocab - 1}.",
            "Does the tokenizer belong to these weights?",
        )
    return load_model(source, DTYPES[precision], pick_device()), tokenizer


@torch.no_grad()
def load_model(
    source: WeightSource, dtype: torch.dtype, device: torch.device, rounded: torch.dtype | None = None
) -> Transformer:
    """The whole model with its weights, as if they had been `rounded` to another dtype before."""
    with torch.device("meta"):
        model = Transformer(source.model)
    materialize(model, device, dtype)
    for name, parameter in model.named_parameters():
        # read in full precision, and rounded on the way in; one at a time, so that little is held twice
        values = torch.empty(parameter.shape, dtype=rounded or torch.float32)
        source.load({name: Boxes(tuple(values.shape), [((0,) * values.dim(), values)])})
        parameter.copy_(values)
    return model.eval()

"""Where weights come from – a run, a checkpoint, a Hugging Face folder – and the model and tokenizer that come along.

Only descriptions are read here, so that a job which starts from a folder can be planned without torch.
"""

from __future__ import annotations

from pathlib import Path

from heddle.errors import HeddleError
from heddle.spec.huggingface import read_config
from heddle.spec.model import ModelSpec
from heddle.spec.shorthand import model_from_table
from heddle.spec.tables import read_foreign_json, read_toml

JOB = "job.toml"  # of a run, and of the checkpoints that it wrote
ABOUT = "checkpoint.json"  # what makes a folder a checkpoint
MODEL = "model.toml"  # of a checkpoint that no job wrote
CONFIG = "config.json"  # of a Hugging Face folder
TOKENIZER_FILE = "tokenizer.json"
TOKENIZER_FOLDER = "tokenizer"  # of a run


def is_run(folder: Path) -> bool:
    """Whether a folder is a run's: it has a job, as its checkpoints have, but is none of them."""
    return (folder / JOB).is_file() and not (folder / ABOUT).is_file()


def is_start(folder: Path) -> bool:
    """Whether a folder looks like any of the three."""
    return any((folder / name).is_file() for name in (JOB, ABOUT, CONFIG))


def no_start(path: Path) -> HeddleError:
    """That a path leads to no weights."""
    found = "It is not there" if not path.exists() else f"It has no {JOB}, no {ABOUT} and no {CONFIG}"
    return HeddleError(
        f"{path} is not a run, a checkpoint or a Hugging Face model.",
        f"{found}." if path.is_dir() or not path.exists() else "It is a file; all three are folders.",
        "A run is RUNS/NAME; its checkpoints are RUNS/NAME/checkpoints/step-…",
    )


def model_in(folder: Path) -> ModelSpec:
    """The model that a folder says it holds."""
    if not is_start(folder):
        raise no_start(folder)
    for name in (JOB, MODEL):
        if (folder / name).is_file():
            table = read_toml(folder / name).get("model")
            if not isinstance(table, dict):
                raise HeddleError(
                    f"{folder / name} has no table [model].",
                    "It should describe the model of the weights.",
                    "Use another checkpoint.",
                )
            return model_from_table(table, folder)
    return read_config(read_foreign_json(folder / CONFIG, "a Hugging Face model configuration"))


def companions_in(folder: Path) -> Path:
    """The folder of the tokenizer and of whatever else came with the weights."""
    if is_run(folder):
        return folder / TOKENIZER_FOLDER
    if (folder / JOB).is_file():  # RUN/checkpoints/step-…
        return folder.absolute().parent.parent / TOKENIZER_FOLDER
    return folder


def tokenizer_in(folder: Path) -> Path:
    """The tokenizer that came with the weights; whoever starts from them writes in its tokens."""
    if not is_start(folder):
        raise no_start(folder)
    path = companions_in(folder) / TOKENIZER_FILE
    if not path.is_file():
        raise HeddleError(
            f"{folder} has no {TOKENIZER_FILE}.",
            "Weights only work with the tokens that they were trained on.",
            f'Name the tokenizer that belongs to it: [data] tokenizer = "FOLDER/{TOKENIZER_FILE}".',
        )
    return path

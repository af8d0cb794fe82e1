"""Python files that give the modules of `tests/helpers/own_modules.py`, written where a test wants them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from heddle.spec import Job, Plan, Train
from heddle.spec.own import own_model
from tests.helpers.own_modules import TOKENS, VOCAB

OPT = {
    "blocks": "model.decoder.layers.*",
    "column": ["*.q_proj", "*.k_proj", "*.v_proj", "*.fc1"],
    "row": ["*.out_proj", "*.fc2"],
    "vocabulary": ["*.embed_tokens"],
    "replicated": ["*layer_norm*", "*.embed_positions"],
}
RESEARCH = {
    "blocks": "body.stack.*",
    "column": ["*.q", "*.k", "*.v", "*.wide", "*.gate"],
    "row": ["*.o", "*.narrow"],
    "replicated": ["words", "places", "idle", "*.before", "*.behind", "end", "*.switch"],
    "partial": ["*.scale"],
    "divide": ["body.stack.*.count"],
}
PLANS: dict[str, dict[str, Any]] = {
    "opt": OPT,
    "bloom": {"blocks": "transformer.h.*"},
    "mpt": {"blocks": "transformer.blocks.*"},
    "mamba": {"blocks": "backbone.layers.*"},
    "llama": {},
    "research": RESEARCH,
    "with_middle": RESEARCH | {"column": [*RESEARCH["column"], "*.middle"]},
}
ENDS = ["words", "end", "head"]
ODD: dict[str, dict[str, Any]] = {
    "rwkv": {
        "blocks": "blocks.*",
        "column": ["*.r", "*.k", "*.v", "*.decay", "*.wide"],
        "row": ["*.o", "*.narrow"],
        "replicated": [*ENDS, "*.norm*", "*.shift"],
    },
    "hybrid": {
        "blocks": "blocks.*",
        "column": ["*.q", "*.k", "*.v", "*.wide", "*.back"],
        "row": ["*.o", "*.narrow"],
        "replicated": [*ENDS, "*.norm"],
    },
    "mixture": {
        "blocks": "blocks.*",
        "column": ["*.q", "*.k", "*.v", "*.up.*"],
        "row": ["*.o", "*.down.*"],
        "replicated": [*ENDS, "*.norm", "*.choose"],
    },
    "universal": {},
    "two_ahead": {
        "blocks": "blocks.*",
        "column": ["*.q", "*.k", "*.v", "*.wide", "*.back"],
        "row": ["*.o", "*.narrow"],
        "replicated": [*ENDS, "*.norm", "second"],
    },
    "towers": {"blocks": "decoder.*"},
}
PLANS |= ODD
LOSSES = {
    "research": "two_losses",
    "with_middle": "two_losses",
    "two_ahead": "loss_of_two",
    "towers": "loss_of_half",
}


def write(folder: Path, name: str, plan: dict[str, Any] | None = None) -> str:
    """A file that makes one of them; its address."""
    path = folder / f"{name}.py"
    home = "odd_modules" if name in ODD else "own_modules"
    path.write_text(
        f"from tests.helpers.{home} import {name} as make, {LOSSES.get(name, 'loss')} as loss\n"
        f"plan = {PLANS[name] if plan is None else plan!r}\n",
        encoding="utf-8",
    )
    return f"{path}:make"


def job(address: str, plan: Plan, **train: Any) -> Job:
    """A job with that module."""
    model = own_model({"module": address, "vocab": VOCAB, "sequence": TOKENS})
    settings = {"global_batch": 8, "precision": "fp32", "learning_rate": 1e-2, "steps": 4, "clip": 0.5} | train
    return Job(model=model, train=Train(**settings), plan=plan)

"""Do Heddle and transformers compute the same from the same weights? Asked after every import and export."""

from __future__ import annotations

import gc
import importlib
import importlib.util
import os
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from heddle.checkpoint.load_model import load_model
from heddle.checkpoint.source import WeightSource
from heddle.errors import HeddleError
from heddle.files import shown
from heddle.format import GIB
from heddle.models import Microbatch
from heddle.spec.model import ModelSpec

LIMIT = 1e-4  # of the largest logit, or of 1 where all are smaller: fp32 sums taken in another order
TOKENS = 16


@dataclass(frozen=True)
class Agreement:
    """How far two sets of logits are apart."""

    version: str  # of transformers
    tokens: int
    difference: float  # the largest
    largest: float  # logit

    @property
    def good(self) -> bool:
        """Whether rounding explains it."""
        return self.difference <= LIMIT * max(1.0, self.largest)

    def __str__(self) -> str:
        return (
            f"the logits of {self.tokens} tokens differ from those of transformers {self.version} by at most "
            f"{self.difference:.1e} (largest logit {self.largest:.3g})"
        )


def obstacle(model: ModelSpec) -> str | None:
    """Why the two cannot be compared here; None if they can."""
    if model.own:
        return "the module is code, and is not run for that"
    if _transformers() is None:
        return "transformers is not installed; to compare: pip install transformers"
    needed, free = 4 * model.parameters, _free_memory()
    if free is not None and needed > free // 2:
        return f"the model takes {needed / GIB:.1f} GiB in fp32, and {free / GIB:.1f} GiB are free"
    return None


def compare(folder: Path, source: WeightSource, dtype: torch.dtype | None = None) -> Agreement:
    """Hold transformers' logits from a Hugging Face folder against ours; `dtype` is what the folder was rounded to."""
    transformers = _transformers()
    assert transformers is not None
    count = min(TOKENS, source.model.sequence)
    ids = torch.arange(1, count + 1) * 7919 % source.model.vocab  # spread over the vocabulary
    model = load_model(source, torch.float32, torch.device("cpu"), rounded=dtype)
    with torch.no_grad():
        ours = model(ids, Microbatch(sequence=count))
    del model
    gc.collect()  # one of the two in memory is enough
    theirs = _their_logits(transformers, folder, ids)
    difference = float((ours - theirs).abs().max())
    return Agreement(transformers.__version__, count, difference, float(theirs.abs().max()))


class Agreed:
    """The check as an import or an export makes it, and what it says when all is done."""

    def __init__(self, model: ModelSpec, wanted: bool) -> None:
        self.obstacle = obstacle(model) if wanted else "--no-check"
        self.found: Agreement | None = None

    def check(self, folder: Path, source: WeightSource, dtype: torch.dtype | None = None) -> None:
        """Compare, where that is possible; weights that compute something else are refused."""
        if self.obstacle is not None:
            return
        self.found = compare(folder, source, dtype)
        if not self.found.good:
            raise HeddleError(
                f"Heddle and transformers disagree: {self.found}.",
                f"Rounding explains at most {LIMIT:.0e} of the largest logit. Nothing was written.",
                "Does the configuration belong to these weights? If so, this is a bug in Heddle: please report it.",
            )

    def __str__(self) -> str:
        return f"Not compared with transformers: {self.obstacle}." if self.found is None else f"Checked: {self.found}."


def _transformers() -> Any | None:
    """The library, where it is installed; Heddle does not need it."""
    return importlib.import_module("transformers") if importlib.util.find_spec("transformers") else None


def _their_logits(transformers: Any, folder: Path, ids: Tensor) -> Tensor:
    """What transformers computes; its progress bars and remarks stay away."""
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        options = {"local_files_only": True, "trust_remote_code": False, "use_safetensors": True}
        try:
            model = transformers.AutoModelForCausalLM.from_pretrained(folder, torch_dtype=torch.float32, **options)
            return model.eval()(ids[None]).logits[0]
        except Exception as error:  # it raises whatever its parts raise
            raise HeddleError(
                "transformers cannot compute with this model, so the two cannot be compared. Nothing was written.",
                f"It says: {type(error).__name__}: {shown(' '.join(str(error).split()))}",
                "Correct what it complains about, or leave the comparison out with --no-check.",
            ) from None


def _free_memory() -> int | None:
    """Bytes that could be used without swapping, where the system tells."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        pages, size = (name in os.sysconf_names for name in ("SC_AVPHYS_PAGES", "SC_PAGE_SIZE"))
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if pages and size else None

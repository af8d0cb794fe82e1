"""Whether a run compiles its layers: as its job says, else where that is known to pay and to hold."""

from __future__ import annotations

import shutil
from importlib.util import find_spec

import torch

from heddle.runtime.device import on_gpu
from heddle.spec.job import PlannedJob


def compiles(job: PlannedJob, device: torch.device) -> bool:
    """On GPUs that compute whole layers of one shape, if the job does not say; see `can_compile`.

    What ranks exchange inside a layer cuts its graph into pieces, and tokens that choose their experts give every step
    other shapes. What a run adapts to is measured before it is compiled.
    """
    if job.train.compile is not None:
        return job.train.compile
    plan = job.plan
    packed = job.tune is not None and job.tune.base is not None  # whose numbers a graph would keep
    whole = plan.tensor == 1 and plan.context == 1 and not plan.adapt and not job.model.own and not packed
    return on_gpu(device) and whole and not any(shape.experts for shape in job.model.shapes) and can_compile()


def can_compile() -> bool:
    """Whether this machine has what PyTorch compiles for GPUs with: Triton, and a C compiler."""
    return find_spec("triton") is not None and any(shutil.which(name) for name in ("cc", "gcc", "clang"))


def compiling_in_words(job: PlannedJob, device: torch.device) -> str:
    """What becomes of the layers, and who chose that."""
    if job.train.compile is not None:
        return f"compile = {str(job.train.compile).lower()}"
    if compiles(job, device):
        return "layers are compiled in the first step (compile = false leaves them as they are)"
    return "layers are not compiled (compile = true does it)"

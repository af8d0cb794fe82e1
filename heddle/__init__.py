"""Heddle plans, simulates, trains and explains the parallel training of large transformer models.

A job says what is trained, and on what; make one with `job`, or read its file with `load_job`. Every other function is
what the command of that name does. `plan`, `simulate`, `dry_run`, `prove`, `train` and `report` take a job or the path
of its file; `launch` and `compare` start processes that read the file, so they take its path:

    job = heddle.job("llama-3-8b", cluster="dgx-h100", nodes=4, global_batch=64)
    found = heddle.plan(job)        # the best plan, and the others, ranked
    found.best.step_seconds         # what is predicted of it
    heddle.train("job.toml")        # trains it, planned first if it has no plan

describe   job, load_job, fit_cluster, validate, profile, probe
decide     plan, simulate, dry_run, prove, build_schedule
train      train, launch, selftest, generate, evaluate; `ray.train` on a cluster of Ray
look       report, compare, read_trace, inspect
exchange   prepare_data, look_at_data, import_hf, export_hf, export_peft, import_dcp,
           import_plan, export_plan
graphs     capture, place, piper, regions; the modules `tiles` and `lanes`

Mistakes are a `HeddleError`: what is wrong, why, and the nearest thing that works. `import heddle` imports neither
PyTorch nor NumPy; a function imports what it needs when it is called.
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING, Any

from heddle.api.decide import (
    build_schedule,
    fit_cluster,
    job,
    load_job,
    plan,
    probe,
    profile,
    simulate,
    validate,
)
from heddle.api.evaluate import evaluate
from heddle.api.exchange import (
    export_hf,
    export_peft,
    export_plan,
    import_dcp,
    import_hf,
    import_plan,
    look_at_data,
    prepare_data,
)
from heddle.api.graphs import capture, piper, place, regions
from heddle.api.look import compare, inspect, read_trace, report
from heddle.api.training import dry_run, generate, launch, prove, selftest, train
from heddle.errors import HeddleError
from heddle.version import __version__

if TYPE_CHECKING:
    from heddle.planning.regions.network_search import NetworkSearch
    from heddle.planning.search.search import Search
    from heddle.simulating.simulation import Simulation
    from heddle.spec.cluster import Cluster
    from heddle.spec.job import Job
    from heddle.spec.model import ModelSpec
    from heddle.spec.plan import Plan

_CLASSES = {
    "Cluster": "heddle.spec.cluster",
    "Job": "heddle.spec.job",
    "ModelSpec": "heddle.spec.model",
    "NetworkSearch": "heddle.planning.regions.network_search",
    "Plan": "heddle.spec.plan",
    "Search": "heddle.planning.search.search",
    "Simulation": "heddle.simulating.simulation",
}
__all__ = [
    "Cluster",
    "HeddleError",
    "Job",
    "ModelSpec",
    "NetworkSearch",
    "Plan",
    "Search",
    "Simulation",
    "__version__",
    "build_schedule",
    "capture",
    "compare",
    "dry_run",
    "evaluate",
    "export_hf",
    "export_peft",
    "export_plan",
    "fit_cluster",
    "generate",
    "import_dcp",
    "import_hf",
    "import_plan",
    "inspect",
    "job",
    "lanes",
    "launch",
    "load_job",
    "look_at_data",
    "piper",
    "place",
    "plan",
    "prepare_data",
    "probe",
    "profile",
    "prove",
    "ray",
    "read_trace",
    "regions",
    "report",
    "selftest",
    "simulate",
    "tiles",
    "train",
    "validate",
]


def __getattr__(name: str) -> Any:
    """A class is imported when it is asked for: `import heddle` stays light."""
    if name == "ray":
        return _import_module("heddle.api.ray")
    if name in ("lanes", "tiles"):
        return _import_module(f"heddle.{name}")
    if name in _CLASSES:
        return getattr(_import_module(_CLASSES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)

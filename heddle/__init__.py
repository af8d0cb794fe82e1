"""Heddle plans, simulates, trains and explains the parallel training of large transformer models.

`heddle.plan`, `heddle.simulate`, `heddle.train`, `heddle.report` and `heddle.capture` are functions, and each has the
name of the package that it comes from. Python would hang that package over the function as soon as anything in it is
imported for the first time. So the packages, which are empty, are imported here before the functions take their names,
and a function shares the attributes of its package: `heddle.train(job)` and `heddle.train.loop` both work, whatever was
imported when.
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING, Any

from heddle.errors import HeddleError

_ROOMS = {name: _import_module(f"heddle.{name}") for name in ("capture", "plan", "report", "simulate", "train")}

from heddle.api import (  # noqa: E402 - the functions take the names of the rooms
    capture,
    dry_run,
    generate,
    load_job,
    piper,
    place,
    plan,
    prove,
    report,
    simulate,
    train,
)

if TYPE_CHECKING:
    from heddle.plan.search.search import Search
    from heddle.simulate.simulation import Simulation
    from heddle.spec.cluster import Cluster
    from heddle.spec.job import Job
    from heddle.spec.model import ModelSpec
    from heddle.spec.plan import Plan

__all__ = [
    "Cluster",
    "HeddleError",
    "Job",
    "ModelSpec",
    "Plan",
    "Search",
    "Simulation",
    "__version__",
    "capture",
    "dry_run",
    "generate",
    "lanes",
    "load_job",
    "piper",
    "place",
    "plan",
    "prove",
    "report",
    "simulate",
    "tiles",
    "train",
]
__version__ = "0.1.0"

for _function in (capture, plan, report, simulate, train):
    _function.__dict__ = vars(_ROOMS[_function.__name__])

_CLASSES = {
    "Cluster": "heddle.spec.cluster",
    "Job": "heddle.spec.job",
    "ModelSpec": "heddle.spec.model",
    "Plan": "heddle.spec.plan",
    "Search": "heddle.plan.search.search",
    "Simulation": "heddle.simulate.simulation",
}


def __getattr__(name: str) -> Any:
    """A class is imported when it is asked for: `import heddle` stays light."""
    if name in ("lanes", "tiles"):
        return _import_module(f"heddle.{name}")
    if name in _CLASSES:
        return getattr(_import_module(_CLASSES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)

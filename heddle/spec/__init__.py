"""What the user has and what was decided: frozen dataclasses, TOML in and out, no torch."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from heddle.spec.cluster import Cluster, Device, Efficiency, Link, Peak
    from heddle.spec.data import ChatSource, Data
    from heddle.spec.job import Job, Train, dumps_job, load_job
    from heddle.spec.model import ModelSpec, RopeScaling
    from heddle.spec.plan import Plan
    from heddle.spec.rules.even import even_stages

__all__ = [
    "ChatSource",
    "Cluster",
    "Data",
    "Device",
    "Efficiency",
    "Job",
    "Link",
    "ModelSpec",
    "Peak",
    "Plan",
    "RopeScaling",
    "Train",
    "dumps_job",
    "even_stages",
    "load_job",
]

_MODULES = {
    "Cluster": "heddle.spec.cluster",
    "Device": "heddle.spec.cluster",
    "Efficiency": "heddle.spec.cluster",
    "Link": "heddle.spec.cluster",
    "Peak": "heddle.spec.cluster",
    "ChatSource": "heddle.spec.data",
    "Data": "heddle.spec.data",
    "Job": "heddle.spec.job",
    "Train": "heddle.spec.job",
    "dumps_job": "heddle.spec.job",
    "load_job": "heddle.spec.job",
    "ModelSpec": "heddle.spec.model",
    "RopeScaling": "heddle.spec.model",
    "Plan": "heddle.spec.plan",
    "even_stages": "heddle.spec.rules.even",
}


def __getattr__(name: str) -> Any:
    """Imported when asked for: the command line needs the ranges of numbers long before it needs a job."""
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

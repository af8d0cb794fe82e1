"""What the user has and what was decided: frozen dataclasses, TOML in and out, no torch."""

from heddle.spec.cluster import Cluster, Device, Efficiency, Link, Peak
from heddle.spec.job import Data, Job, Train, dumps_job, load_job
from heddle.spec.model import ModelSpec, RopeScaling
from heddle.spec.plan import Plan, even_stages

__all__ = [
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

"""The trainers that plans can be taken to and from, by the words of `heddle export` and `heddle import`."""

from __future__ import annotations

from collections.abc import Callable

from heddle.errors import HeddleError, nearest
from heddle.spec.job import Job, PlannedJob
from heddle.trainers.accelerate import accelerate_yaml
from heddle.trainers.deepspeed import deepspeed_json, read_deepspeed
from heddle.trainers.exported import ExportedPlan
from heddle.trainers.imported import ImportedSettings
from heddle.trainers.megatron.read import read_megatron
from heddle.trainers.megatron.write import megatron_script
from heddle.trainers.nemo import nemo_yaml
from heddle.trainers.torchtitan.read import read_torchtitan
from heddle.trainers.torchtitan.write import torchtitan_toml

WRITERS: dict[str, Callable[[PlannedJob], ExportedPlan]] = {
    "megatron": megatron_script,
    "torchtitan": torchtitan_toml,
    "deepspeed": deepspeed_json,
    "accelerate": accelerate_yaml,
    "nemo": nemo_yaml,
}
READERS: dict[str, Callable[[str], ImportedSettings]] = {
    "megatron": read_megatron,
    "torchtitan": read_torchtitan,
    "deepspeed": read_deepspeed,
}


def exported_plan(job: Job, trainer: str) -> ExportedPlan:
    """The job's plan in that trainer's words."""
    if trainer not in WRITERS:
        raise HeddleError(
            f"There is no trainer '{trainer}'.", "Plans are written for a few.", nearest(trainer, WRITERS)
        )
    return WRITERS[trainer](job.planned)


def imported_settings(trainer: str, given: str) -> ImportedSettings:
    """What a launch line or a file of that trainer says."""
    if trainer not in READERS:
        raise HeddleError(f"There is no trainer '{trainer}'.", "Plans are read from a few.", nearest(trainer, READERS))
    return READERS[trainer](given)

"""Which GPUs of this machine still answer: one that fell off the bus takes the others' list with it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from heddle.spec.this_machine import asks_for_cpus

LISTED = Path("/proc/driver/nvidia/gpus")  # a folder per GPU, named by its place on the bus, lost ones too
PATIENCE = 30.0  # seconds that a driver in trouble may take to answer
VISIBLE = "CUDA_VISIBLE_DEVICES"


def healthy_gpus(listed: Path = LISTED) -> list[str] | None:
    """The names (UUIDs) of those that answer; None where there are none to ask, so that CPUs compute."""
    if asks_for_cpus() or shutil.which("nvidia-smi") is None or not listed.is_dir():
        return None
    found = [_uuid(place.name) for place in sorted(listed.iterdir())]
    return [each for each in found if each is not None]


def _uuid(place: str) -> str | None:
    """Asked one by one: where one is lost, `nvidia-smi` gives up on all of them."""
    query = ["nvidia-smi", "-i", place, "--query-gpu=uuid", "--format=csv,noheader"]
    try:
        answer = subprocess.run(query, capture_output=True, text=True, check=False, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        return None
    words = answer.stdout.strip()
    return words if answer.returncode == 0 and words.startswith("GPU-") else None


class GpusHere:
    """How many GPUs runs may have here, and a choice of those that answer for the processes that are started."""

    def __init__(self) -> None:
        self.stated = os.environ.get(VISIBLE)  # by the user, who knows which

    def count(self) -> int | None:
        """How many answer; None where CPUs compute, of which there are always enough."""
        found = healthy_gpus()
        if found is None or self.stated is None:
            return None if found is None else len(found)
        return min(len(found), len([word for word in self.stated.split(",") if word.strip()]))

    def choose(self) -> None:
        """Let the processes that this one starts see only those that answer."""
        found = healthy_gpus()
        if found is not None and self.stated is None:
            os.environ[VISIBLE] = ",".join(found)

    def choose_all(self) -> None:
        """Let them see all again."""
        if self.stated is None:
            os.environ.pop(VISIBLE, None)

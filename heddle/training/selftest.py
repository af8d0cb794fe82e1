"""The self-test: whether what Heddle promises holds on the devices it was given, told in one file to send back.

All parts run in one set of processes, however they were started: under our own launcher, torchrun or srun. The last
part kills one of them. Whoever starts the processes again, the launcher by itself or a person with the same command,
they find in the folder how far they had come, and go on.
"""

from __future__ import annotations

import json
import os
import platform
import time
import traceback
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from heddle.console import plain_console
from heddle.durable import replace_text
from heddle.errors import HeddleError
from heddle.parallel.mesh import Mesh
from heddle.reporting.selftest_page import selftest_page
from heddle.runtime.allotment import Allotted, facts, look
from heddle.runtime.device import pick_device, versions
from heddle.runtime.environment import launched_place, local_place
from heddle.runtime.error_files import FOLDER as NOTES
from heddle.runtime.joining import run_joined
from heddle.runtime.launch import run_processes
from heddle.runtime.node_facts import findings, node_facts
from heddle.runtime.together import Together, check_shared
from heddle.spec.axes import DEGREES
from heddle.spec.job import Job, PlannedJob, job_from_tables
from heddle.training.selftest_parts import SAVE, STEPS, SelftestParts, Work
from heddle.version import __version__

VERDICT, LOG, PAGE = "selftest.json", "selftest.log", "selftest.html"


@dataclass(frozen=True)
class Part:
    """How one part came out."""

    name: str
    passed: bool
    seconds: float
    words: str  # for a person
    numbers: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class SelftestVerdict:
    """What the file holds: where it ran, and each part. While a part runs, `running` names it."""

    about: dict[str, Any]
    parts: tuple[Part, ...] = ()
    running: str | None = None
    finished: bool = False

    @property
    def passed(self) -> bool:
        """Whether all is well."""
        return self.finished and all(part.passed for part in self.parts)

    def write(self, folder: Path) -> None:
        """Keep it, whole whatever happens next."""
        folder.mkdir(parents=True, exist_ok=True)
        about = asdict(self) | {"passed": self.passed}
        replace_text(folder / VERDICT, json.dumps(about, indent=1) + "\n")
        replace_text(folder / PAGE, selftest_page(about))


def read_verdict(folder: Path) -> SelftestVerdict | None:
    """How far an earlier start came; None if there was none."""
    path = folder / VERDICT
    if not path.exists():
        return None
    words = json.loads(path.read_text())
    words.pop("passed")
    return SelftestVerdict(**words | {"parts": tuple(Part(**part) for part in words["parts"])})


def selftest(folder: Path, processes: int, own: Job | None = None, quick: bool = False) -> SelftestVerdict | None:
    """Run all parts with so many processes, or with those of a launcher; None on all but its first.

    With `own`, a job of the user's, its plan is proved as well, shrunk to the processes that there are; with `quick`
    the plans with one mechanism each are not.
    """
    place = launched_place()
    planned = None if own is None else own.planned
    if place is not None:
        look_before(folder)
        job = selftest_job(folder, place.world, local_place()[1] or place.world)
        verdict = run_joined(job.plan, place, selftest_rank, job, folder, planned, quick)
        return verdict if place.rank == 0 else None
    refuse_finished(folder)
    look_before(folder)
    job = selftest_job(folder, processes, processes)
    if processes == 1:
        return selftest_rank(Mesh(), job, folder, planned, quick)
    verdict = run_processes(job.plan, selftest_rank, job, folder, planned, quick, restarts=1)
    assert isinstance(verdict, SelftestVerdict)
    return verdict


def refuse_finished(folder: Path) -> None:
    """A verdict is not written over."""
    if (before := read_verdict(folder)) is not None and before.finished:
        raise HeddleError(
            f"{folder / VERDICT} holds the verdict of an earlier self-test.",
            "Somebody may still need it.",
            "Choose another folder with --folder, or delete this one.",
        )


def selftest_job(folder: Path, world: int, local: int) -> PlannedJob:
    """A model of a few hundred thousand parameters, under a plan that uses every axis the processes allow.

    Tensor-parallel ranks stay within a node, so they need two processes on each.
    """
    tensor = 2 if local % 2 == 0 else 1
    pipeline = 2 if world // tensor % 2 == 0 else 1
    data = world // tensor // pipeline
    plan: dict[str, Any] = {"tensor": tensor, "pipeline": pipeline, "data": data, "microbatch": 2}
    plan |= {"sequence": tensor > 1, "zero": 1 if data > 1 else 0}
    return job_from_tables(
        {
            "model": {"layers": 4, "hidden": 128, "heads": 4, "vocab": 257, "sequence": 64},
            "data": {"text": "stdlib:json/*.py", "cache": str(folder.absolute() / "tokens")},
            "train": {
                "runs": str(folder.absolute() / "runs"),
                "steps": STEPS,
                "global_batch": 8 * data,
                "schedule": "constant",  # so that a run of half the steps begins as the whole one does
                "save_every": SAVE,
                "log_every": SAVE,
                "eval_batches": 2,
            },
            "plan": plan,
        }
    ).planned


def look_before(folder: Path) -> None:
    """Say at once what is wrong with this node, and keep what it is like: what comes next may never come back."""
    if local_place()[0] != 0:
        return
    facts = node_facts()
    said = plain_console(stderr=True)
    for found in findings(facts):
        if not found.good:
            words = f"{facts['node']}: {found.name}: {found.words}. {found.hint}"
            said.print(words, style="yellow", highlight=False, soft_wrap=True, markup=False)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"node-{facts['node']}.json").write_text(json.dumps(facts, indent=1) + "\n")


def selftest_rank(
    mesh: Mesh, job: PlannedJob, folder: Path, own: PlannedJob | None = None, quick: bool = False
) -> SelftestVerdict | None:
    """One rank's part; the verdict on the first. `own` is a job of the user's, whose plan is proved, too."""
    together, device = Together(mesh), pick_device()
    check_shared([folder], together)
    found = [Allotted(**words) for words in together.gather("selftest devices", asdict(look(device)))]
    if mesh.rank == 0:
        refuse_finished(folder)
    before = read_verdict(folder) if mesh.rank == 0 else None
    done, running = together.gather(
        "selftest so far", ([part.name for part in before.parts], before.running) if before else ([], None)
    )[0]
    verdict = before or SelftestVerdict(_about(job, found))
    said = plain_console(stderr=True)  # two minutes without a word would look like a hang
    parts_in_order = SelftestParts(mesh, job, together, own, quick).in_order
    for number, (name, work) in enumerate(parts_in_order.items(), 1):
        if name in done:
            continue
        again = running == name  # this very part was running when the processes were started again
        if mesh.rank == 0:
            verdict = replace(verdict, running=name)
            verdict.write(folder)
            said.print(f"{number} of {len(parts_in_order)}: {name}{', again' * again}")
        together.all(f"selftest begins {name} {again}")  # nobody dies before that is written
        part = _tried(name, work, again, folder / LOG, mesh)
        parts = together.gather(f"selftest {name}", asdict(part))
        if mesh.rank == 0:
            verdict = replace(verdict, parts=(*verdict.parts, _joined([Part(**each) for each in parts])), running=None)
            verdict.write(folder)
    if mesh.rank != 0:
        return None
    verdict = replace(verdict, finished=True)
    verdict.write(folder)
    return verdict


def _about(job: PlannedJob, found: list[Allotted]) -> dict[str, Any]:
    plan = {axis: getattr(job.plan, axis) for axis in DEGREES}
    here = {"heddle": __version__, "python": platform.python_version(), "system": platform.platform()}
    known = {NOTES: "heddle", "TORCHELASTIC_RUN_ID": "torchrun", "SLURM_STEP_ID": "srun"}
    launcher = next((name for variable, name in known.items() if variable in os.environ), "heddle")
    when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return (
        here
        | versions()
        | facts(found)
        | {"plan": plan, "precision": job.precision, "launcher": launcher, "began": when}
    )


def _tried(name: str, work: Work, again: bool, log: Path, mesh: Mesh) -> Part:
    """Do a part; what goes wrong with it is the verdict on it, and not the end of the test."""
    began = time.monotonic()
    try:
        if mesh.rank == 0:
            with log.open("a") as file, redirect_stdout(file):
                passed, words, numbers = work(again)
        else:
            passed, words, numbers = work(again)
    except Exception as error:
        with log.open("a") as file:
            file.write(f"rank {mesh.rank}, {name}:\n{traceback.format_exc()}\n")
        last = traceback.format_exception_only(error)[-1].strip()
        passed, words, numbers = False, f"rank {mesh.rank}: {last}", {}
        if mesh.world.size > 1 and not isinstance(error, HeddleError):
            raise  # the others stand in a collective, and only the launcher can end that
    return Part(name, passed, round(time.monotonic() - began, 2), words, numbers)


def _joined(parts: list[Part]) -> Part:
    """The first rank's words, or those of the first that failed."""
    return next((part for part in parts if not part.passed), parts[0])

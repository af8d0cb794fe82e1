"""The self-test: whether what Heddle promises holds on the devices it was given, told in one file to send back.

All parts run in one set of processes, however they were started: under our own launcher, torchrun or srun. The last
part kills one of them. Whoever starts the processes again, the launcher by itself or a person with the same command,
they find in the folder how far they had come, and go on.
"""

from __future__ import annotations

import json
import math
import os
import platform
import signal
import time
import traceback
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from heddle.checkpoint.checkpoint import checkpoints
from heddle.console import plain_console
from heddle.errors import HeddleError
from heddle.parallel.mesh import Mesh
from heddle.runs.durable import replace_text
from heddle.runs.folder import Run
from heddle.runs.metrics import read_metrics
from heddle.runtime.allotment import Allotted, facts, look
from heddle.runtime.device import pick_device, versions
from heddle.runtime.environment import launched_place, local_place
from heddle.runtime.error_files import FOLDER as NOTES
from heddle.runtime.error_files import restart_count
from heddle.runtime.launch import run_joined, run_processes
from heddle.runtime.together import Together, check_shared
from heddle.spec.axes import DEGREES
from heddle.spec.job import Job, PlannedJob, job_from_tables
from heddle.training.loop import train_rank
from heddle.training.opening import RunOptions
from heddle.training.profile.profile import described, measure_once
from heddle.training.prove.prove import conclude, observe
from heddle.training.prove.shrink import shrink
from heddle.version import __version__

VERDICT, LOG = "selftest.json", "selftest.log"
STEPS, SAVE = 24, 8  # of each training, and between two checkpoints
KILLED_AT = 12  # the step after which a rank dies: between two checkpoints
PROVED = 6  # steps of the proof


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
        replace_text(folder / VERDICT, json.dumps(asdict(self) | {"passed": self.passed}, indent=1) + "\n")


def read_verdict(folder: Path) -> SelftestVerdict | None:
    """How far an earlier start came; None if there was none."""
    path = folder / VERDICT
    if not path.exists():
        return None
    words = json.loads(path.read_text())
    words.pop("passed")
    return SelftestVerdict(**words | {"parts": tuple(Part(**part) for part in words["parts"])})


def selftest(folder: Path, processes: int) -> SelftestVerdict | None:
    """Run all parts with so many processes, or with those of a launcher; None on all but its first."""
    place = launched_place()
    if place is not None:
        job = selftest_job(folder, place.world, local_place()[1] or place.world)
        verdict = run_joined(job.plan, place, selftest_rank, job, folder)
        return verdict if place.rank == 0 else None
    refuse_finished(folder)
    job = selftest_job(folder, processes, processes)
    if processes == 1:
        return selftest_rank(Mesh(), job, folder)
    verdict = run_processes(job.plan, selftest_rank, job, folder, restarts=1)
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


def selftest_rank(mesh: Mesh, job: PlannedJob, folder: Path) -> SelftestVerdict | None:
    """One rank's part; the verdict on the first."""
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
    parts_in_order = _Parts(mesh, job).in_order
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


Work = Callable[[bool], tuple[bool, str, dict[str, Any]]]


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


@dataclass(frozen=True)
class _Parts:
    """What one rank does for each part; told is whether it passed, in words, and with numbers."""

    mesh: Mesh
    job: Job

    @property
    def in_order(self) -> dict[str, Work]:
        """The one that kills comes last."""
        return {
            "prove": self.prove,
            "profile": self.profile,
            "train": self.train,
            "resume": self.resume,
            "kill": self.kill,
        }

    def prove(self, _again: bool) -> tuple[bool, str, dict[str, Any]]:
        """Whether the plan trains like one device."""
        shrunk, began = shrink(self.job, PROVED, self.mesh.world.size), time.monotonic()
        parallel = observe(self.mesh, shrunk.job)
        if parallel is None:
            return True, "", {}
        proof = conclude(shrunk, parallel, began)
        comparison = proof.comparison
        words = proof.verdict.rstrip(".")
        numbers = {"loss": comparison.max_loss_diff, "gradients": comparison.max_gradient_diff}
        return comparison.equal, words, {key: value if math.isfinite(value) else None for key, value in numbers.items()}

    def profile(self, _again: bool) -> tuple[bool, str, dict[str, Any]]:
        """Whether devices and links can be measured."""
        cluster = described(self.mesh.world.size, measure_once(self.mesh, quick=True))
        tflops = {name: rate for name, rate in asdict(cluster.device.tflops).items() if rate}
        links = {link.name: link.gbs for link in cluster.links}
        best = max(tflops.values(), default=0.0)
        words = f"{best:.3g} TFLOP/s" + "".join(f", messages {gbs:.3g} GB/s" for gbs in links.values())
        good = best > 0 and all(gbs > 0 for gbs in links.values())
        return good, words, {"tflops": tflops, "gbs": links, "memory_gbs": cluster.device.memory_gbs}

    def _named(self, name: str, steps: int = STEPS) -> Job:
        return replace(self.job, train=replace(self.job.train, name=name, steps=steps))

    def train(self, _again: bool) -> tuple[bool, str, dict[str, Any]]:
        """A training that nothing interrupts."""
        result = train_rank(self.mesh, self._named("straight"), RunOptions())
        seconds = result.step_seconds or 0.0
        return True, f"{STEPS} steps, {seconds:.3g} s each, loss {result.loss:.3f}", {"step_seconds": seconds}

    def _same(self, name: str) -> tuple[bool, str, dict[str, Any]]:
        """Whether a run that was interrupted went through the losses of the one that was not."""
        if self.mesh.rank != 0:
            return True, "", {}
        straight, other = (_losses(self._named(each)) for each in ("straight", name))
        equal = len(straight) == STEPS and straight == other
        return equal, "the same bits as without it" if equal else f"other losses: {other} for {straight}", {}

    def resume(self, _again: bool) -> tuple[bool, str, dict[str, Any]]:
        """One that is stopped halfway and goes on."""
        train_rank(self.mesh, self._named("resumed", STEPS // 2), RunOptions())
        train_rank(self.mesh, self._named("resumed"), RunOptions(resume=True))
        return self._same("resumed")

    def kill(self, again: bool) -> tuple[bool, str, dict[str, Any]]:
        """One of which a rank dies; `again`: it has died, and all were started again."""
        killed = self._named("killed")
        saved = Run(killed.run_folder).checkpoints
        victim = self.mesh.world.ranks[-1]

        def die(step: int) -> None:
            if step == KILLED_AT and self.mesh.rank == victim:
                while not checkpoints(saved):
                    time.sleep(0.01)
                os.kill(os.getpid(), signal.SIGKILL)

        if not again:
            if self.mesh.world.size == 1:
                return True, "a single process cannot be restarted", {"skipped": True}
            train_rank(self.mesh, killed, RunOptions(), after_step=die)
        result = train_rank(self.mesh, killed, RunOptions(resume=bool(checkpoints(saved))))
        good, words, _ = self._same("killed")
        went_on = result.first_step > 0
        text = f"rank {victim} was killed after step {KILLED_AT}, all resumed from step {result.first_step}: {words}"
        return good and went_on, text, {"restart": restart_count(), "went_on_from": result.first_step}


def _losses(job: Job) -> list[float]:
    return [row["loss"] for row in read_metrics(job.run_folder / "metrics.jsonl") if "loss" in row]

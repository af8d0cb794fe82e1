"""Two jobs trained on the same data with the same seeds: which one learns faster, by tokens and by the clock."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from heddle.errors import HeddleError
from heddle.format import short
from heddle.runs.curves import Curve, Setting, common_loss, read_curve
from heddle.runs.lock import begun
from heddle.runs.metrics import read_metrics
from heddle.runtime.environment import launched_place
from heddle.spec.changes import load_with_changes
from heddle.spec.job import Job, load_job
from heddle.training.loop import train
from heddle.training.planned import plan_to_train


@dataclass(frozen=True)
class RunComparison:
    """What came of it. `loss` is the one to be reached."""

    settings: tuple[Setting, Setting]
    loss: float

    @property
    def gap(self) -> float:
        """By how much the second ends above the first, as a mean over seeds."""
        return self.settings[1].final - self.settings[0].final

    @property
    def first(self) -> str | None:
        """Which reaches the loss first by the clock; None where neither does."""
        times = {setting.name: reached[1] for setting in self.settings if (reached := setting.reach(self.loss))}
        return min(times, key=times.__getitem__, default=None)

    def in_words(self) -> list[str]:
        """The verdict, line by line."""
        a, b = self.settings
        lines = []
        if self.first is None:
            lines.append(f"Neither reaches {self.loss:g} nats per token with every seed.")
        else:
            winner, other = (a, b) if self.first == a.name else (b, a)
            won, lost = winner.reach(self.loss), other.reach(self.loss)
            assert won is not None
            words = f"{winner.name} reaches {self.loss:g} nats per token first: after {won[1]:.3g} s"
            if lost is None:
                lines.append(f"{words}; {other.name} does not reach it with every seed.")
            else:
                lines.append(
                    f"{words} and {short(won[0])} tokens; {other.name} takes {lost[1]:.3g} s ({lost[1] / won[1]:.2f} "
                    f"times as long) and {short(lost[0])} tokens."
                )
        spread = max(_spread(setting) for setting in self.settings)
        seeds = min(len(setting.curves) for setting in self.settings)
        known = (
            f"seeds of one setting differ by up to {spread:.4f}" if seeds > 1 else "one seed says nothing about noise"
        )
        lines.append(f"At the end {b.name} is {self.gap:+.4f} nats per token relative to {a.name}; {known}.")
        return lines

    def to_json(self) -> dict[str, object]:
        """For machines."""
        return {
            "loss": self.loss,
            "first": self.first,
            "gap": self.gap,
            "settings": [
                {
                    "name": setting.name,
                    "final_loss": setting.final,
                    "reached": _reached(setting.reach(self.loss)),
                    "runs": [
                        {
                            "run": str(curve.run),
                            "seed": curve.seed,
                            "final_loss": curve.final,
                            "validation_loss": curve.validation,
                            "reached": _reached(curve.reach(self.loss)),
                        }
                        for curve in setting.curves
                    ],
                }
                for setting in self.settings
            ],
        }


def _reached(found: tuple[float, float] | None) -> dict[str, float] | None:
    return None if found is None else {"tokens": found[0], "seconds": found[1]}


def _spread(setting: Setting) -> float:
    finals = [curve.final for curve in setting.curves]
    return max(finals) - min(finals)


def compare(
    jobs: Sequence[tuple[str, Job]],
    seeds: int = 1,
    loss: float | None = None,
    name: str = "compare",
    say: Callable[[str], None] = lambda _: None,
) -> RunComparison | None:
    """Train both with every seed and compare; None if asked to stop, and the same call then goes on.

    Runs take turns, so that what else the machine does meets both alike. They go to RUNS/NAME/SETTING-seed-N; those
    that are done are not trained again.
    """
    _check(jobs)
    curves: dict[str, list[Curve]] = {setting: [] for setting, _ in jobs}
    planned = [(setting, plan_to_train(job)[0]) for setting, job in jobs]
    for number in range(seeds):
        for setting, job in planned:
            seed = job.train.seed + number
            runs = str(Path(job.train.runs) / name)
            own = replace(job.train, seed=seed, runs=runs, name=f"{setting}-seed-{seed}")
            run = replace(job, train=own)
            if not _done(run):
                say(f"{setting}, seed {seed}:")
                result = train(run, resume=begun(run.run_folder))
                if result is None or result.step < result.steps:
                    return None
            curves[setting].append(read_curve(run.run_folder))
    a, b = (Setting(setting, tuple(found)) for setting, found in curves.items())
    return RunComparison((a, b), common_loss((a, b)) if loss is None else loss)


def compare_files(
    first: Path,
    second: Path,
    seeds: int,
    loss: float | None,
    name: str,
    changes: Iterable[str] = (),
    say: Callable[[str], None] = lambda _: None,
) -> RunComparison | None:
    """Two job files, trained and compared; or two runs' folders, compared as they are."""
    paths = (first, second)
    names = [path.absolute().name if path.is_dir() else path.stem for path in paths]
    if names[0] == names[1]:
        names = [f"{names[0]}-a", f"{names[1]}-b"]
    if all(path.is_dir() for path in paths):
        return compare_runs(list(zip(names, paths, strict=True)), loss)
    if any(path.is_dir() for path in paths):
        raise HeddleError(
            f"{first} and {second} are a run and a job file.",
            "Two runs are compared as they are; two jobs are trained in turns first.",
            "Give two run folders, or two job files.",
        )
    changes = list(changes)
    jobs = [(label, load_with_changes(path, changes)) for label, path in zip(names, paths, strict=True)]
    return compare(jobs, seeds, loss, name, say)


def compare_runs(folders: Sequence[tuple[str, Path]], loss: float | None = None) -> RunComparison:
    """The same of runs that are trained already."""
    a, b = (Setting(setting, (read_curve(folder),)) for setting, folder in folders)
    _check([(setting, load_job(folder / "job.toml")) for setting, folder in folders])
    return RunComparison((a, b), common_loss((a, b)) if loss is None else loss)


def _check(jobs: Sequence[tuple[str, Job]]) -> None:
    """Only losses of the same tokens can be compared."""
    if launched_place() is not None:
        raise HeddleError(
            "`heddle compare` was started by a launcher.",
            "It starts the processes of both runs itself, one after the other.",
            "Train both with the launcher, then give the run folders: heddle compare RUN RUN.",
        )
    (name, first), (other, second) = jobs
    for key in ("text", "tokens", "tokenizer", "key", "validation"):
        before, after = getattr(first.corpus, key), getattr(second.corpus, key)
        if before != after:
            raise HeddleError(
                f"{name} and {other} train on different tokens: data.{key} is {_shown(before)} and {_shown(after)}.",
                "Losses of different texts or vocabularies cannot be compared.",
                "Give both the same [data].",
            )


def _shown(value: object) -> str:
    return ", ".join(value) if isinstance(value, tuple) else repr(value)


def _done(job: Job) -> bool:
    """Whether this very run has been trained to its end."""
    if not begun(job.run_folder):
        return False
    before = load_job(job.run_folder / "job.toml")
    job = job.stating()
    same = replace(job.train, sequence=before.train.sequence)  # None means the model's own
    if (before.planned.plan, before.train, before.sequence) != (job.planned.plan, same, job.sequence):
        raise HeddleError(
            f"{job.run_folder} was trained with other settings.",
            "A comparison continues the runs of an earlier one only if nothing has changed.",
            "Choose another name with --name, or delete that folder.",
        )
    done = read_metrics(job.run_folder / "metrics.jsonl")
    return bool(done) and max(row["step"] for row in done) >= job.train.steps

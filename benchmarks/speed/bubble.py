"""The measured bubble of 1F1B and of interleaved 1F1B against the formulas (p-1)/m and (p-1)/(v·m) of PTD-P §2.2.

The bubble is idle time over busy time of the compute lane, over all ranks, by the wall clock, from the first forward
to the last backward: everything between two computations counts as idle, be it waiting, sending or Python.

With 2 ranks it is measured as it is, a rank a core.

With 4 ranks and fewer cores, ranks that should compute at the same time would take turns, and waiting for a core would
pass for computing. So the 4 ranks are made slow devices of a steady speed: a first step finds the CPU time that a
forward and a backward take, and from then on a rank sleeps after each of them until `--slowdown` times that has passed,
the same for all chunks, which have equally many layers. Work, messages and order are the real ones, and so is the
clock; only, a device now needs no more than 1/slowdown of a core, and 4 of them fit on 2 cores when the slowdown is 2
or more. Messages are not slowed, so they weigh less than they would on devices as fast as a core: the 2-rank result
shows them at full weight.

What other load takes away shows as `stretch`: wall time of the actions over what they should have taken (1 is
undisturbed; far above 1 the result means little).

`replayed` is the bubble of the same schedule with exactly the measured duration of every action, and nothing between
them but the order: what is left there over the formula is uneven stages and jitter of the machine. What is more in
`measured` is ours: messages, Python, waiting in the wrong place. That costs about as much whatever the size of a
stage, so the formulas, which know nothing of it, hold the better the more there is to compute: hence two sizes.

    python -m benchmarks.speed.bubble [--ranks 2 4 --microbatches 8 --hidden 512 1024 --rounds 5 --slowdown 3]
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch.distributed as dist

from benchmarks.lib.gpt import Setting
from benchmarks.lib.processes import run
from benchmarks.lib.rounds import alternate, report_cases
from heddle.parallel.mesh import build_mesh
from heddle.runtime.recorder import NoRecorder
from heddle.schedule import Action, Schedule, build, producer, rule_of
from heddle.spec import ModelSpec, Plan
from heddle.trace import COMPUTE, Span, Trace
from heddle.training.step.trainer import Trainer


class PacedRecorder(NoRecorder):
    """Notes wall and CPU time of every action, and makes the device as slow as it is told."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.pace: dict[str, float] = {}  # seconds that a kind of action takes at least
        self.spans: list[tuple[Span, float]] = []  # with the CPU time

    @contextmanager
    def span(self, lane: str, name: str, chunk: int = -1, microbatch: int = -1, size: int = 0) -> Iterator[None]:
        start, cpu_start = time.perf_counter(), time.thread_time()
        yield
        if lane == COMPUTE:
            cpu = time.thread_time() - cpu_start
            rest = start + self.pace.get(name, 0.0) - time.perf_counter()
            if rest > 0:
                time.sleep(rest)
            self.spans.append((Span(self.rank, lane, name, start, time.perf_counter(), size, chunk, microbatch), cpu))

    def take(self) -> list[tuple[Span, float]]:
        """What was noted since the last call."""
        spans, self.spans = self.spans, []
        return spans


@dataclass(frozen=True)
class Measured:
    """One step."""

    bubble: float
    stretch: float
    replayed: float


class Bubble:
    """A schedule on so many ranks."""

    def __init__(self, setting: Setting, rank: int, slowdown: float) -> None:
        self.hidden = setting.model.hidden
        self.plan, self.microbatches, self.slowdown = setting.plan, setting.microbatches, slowdown
        self.schedule = build(self.plan.schedule, self.plan.pipeline, self.microbatches, self.plan.virtual)
        self.recorder = PacedRecorder(rank)
        mesh = build_mesh(setting.plan, rank, setting.plan.world)
        self.trainer = Trainer(setting.job, setting.tokens, mesh, self.recorder)
        self.steps: list[Measured] = []
        self._step()
        self.cpu = self._cpu_of_actions(self._step())
        self.recorder.pace = {kind: slowdown * cpu for kind, cpu in self.cpu.items()}

    def _step(self) -> list[tuple[Span, float]]:
        """Train once; gives what all ranks noted."""
        self.recorder.take()
        dist.barrier()
        self.trainer.train_step()
        ranks: list[list[tuple[Span, float]]] = [[]] * self.plan.pipeline
        dist.all_gather_object(ranks, self.recorder.take())
        return [pair for rank in ranks for pair in rank]

    def _cpu_of_actions(self, timed: list[tuple[Span, float]]) -> dict[str, float]:
        """Of a forward and of a backward: the lower quartile, which other load changes least."""
        kinds: dict[str, list[float]] = {}
        for span, cpu in timed:
            kinds.setdefault(span.name, []).append(cpu)
        return {kind: sorted(times)[len(times) // 4] for kind, times in kinds.items()}

    def step(self) -> float:
        """One measurement."""
        timed = self._step()
        spans = [span for span, _ in timed]
        expected = max(1.0, self.slowdown) * sum(self.cpu[span.name] for span in spans)
        stretch = sum(span.end - span.start for span in spans) / expected
        bubble = Trace(self.plan.pipeline, spans).bubble
        self.steps.append(Measured(bubble, stretch, replayed(self.schedule, spans).bubble))
        return bubble

    def case(self) -> dict[str, object]:
        plan, steps = self.plan, self.steps[1:]  # the first one warmed up
        formula = rule_of(plan.schedule).bubble(plan.pipeline, self.microbatches, plan.virtual)
        measured = statistics.median(step.bubble for step in steps)
        return {
            "hidden": self.hidden,
            "pipeline": plan.pipeline,
            "schedule": plan.schedule,
            "microbatches": self.microbatches,
            "slowdown": self.slowdown or None,
            "formula": round(formula, 4),
            "measured": round(measured, 4),
            "measured_over_formula": round(measured / formula, 3),
            "replayed": round(statistics.median(step.replayed for step in steps), 4),
            "measured_over_replayed": round(statistics.median(step.bubble / step.replayed for step in steps), 3),
            "stretch": round(statistics.median(step.stretch for step in steps), 3),
        }


def replayed(schedule: Schedule, spans: list[Span]) -> Trace:
    """The same actions, each as long as it was, started as soon as its rank and its input are ready."""
    length = {(span.name, span.chunk, span.microbatch): span.end - span.start for span in spans}
    ends: dict[Action, float] = {}
    ideal = Trace(schedule.pipeline)
    clocks, places = [0.0] * schedule.pipeline, [0] * schedule.pipeline
    while len(ends) < len(length):
        for rank, actions in enumerate(schedule.ranks):
            while places[rank] < len(actions):
                action = actions[places[rank]]
                needed = producer(schedule, action)
                if needed is not None and needed not in ends:
                    break
                start = max(clocks[rank], ends[needed] if needed is not None else 0.0)
                ends[action] = clocks[rank] = start + length[action.kind.value, action.chunk, action.microbatch]
                ideal.spans.append(Span(rank, COMPUTE, action.kind.value, start, clocks[rank]))
                places[rank] += 1
    return ideal


def cases(rank: int, pipeline: int, hidden: int, options: argparse.Namespace) -> list[dict[str, object]]:
    model = ModelSpec(
        layers=options.layers,
        hidden=hidden,
        heads=max(1, hidden // 64),
        vocab=128,  # the head is then next to nothing, as the formula wants it
        sequence=options.sequence,
        tied=False,
    )
    slowdown = options.slowdown if pipeline > 2 else 0.0
    bubbles = {}
    for microbatches in options.microbatches:
        for schedule, virtual in (("1f1b", 1), ("interleaved", 2)):
            plan = Plan(pipeline=pipeline, virtual=virtual, schedule=schedule, microbatch=options.microbatch)
            bubbles[f"{schedule} {microbatches}"] = Bubble(Setting(model, plan, microbatches), rank, slowdown)
    alternate({name: bubble.step for name, bubble in bubbles.items()}, options.rounds, rank)
    found = [bubble.case() for bubble in bubbles.values()]
    if rank == 0:
        for case in found:
            print(json.dumps(case), file=sys.stderr)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--microbatches", type=int, nargs="+", default=[8])
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--hidden", type=int, nargs="+", default=[512, 1024])
    for name, default in {"layers": 8, "sequence": 128, "microbatch": 1, "rounds": 5}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--slowdown", type=float, default=3.0, help="of the 4 devices, against a core")
    options = parser.parse_args()
    sizes = [(ranks, hidden) for ranks in options.ranks for hidden in options.hidden]
    found = [case for ranks, hidden in sizes for case in run(ranks, cases, ranks, hidden, options)]
    shape = {name: getattr(options, name) for name in ("layers", "sequence", "microbatch")}
    report_cases("bubble", "(p-1)/m and (p-1)/(v·m), PTD-P §2.2", found, **shape)


if __name__ == "__main__":
    main()

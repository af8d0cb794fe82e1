"""One plan, exactly: its schedule replayed with its costs, its memory stage by stage."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from html import escape
from typing import Any, TypeAlias

from heddle.cost import step as stage
from heddle.cost.breakdown import Breakdown
from heddle.cost.fits import MemoryVerdict, verdict
from heddle.cost.fits import fits as bytes_fit
from heddle.cost.layers import chunk_layers
from heddle.cost.measured.local_machine import machine_for
from heddle.cost.memory import MemoryBreakdown
from heddle.cost.offload import DISK_GBS
from heddle.cost.outside import Outside, outside
from heddle.cost.work import Work, work_of
from heddle.errors import HeddleError
from heddle.format import GIB
from heddle.schedule import Schedule
from heddle.simulating.chunks import chunk_costs, not_compute, step_tail_seconds
from heddle.simulating.error_bar import ErrorBar, error_bar, kind_of
from heddle.simulating.failures import ExpectedRun, Reliability, expected_run
from heddle.simulating.late import (
    enough_steps,
    late_schedule,
    pipeline_seconds,
    steady_seconds,
    step_seconds,
    with_replays,
    with_undo,
    with_versions,
)
from heddle.simulating.memory_curve import Curve, memory_curves
from heddle.simulating.network.devices import peak_of
from heddle.simulating.network.link_use import link_uses
from heddle.simulating.network.over_network import OverNetwork
from heddle.simulating.network.parts import network_breakdown, network_timeline
from heddle.simulating.replay import replay
from heddle.simulating.shared_cores import replay_shared
from heddle.simulating.stage_memory import LeftBytes, every_stage_fits, stage_memory
from heddle.simulating.timeline import Sizes, Tail, timeline
from heddle.spec.cluster import Cluster
from heddle.spec.job import Job, PlannedJob
from heddle.spec.plan import Plan, Predicted
from heddle.spec.ranks import ranks_per_stage, split_in_words, world_in_words
from heddle.spec.software import HEDDLE
from heddle.trace.trace import Trace

STATES = 12  # bytes of a parameter in a checkpoint: fp32 weights and both moments of AdamW


@dataclass(frozen=True)
class Simulation:
    """What a step of a job takes and holds, before anything is spent.

    `trace` has one rank for each pipeline stage: tensor ranks and replicas do the same at the same time.
    """

    job: PlannedJob
    cluster: Cluster
    step_seconds: float
    breakdown: Breakdown  # seconds, as a mean over ranks; they add up to the step
    bubble: float  # idle over ideal time of the pipeline (PTD-P §2.2.1)
    memory: tuple[MemoryBreakdown, ...]  # of one rank of each stage
    left: LeftBytes  # that a microbatch leaves in each chunk
    timeline: Callable[[], Trace] = field(repr=False, compare=False)
    network: OverNetwork | None = field(default=None, repr=False, compare=False)  # where links and devices differ

    def __repr__(self) -> str:
        held = f"{self.worst / GIB:.4g} of {self.limit / GIB:.4g} GiB"
        return f"<Simulation: {self.step_seconds:.4g} s per step, {held}, {split_in_words(self.plan)}>"

    def _repr_html_(self) -> str:
        from heddle.trace.notebook import memory_html, timeline_html

        stages = [{name: float(value) for name, value in each._asdict().items()} for each in self.memory]
        names = [f"stage {stage}" for stage in range(self.plan.pipeline)]
        bars = memory_html(stages, self.limit)
        return f"<p>{escape(repr(self))}</p>" + timeline_html(self.trace, names) + bars

    def to_frame(self) -> Any:
        """What each stage holds, in GiB, as a pandas DataFrame."""
        from heddle.trace.frames import frame

        return frame(self.to_json()["memory"])

    def plot(self, axes: Any = None) -> Any:
        """Draw the step's timeline and, below it, what each stage holds; `axes` are two of matplotlib's, if given."""
        from heddle.trace.plots import axes_for, plot_memory, plot_timeline

        several = axes_for(axes, 2)
        plot_timeline(self.trace, several[0], [f"stage {stage}" for stage in range(self.plan.pipeline)])
        stages = [{name: float(value) for name, value in each._asdict().items()} for each in self.memory]
        plot_memory(stages, self.limit, several[1])
        return several

    @cached_property
    def trace(self) -> Trace:
        """The step on a clock, drawn when it is first looked at: a search prices many plans and draws few."""
        return self.timeline()

    @property
    def steps_drawn(self) -> int:
        """Steps that the trace shows: several where a pipeline does not drain after each."""
        last = max((span.microbatch for span in self.trace.spans), default=0)
        return 1 + last // self.plan.microbatches(self.job.train.global_batch)

    @property
    def plan(self) -> Plan:
        """The plan, its stages written out."""
        return self.job.plan

    @property
    def tokens_per_second(self) -> float:
        """Of all devices together."""
        return self.job.tokens_per_step / self.step_seconds

    @property
    def mfu(self) -> float:
        """Model FLOPs over what the devices could do, attention counted over its full square: see `Job.mfu`."""
        return self.job.mfu(self.step_seconds, self.peak)

    @property
    def mfu_causal(self) -> float:
        """The same with attention counted as far as its causal mask goes."""
        return self.job.mfu(self.step_seconds, self.peak, causal=True)

    @property
    def hfu(self) -> float:
        """The same with recomputed FLOPs counted."""
        model, plan, s = self.job.model, self.plan, self.job.sequence
        samples = self.job.train.global_batch
        again = 0
        for layers in chunk_layers(model, plan):
            for kind, count in layers:
                shape = model.shapes[kind.shape]
                of_one = {"selective": shape.core_flops(s), "full": shape.forward_flops(s)}
                again += count * of_one.get(kind.recompute, 0)
        return (self.job.flops() + samples * float(again)) / (self.step_seconds * self.peak)

    @property
    def predicted(self) -> Predicted:
        """In short, as a job file keeps it."""
        return Predicted(
            step_seconds=self.step_seconds,
            tokens_per_second=self.tokens_per_second,
            mfu=self.mfu,
            bubble=self.bubble,
            worst_stage_gib=self.worst / GIB,
            budget_gib=self.limit / GIB,
        )

    @cached_property
    def error_bar(self) -> ErrorBar | None:
        """How far off predictions were of runs like this one; None where none was measured, as over unequal links."""
        if self.network is not None:
            return None
        profile = (self.cluster.software or HEDDLE).profile
        return error_bar(kind_of(self.cluster.device, profile, self.plan.context, self.plan.zero, 0))

    @property
    def peak(self) -> float:
        """FLOP/s of all its devices together that utilization is held against."""
        return peak_of(self.plan, self.cluster, self.network, self.job.precision)

    def days(self, tokens: float) -> float:
        """Days to learn from that many tokens (PTD-P Eq. 4, with the predicted instead of an assumed throughput)."""
        return tokens / self.tokens_per_second / 86_400

    def expected(
        self, tokens: float, device_hours: float, restart: float = 600.0, checkpoint: float | None = None
    ) -> ExpectedRun:
        """The same with failures: of one device every so many hours; a restart and a checkpoint take seconds.

        Without it, a checkpoint is every rank's part of weights and optimizer, written to a disk.
        """
        if checkpoint is None:
            share = self.job.model.parameters * STATES / self.plan.world
            checkpoint = share / (1e9 * (self.cluster.device.disk_gbs or DISK_GBS))
        reliability = Reliability(device_hours, restart, checkpoint)
        return expected_run(86_400 * self.days(tokens), self.plan.world, reliability)

    def dollars(self, tokens: float, price: float) -> float:
        """What that costs at so much per device-hour."""
        return self.days(tokens) * 24 * self.plan.world * price

    @property
    def limit(self) -> float:
        """Bytes of a device; where they differ, of one of the fullest stage."""
        return self.verdict.device.memory_gib * GIB

    @cached_property
    def verdict(self) -> MemoryVerdict:
        """Whether every stage fits into its devices, and what the fullest needs."""
        return verdict(self.memory, self.cluster.device) if self.network is None else self.network.verdict(self.memory)

    @property
    def fits(self) -> bool:
        """Whether every stage fits into its devices."""
        return self.verdict.fits

    @property
    def outside(self) -> Outside | None:
        """What a GPU holds beside tensors, which the slack has to have room for; None on CPUs."""
        return outside(self.plan, self.verdict.device, self.job.model.tied)

    @property
    def fullest(self) -> int:
        """The stage whose devices hold most."""
        return self.verdict.stage

    @property
    def worst(self) -> float:
        """Bytes of one device of the fullest stage."""
        return self.verdict.needs

    @cached_property
    def memory_curves(self) -> list[Curve]:
        """Bytes of one rank of each stage over the step, temporary ones aside."""
        always = [breakdown.weights + breakdown.gradients + breakdown.optimizer for breakdown in self.memory]
        return memory_curves(self.trace, self.left.saved, always, self.left.owed)

    def check_fits(self) -> None:
        """Say by how much, and on which stage, a plan is too large for its cluster."""
        if self.fits:
            return
        too_full = sum(not bytes_fit(float(breakdown.total), self.verdict.device) for breakdown in self.memory)
        raise HeddleError(
            f"The plan does not fit: {self.verdict}.",
            f"{too_full} of {len(self.memory)} stages are too full; "
            f"most of stage {self.fullest} is {_largest(self.memory[self.fullest])}.",
            "Recompute more, split further (tensor, pipeline), shard more (zero), or use a smaller microbatch.",
        )

    def to_json(self) -> dict[str, Any]:
        """Everything as plain data, with the keys that `heddle simulate --json` prints."""
        return {
            "precision": self.job.precision,
            "software": str(self.cluster.software or HEDDLE),
            "step_seconds": self.step_seconds,
            **({} if self.error_bar is None else self.error_bar.to_json()),
            "tokens_per_second": self.tokens_per_second,
            "mfu": self.mfu,
            "mfu_causal": self.mfu_causal,
            "hfu": self.hfu,
            "bubble": self.bubble,
            "breakdown": self.breakdown._asdict(),
            "memory": [
                {
                    "stage": number,
                    **{f"{name}_gib": float(value) / GIB for name, value in breakdown._asdict().items()},
                    "total_gib": float(breakdown.total) / GIB,
                    "limit_gib": self.limit / GIB,
                }
                for number, breakdown in enumerate(self.memory)
            ],
            "outside_gib": 0.0 if self.outside is None else self.outside.bytes / GIB,
            "fits": self.fits,
        } | ({} if self.network is None else {"links": [use._asdict() for use in link_uses(self.network)]})


def simulate(job: Job) -> Simulation:
    """Predict a training step of a job: how long it takes, where the time goes, what each stage holds.

    The cluster must state how fast its devices multiply and how fast their memory is; presets do.
    """
    found = _simulate(job, only_if_it_fits=False)
    assert found is not None
    return found


def simulate_if_fits(job: Job) -> Simulation | None:
    """The same for searches: None for a plan that does not fit, which is known before anything is replayed."""
    return _simulate(job, only_if_it_fits=True)


def fits(job: Job) -> bool:
    """Whether every stage of a job's plan fits into its devices: nothing is replayed."""
    planned, cluster, work = _placed(job)
    plan = planned.plan
    if job.network is None and plan.late is None and plan.check_step == "before":
        return every_stage_fits(planned, plan, work, plan.order_of_work(job.train.global_batch), cluster)
    held, over = _held(job)[4], None if job.network is None else OverNetwork(planned, job.network)
    return (verdict(held, cluster.device) if over is None else over.verdict(held)).fits


def _placed(job: Job) -> tuple[PlannedJob, Cluster, Work]:
    """A job with its plan, the machine that it fits on, and its work there."""
    if job.plan is None:
        raise HeddleError(
            "The job has no plan.",
            "The time of a step depends on how it is split.",
            "Use heddle.plan(job).best, the simulation of its best plan, or `heddle plan JOB.toml -o PLAN.toml`.",
        )
    job = job.planned
    cluster = machine_for(job.cluster, (plan := job.plan).world)
    if plan.world > cluster.world:
        whose, hint = f"cluster '{cluster.name}'", f"Set cluster.nodes = {-(-plan.world // cluster.devices)}."
        if job.network is not None:
            whose, hint = "the network", "Add devices to the groups of the [network]."
        elif cluster.device.host:
            hint = f"Measure it with `heddle profile --processes {plan.world}`."
        what = f"The plan needs {plan.world} devices, but {whose} has {cluster.world}."
        raise HeddleError(what, f"{world_in_words(plan)}, and every rank needs a device.", hint)
    return job, cluster, work_of(job, cluster)


def _held(job: Job) -> tuple[PlannedJob, Cluster, Work, Schedule, tuple[MemoryBreakdown, ...], LeftBytes]:
    """The same with the order of work, what each stage holds, and what a microbatch leaves behind."""
    job, cluster, work = _placed(job)
    plan = job.plan
    late = late_schedule(job)
    if late is None:
        schedule = plan.order_of_work(job.train.global_batch)
        held, left = stage_memory(job, plan, work, schedule, cluster)
        return job, cluster, work, schedule, with_undo(held, plan, work.element), left
    schedule = late.unrolled(enough_steps(late))
    kept = replace(plan, recompute="full", layers=()) if late.rule.replays else plan  # inputs only
    held, left = stage_memory(replace(job, plan=kept), kept, work, schedule, cluster)
    return job, cluster, work, schedule, with_versions(held, late, job.model, plan), left


def _simulate(job: Job, only_if_it_fits: bool) -> Simulation | None:
    job, cluster, work, schedule, memory, left = _held(job)
    if job.network is not None and job.plan.world > 1:
        if job.plan.expert > 1:
            raise HeddleError(
                f"plan.expert = {job.plan.expert} is not predicted over a [network].",
                "Links that differ are priced for tensor, pipeline and data parallelism.",
                "Use expert = 1, or a [cluster] in place of the [network].",
            )
        return _over_network(OverNetwork(job, job.network), memory, left)
    if only_if_it_fits and not verdict(memory, cluster.device).fits:
        return None
    return _on_equal_devices(job, cluster, work, schedule, memory, left)


Memory: TypeAlias = tuple[MemoryBreakdown, ...]


def _on_equal_devices(
    job: PlannedJob, cluster: Cluster, work: Work, schedule: Schedule, memory: Memory, left: LeftBytes
) -> Simulation:
    plan = job.plan
    microbatches = plan.microbatches(job.train.global_batch)
    chunks = chunk_costs(job, plan, work, cluster)
    forward, backward = ([way.seconds for way in ways] for ways in zip(*chunks, strict=True))
    weight = [chunk.backward.weight for chunk in chunks]
    backward = backward if plan.late is None else with_replays(plan.late, forward, backward)
    busy = sum(microbatches * (f + b) for f, b in zip(forward, backward, strict=True)) / plan.pipeline
    scale = microbatches / plan.pipeline
    pace = 1.0
    if cluster.cores is None:
        pipe = pipeline_seconds(job, schedule, forward, backward, weight)
    else:
        each = ranks_per_stage(plan)
        pace = float(stage.pace(cluster, plan.world))
        rate: Callable[[int], float] = lambda stages: float(stage.pace(cluster, stages * each))  # noqa: E731
        trace = replay_shared(schedule, forward, backward, rate, weight)
        steps = schedule.microbatches / microbatches  # several where updates come late
        shared = sum(span.end - span.start for span in trace.spans) / plan.pipeline / steps
        busy, scale = shared, scale * shared / busy
        pipe = step_seconds(plan, trace)
        if (late := late_schedule(job)) is not None:
            pipe = steady_seconds(late, lambda each: replay_shared(each, forward, backward, rate, weight).duration)
    pipe = max(pipe, busy)  # but for rounding it never is shorter
    data, update = step_tail_seconds(job, work, cluster, pipe, microbatches, backward)
    data, update = data / pace, update / pace
    step, slowdown = pipe + data + update, float(stage.slowdown(cluster, work))
    sums = {name: scale * value for name, value in not_compute(chunks).items()}
    breakdown = Breakdown(
        compute=busy - sum(sums.values()),
        **sums,
        data=data,
        optimizer=update,
        bubble=pipe - busy,
        jitter=(slowdown - 1) * step,
    )

    def drawn() -> Trace:
        actions = replay(schedule, forward, backward, weight=weight) if cluster.cores is None else trace
        whole = int(work.tokens * work.hidden * work.element)
        sizes = Sizes(message=whole // plan.tensor, activations=whole)
        return timeline(actions, schedule, plan, chunks, Tail(actions.duration, data, update), sizes, job.model.tied)

    return Simulation(job, cluster, slowdown * step, breakdown, pipe / busy - 1, memory, left, drawn)


def _over_network(priced: OverNetwork, memory: tuple[MemoryBreakdown, ...], left: LeftBytes) -> Simulation:
    """The same where links and devices differ."""
    breakdown, bubble = network_breakdown(priced)
    drawn = partial(network_timeline, priced)
    return Simulation(priced.job, priced.cluster, priced.step.seconds, breakdown, bubble, memory, left, drawn, priced)


def _largest(breakdown: MemoryBreakdown) -> str:
    return max(breakdown._fields, key=lambda name: float(getattr(breakdown, name)))

"""One plan, exactly: its schedule replayed with its costs, its memory stage by stage."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from heddle.cost import compute, memory, network, stage
from heddle.cost.memory import Bill
from heddle.cost.work import Work, recomputing, work_of
from heddle.errors import HeddleError
from heddle.schedule import Kind, Schedule, build
from heddle.simulate.closed_form import Breakdown
from heddle.simulate.events import replay
from heddle.simulate.memory_curve import Curve, memory_curves
from heddle.simulate.shared import replay_shared
from heddle.spec.cluster import GIB, Cluster
from heddle.spec.job import Job
from heddle.spec.plan import Plan
from heddle.trace.trace import Span, Trace


@dataclass(frozen=True)
class Simulation:
    """What a step of a job takes and holds, before anything is spent.

    `trace` has one rank for each pipeline stage: tensor ranks and replicas do the same at the same time.
    """

    job: Job
    cluster: Cluster
    step_seconds: float
    breakdown: Breakdown  # seconds, as a mean over ranks; they add up to the step
    bubble: float  # idle over ideal time of the pipeline (PTD-P §2.2.1)
    memory: tuple[Bill, ...]  # of one rank of each stage
    saved: tuple[float, ...]  # bytes that a microbatch leaves in each chunk
    trace: Trace

    @property
    def plan(self) -> Plan:
        """The plan, its stages written out."""
        assert self.job.plan is not None
        return self.job.plan

    @property
    def tokens_per_second(self) -> float:
        """Of all devices together."""
        return self.job.tokens_per_step / self.step_seconds

    @property
    def mfu(self) -> float:
        """Model FLOPs over what the devices could do: recomputation does not count (arXiv 2205.05198 §6.3)."""
        return self._utilisation(self.job.model.flops(self.job.train.global_batch, self.job.sequence))

    @property
    def hfu(self) -> float:
        """The same with recomputed FLOPs counted."""
        model, plan, s = self.job.model, self.plan, self.job.sequence
        samples = self.job.train.global_batch
        once = model.flops(samples, s)
        forward = (model.flops(samples, s, recompute=True) - once) / model.layers
        core = 4.0 * samples * s * min(s, model.window or s) * model.heads * model.head_size
        words = [plan.recompute_of(layer) for layer in range(model.layers)]
        return self._utilisation(once + words.count("full") * forward + words.count("selective") * core)

    def _utilisation(self, flops: float) -> float:
        peak = compute.peak_flops(self.cluster, self.job.train.precision)
        return flops / (self.step_seconds * self.plan.world * peak)

    def days(self, tokens: float) -> float:
        """Days to learn from that many tokens (PTD-P Eq. 4, with the predicted instead of an assumed throughput)."""
        return tokens / self.tokens_per_second / 86_400

    @property
    def limit(self) -> float:
        """Bytes of a device."""
        return self.cluster.device.memory_gib * GIB

    @property
    def fits(self) -> bool:
        """Whether every stage fits into its devices."""
        return all(bill.total <= self.limit for bill in self.memory)

    @cached_property
    def memory_curves(self) -> list[Curve]:
        """Bytes of one rank of each stage over the step, temporary ones aside."""
        always = [bill.weights + bill.gradients + bill.optimizer for bill in self.memory]
        return memory_curves(self.trace, self.saved, always)

    def check_fits(self) -> None:
        """Say by how much, and on which stage, a plan is too large for its cluster."""
        needs = [float(bill.total) for bill in self.memory]
        worst = max(range(len(needs)), key=needs.__getitem__)
        if self.fits:
            return
        over, device = needs[worst] - self.limit, self.cluster.device
        too_full = sum(need > self.limit for need in needs)
        raise HeddleError(
            f"The plan does not fit: stage {worst} needs {needs[worst] / GIB:.2f} GiB, {over / GIB:.2f} GiB more than "
            f"the {device.memory_gib:g} GiB of {device.name}.",
            f"{too_full} of {len(needs)} stages are too full; most of stage {worst} is {_largest(self.memory[worst])}.",
            "Recompute more, split further (tensor, pipeline), share more (zero), or use a smaller microbatch.",
        )

    def to_json(self) -> dict[str, Any]:
        """Everything as plain data, with the keys that `heddle simulate --json` prints."""
        return {
            "step_seconds": self.step_seconds,
            "tokens_per_second": self.tokens_per_second,
            "mfu": self.mfu,
            "hfu": self.hfu,
            "bubble": self.bubble,
            "breakdown": self.breakdown._asdict(),
            "memory": [
                {
                    "stage": number,
                    **{f"{name}_gib": float(value) / GIB for name, value in bill._asdict().items()},
                    "total_gib": float(bill.total) / GIB,
                    "limit_gib": self.limit / GIB,
                }
                for number, bill in enumerate(self.memory)
            ],
            "fits": self.fits,
        }


def simulate(job: Job) -> Simulation:
    """Predict a training step of a job: how long it takes, where the time goes, what each stage holds.

    The cluster must state how fast its devices multiply and how fast their memory is; presets do.

    >>> import heddle
    >>> from heddle.spec import load_job
    >>> job = load_job("examples/plans/gpt3-175b.toml")
    >>> prediction = heddle.simulate(job)
    >>> prediction.fits
    True
    >>> 0.4 < prediction.mfu < 0.6
    True
    """
    job = job.planned
    plan = job.plan
    assert plan is not None
    cluster = job.cluster or _this()
    if plan.world > cluster.world:
        nodes = -(-plan.world // cluster.devices)
        raise HeddleError(
            f"The plan needs {plan.world} devices, cluster '{cluster.name}' has {cluster.world}.",
            f"tensor {plan.tensor} × pipeline {plan.pipeline} × data {plan.data} ranks need a device each.",
            f"Set cluster.nodes = {nodes}.",
        )
    work = work_of(job)
    if cluster.device.host:  # PyTorch has no fused RMSNorm there
        work = replace(work, eager=int(job.model.norm == "rmsnorm"))
    microbatches = plan.microbatches(job.train.global_batch)
    schedule = build(plan.schedule, plan.pipeline, microbatches, plan.virtual)
    forward, backward, parts = _chunk_costs(job, plan, work, cluster)
    busy = sum(microbatches * (f + b) for f, b in zip(forward, backward, strict=True)) / plan.pipeline
    scale = microbatches / plan.pipeline
    pace = 1.0
    if cluster.cores is None:
        trace = replay(schedule, forward, backward)
    else:
        each = plan.tensor * plan.data  # ranks of a stage
        pace = float(stage.pace(cluster, plan.world))
        trace = replay_shared(schedule, forward, backward, lambda stages: float(stage.pace(cluster, stages * each)))
        shared = sum(span.end - span.start for span in trace.spans) / plan.pipeline
        busy, scale = shared, scale * shared / busy
    pipe = trace.duration
    bills, saved = _bills(job, plan, work, schedule, cluster)
    data, update = _tail(plan, work, cluster, pipe, microbatches, backward)
    data, update = data / pace, update / pace
    late = float(stage.slowdown(cluster, work))
    sums = {name: scale * value for name, value in parts.items()}
    breakdown = Breakdown(
        compute=busy - sum(sums.values()),
        **sums,
        data=data,
        optimizer=update,
        bubble=pipe - busy,
        jitter=(late - 1) * (pipe + data + update),
    )
    for rank in range(plan.pipeline):
        if data > 0:
            trace.spans.append(Span(rank, "data", "exchange", pipe, pipe + data))
        trace.spans.append(Span(rank, "optimizer", "update", pipe + data, pipe + data + update))
    return Simulation(
        job=job,
        cluster=cluster,
        step_seconds=late * (pipe + data + update),
        breakdown=breakdown,
        bubble=pipe / busy - 1,
        memory=bills,
        saved=saved,
        trace=trace,
    )


def _this() -> Cluster:
    from heddle.spec.this import this_machine

    return this_machine()


def _chunk_costs(
    job: Job, plan: Plan, work: Work, cluster: Cluster
) -> tuple[list[float], list[float], dict[str, float]]:
    """Seconds of one microbatch through each chunk, both ways, and what part of all chunks' is not compute."""
    price = stage.layer_cost(cluster, work)
    again = {word: float(stage.again(recomputing(work, word), price)) for word in ("none", "selective", "full")}
    repeated = stage.layer_cost(cluster, recomputing(work, "full"))
    again["full"] = float(repeated.again_full)
    ends = compute.embedding(cluster, work), compute.head(cluster, work)
    send = float(network.between_stages(cluster, work))
    forward, backward = [], []
    parts = {"recompute": 0.0, "tensor": 0.0, "pipeline": 0.0}
    for chunk in range(plan.chunks):
        layers = plan.layers_of(chunk, job.model.layers)
        words = [plan.recompute_of(layer) for layer in layers]
        repeat = sum(again[word] for word in words)
        is_first, is_last = chunk == 0, chunk == plan.chunks - 1
        there, back = len(layers) * float(price.forward), len(layers) * float(price.backward) + repeat
        for at_end, (f, b) in zip((is_first, is_last), ends, strict=True):
            there, back = there + at_end * float(f), back + at_end * float(b)
        forward.append(there + send * (not is_last))
        backward.append(back + send * (not is_first))
        in_tensor = words.count("full") * float(repeated.tensor_again)
        parts["recompute"] += repeat - in_tensor
        parts["tensor"] += len(layers) * float(price.tensor_forward + price.tensor_backward) + in_tensor
        parts["pipeline"] += send * (2 - is_first - is_last)
    return forward, backward, parts


def _tail(
    plan: Plan, work: Work, cluster: Cluster, pipe: float, microbatches: int, backward: list[float]
) -> tuple[float, float]:
    """Seconds that replicas' communication adds to a step, and those of the optimizer, on the stage that has most."""
    held = [_parameters(plan, work, rank) for rank in range(plan.pipeline)]
    most = max(held)
    each = stage.shard_exchange(cluster, work, most)
    once = stage.data_exchange(cluster, work, most)
    last = sum(backward[chunk] for chunk in range(0, plan.chunks, plan.pipeline))
    data = microbatches * (each - stage.hidden(cluster, each, pipe / microbatches))
    data = data + once - work.data_overlap * stage.hidden(cluster, once, last)
    shared = plan.data if plan.zero else 1
    return float(data), float(compute.optimizer(cluster, most / shared, work.element))


def _parameters(plan: Plan, work: Work, rank: int) -> float:
    """Parameters of one rank of a stage."""
    layers = sum(plan.stages[rank :: plan.pipeline])
    ends = memory.end_parameters(work, rank == 0, rank == plan.pipeline - 1)
    return float(layers * memory.layer_parameters(work) + ends)


def _bills(
    job: Job, plan: Plan, work: Work, schedule: Schedule, cluster: Cluster
) -> tuple[tuple[Bill, ...], tuple[float, ...]]:
    """What one rank of each stage holds at its peak, and what a microbatch leaves in each chunk."""
    kept = memory.layer_activations(work)
    bytes_of = {"none": float(kept.none), "selective": float(kept.selective), "full": float(kept.full)}
    left, briefly = (float(value) for value in memory.end_activations(work))
    saved, moments = [], []
    for chunk in range(plan.chunks):
        words = [plan.recompute_of(layer) for layer in plan.layers_of(chunk, job.model.layers)]
        is_last = chunk == plan.chunks - 1
        saved.append(sum(bytes_of[word] for word in words) + is_last * left)
        moments.append(max([bytes_of["none"] - bytes_of[word] for word in words] + [is_last * briefly]))
    bills = []
    for rank, order in enumerate(schedule.ranks):
        held = most = 0.0
        for kind, chunk, _ in order:
            held += saved[chunk] if kind is Kind.FORWARD else -saved[chunk]
            most = max(most, held)
        layer = float(memory.layer_parameters(work))
        largest = max(layer, float(work.padded_vocab * work.hidden))
        weights, gradients, optimizer, gathered = (
            float(value) for value in memory.states(work, _parameters(plan, work, rank), largest)
        )
        buffers = max(moments[rank :: plan.pipeline]) + gathered + float(memory.exchange_buffers(work))
        bill = Bill(weights, gradients, optimizer, most, buffers, 0.0)
        bills.append(replace_slack(bill, cluster))
    return tuple(bills), tuple(saved)


def replace_slack(bill: Bill, cluster: Cluster) -> Bill:
    """The bill with what the allocator adds to it."""
    return bill._replace(slack=memory.slack(cluster, bill.total))


def _largest(bill: Bill) -> str:
    return max(bill._fields, key=lambda name: float(getattr(bill, name)))

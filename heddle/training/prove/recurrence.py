"""Delayed updates as their papers write them, on one device: what a distributed run of such a plan is held against.

With d(k) the delay of chunk k of K, in iteration t

    w_k(t+1) = w_k(t) - rate(t) · ∇_k f(w(t - d(k)); x(t - d(k)))          nothing while t - d(k) < o

where o is the first late iteration. The first of a run is not late, nor are those of the warm-up, nor is the first
after a checkpoint or an evaluation, before which everything that is under way is applied.

Gradients are those of the whole model at the weights of an earlier iteration; each chunk applies the one that is due.
With replay a chunk instead goes through its old input at its newest weights, and hands the gradient of that input to
the chunk before, which uses it one iteration later. Nothing here knows of pipelines, messages or versions in memory.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.func import functional_call

from heddle.data import Trained, samples_of
from heddle.models import Microbatch, Transformer, initialize
from heddle.models.random import token_keys
from heddle.parallel.context.held import Held
from heddle.parallel.mesh import Axis
from heddle.runtime.device import DTYPES
from heddle.schedule.late import LateSchedule
from heddle.spec.job import PlannedJob
from heddle.training.step.learning_rate import learning_rate

Gradients = dict[str, Tensor]


@dataclass(frozen=True)
class RecurrenceResult:
    """What came of it."""

    losses: list[float]
    norms: list[float]  # of the gradients that each iteration applied
    weights: dict[str, Tensor]
    first: Gradients  # what each parameter's first update saw


class Recurrence:
    """A model in chunks, the old gradients that wait, and an optimizer for each chunk."""

    def __init__(self, job: PlannedJob, late: LateSchedule) -> None:
        self.job, self.late = job, late
        model, plan = job.model, job.plan
        last = late.chunks - 1
        self.chunks = [
            Transformer(model, plan.layers_of(k, model.layers), first=k == 0, last=k == last)
            for k in range(late.chunks)
        ]
        for chunk in self.chunks:
            initialize(chunk, job.train.seed)
        self.tied = model.tied
        if self.tied and last > 0:  # the output's part of the gradient and the input's are not of the same age
            head = self.chunks[-1].head
            assert head is not None
            embed = self.chunks[0].embed
            assert embed is not None
            head.weight.data.copy_(embed.tokens.weight.data)
        self.optimizers = [self._optimizer(k) for k in range(late.chunks)]
        self.waiting: dict[int, dict[int, Gradients]] = defaultdict(dict)  # by chunk and step
        self.inputs: dict[tuple[int, int], Tensor] = {}
        self.deltas: dict[tuple[int, int], Tensor] = {}
        self.updates: dict[Tensor, list[Tensor]] = {}  # of each parameter, for feedback

    def _optimizer(self, chunk: int) -> torch.optim.AdamW:
        train = self.job.train
        named = self._named(chunk)
        decay = [p for _, p in named if p.dim() > 1]
        others = [p for _, p in named if p.dim() == 1]
        groups = [{"params": decay, "weight_decay": train.weight_decay}, {"params": others, "weight_decay": 0.0}]
        return torch.optim.AdamW(groups, lr=train.learning_rate, eps=train.epsilon, fused=True)

    def _named(self, chunk: int) -> list[tuple[str, nn.Parameter]]:
        """A chunk's parameters; a tied output layer is updated with the embedding."""
        copy = "head.weight" if self.tied and len(self.chunks) > 1 and chunk == len(self.chunks) - 1 else None
        return [(name, p) for name, p in self.chunks[chunk].named_parameters() if name != copy]

    def run(self, tokens: Trained, drained: Collection[int] = ()) -> RecurrenceResult:
        """All iterations of the job; `drained` says after how many there is a checkpoint, or an evaluation."""
        losses, norms = [], []
        first: Gradients = {}
        fresh = 0  # the iteration that follows a state with nothing under way: it is never late
        for t in range(self.job.train.steps):
            if t in drained:
                self._drain(t, tokens, first)
                fresh = t
            ids, targets, batch = self._batch(tokens, t)
            late = t >= self.job.train.delay_warmup and t > fresh
            replays = late and self.late.rule.replays
            losses.append(self._forward(t, ids, targets, batch, replays))
            if replays:
                for k in reversed(range(len(self.chunks))):
                    self._replay(k, t - self.late.delays[k], tokens)
            norms.append(self._apply(t, late, first))
        return RecurrenceResult(losses, norms, self.weights(), first)

    def weights(self) -> dict[str, Tensor]:
        """As they are now."""
        return {name: p.detach().clone() for k in range(len(self.chunks)) for name, p in self._named(k)}

    def _batch(self, tokens: Trained, step: int) -> tuple[Tensor, Tensor, Microbatch]:
        job, count = self.job, self.job.train.global_batch
        samples = samples_of(tokens, job.sequence, job.train.seed)
        ids, targets = (torch.from_numpy(part).flatten() for part in samples.batch(step * count, count))
        numbers = torch.arange(step * count, (step + 1) * count)
        keys = token_keys(job.train.seed, numbers, job.sequence) if job.model.dropout else None
        lengths = samples.lengths_of(range(step * count, (step + 1) * count))
        batch = Held(job.sequence, Axis(), ids.device).microbatch(lengths)
        return ids, targets, replace(batch, keys=keys, count=samples.targets(step * count, count))

    def _forward(self, t: int, ids: Tensor, targets: Tensor, batch: Microbatch, replays: bool) -> float:
        """Through all chunks at their newest weights; without replay, back again at the same."""
        x = ids
        for k in range(len(self.chunks)):
            self.inputs[k, t] = x.detach()
            x = self._through(k, x, replace(batch, targets=targets) if k == len(self.chunks) - 1 else batch)
        if not replays:
            x.backward()
            for k in range(len(self.chunks)):
                self.waiting[k][t] = self._taken(k)
                del self.inputs[k, t]
        return float(x.detach())

    def _through(self, chunk: int, x: Tensor, batch: Microbatch) -> Tensor:
        """A chunk computes in the job's precision; its weights are masters, and so are their gradients."""
        low = {name: p.to(DTYPES[self.job.storage]) for name, p in self.chunks[chunk].named_parameters()}
        y: Tensor = functional_call(self.chunks[chunk], low, (x, batch))
        return y

    def _taken(self, chunk: int) -> Gradients:
        """A chunk's gradients, taken off its parameters."""
        found = {name: p.grad for name, p in self.chunks[chunk].named_parameters() if p.grad is not None}
        for p in self.chunks[chunk].parameters():
            p.grad = None
        return found

    def _replay(self, k: int, step: int, tokens: Trained) -> None:
        """An old input at the newest weights."""
        if step < 0:
            return
        _, targets, batch = self._batch(tokens, step)
        if (k, step) not in self.inputs:  # of the warm-up, and gone back long ago
            return
        x = self.inputs.pop((k, step))
        if k:
            x.requires_grad_()
        last = k == len(self.chunks) - 1
        y = self._through(k, x, replace(batch, targets=targets) if last else batch)
        y.backward(None if last else self.deltas.pop((k + 1, step)))
        if k:
            assert x.grad is not None
            self.deltas[k, step] = x.grad
        self.waiting[k][step] = self._taken(k)

    def _apply(self, t: int, late: bool, first: Gradients) -> float:
        """Every chunk's due gradient, clipped by the norm of what its rank applies; of all, where none are late."""
        last = len(self.chunks) - 1
        delays = self.late.delays if late else (0,) * len(self.chunks)
        due = [self.waiting[k].pop(t - d, {}) for k, d in enumerate(delays)]
        if self.tied and last > 0 and "head.weight" in due[last]:
            embedding = due[0].setdefault("embed.tokens.weight", torch.zeros_like(due[last]["head.weight"]))
            embedding += due[last].pop("head.weight")
        total = 0.0
        everything = tuple(range(len(self.chunks)))
        for own in [self.late.chunks_of(rank) for rank in range(self.late.pipeline)] if late else [everything]:
            total += self._step(t, own, due, delays, first)
        self._tie()
        return float(total**0.5)

    def _step(self, t: int, own: Iterable[int], due: list[Gradients], delays: Sequence[int], first: Gradients) -> float:
        """What one rank applies, clipped by its norm; returns the square of that."""
        train = self.job.train
        squared = sum(float(g.double().square().sum()) for k in own for g in due[k].values())
        divisor = max(1.0, squared**0.5 / train.clip) if train.clip else 1.0
        for k in own:
            named = dict(self._named(k))
            for name, gradient in due[k].items():
                first.setdefault(name, gradient.clone())
                named[name].grad = gradient / divisor
            self._correct(k, t, delays[k])
            self._update(k, delays[k])
            self.optimizers[k].zero_grad()
        return squared

    def _tie(self) -> None:
        if self.tied and len(self.chunks) > 1:
            self.chunks[-1].head.weight.data.copy_(self.chunks[0].embed.tokens.weight.data)  # type: ignore[union-attr]

    def _drain(self, t: int, tokens: Trained, first: Gradients) -> None:
        """Apply what is under way before iteration t, oldest first, chunk by chunk from the last: each at the rate of
        the iteration in which it would have been. Corrections begin anew, and every parameter has seen t updates.
        """
        delays = self.late.delays
        for k in reversed(range(len(self.chunks))):
            for step in range(t - delays[k], t):
                if self.late.rule.replays:
                    self._replay(k, step, tokens)
                if step in self.waiting[k]:
                    due = [self.waiting[k].pop(step) if each == k else {} for each in range(len(self.chunks))]
                    self._step(step + delays[k], [k], due, delays, first)
        self._tie()
        self.updates.clear()
        for optimizer in self.optimizers:
            for state in optimizer.state.values():
                state["step"].fill_(t)

    def _correct(self, k: int, t: int, delay: int) -> None:
        """The rate and the momentum of a chunk's next step."""
        correction, beta1 = self.job.train.delay_correction, self.job.train.beta1
        rate = learning_rate(self.job.train, min(t, self.job.train.steps - 1))
        if correction == "rate" and delay:
            rate = rate / delay
        if correction == "beta1" and delay:
            beta1 = 0.0
        if correction == "nesterov" and delay and 1 - 3 / (t + 1) > beta1:
            beta1 = min(beta1 ** (1 / (delay + 1)), 1 - 3 / (t + 1))
        for group in self.optimizers[k].param_groups:
            group["lr"], group["betas"] = rate, (beta1, self.job.train.beta2)

    @torch.no_grad()
    def _update(self, k: int, delay: int) -> None:
        """A chunk's own AdamW, and what a correction that looks at its steps makes of them."""
        adam, correction = self.optimizers[k], self.job.train.delay_correction
        due = [(group, p, p.clone()) for group in adam.param_groups for p in group["params"] if p.grad is not None]
        adam.step()
        for group, p, old in due if delay else ():
            if correction == "feedback":
                update = old - p
                before = self.updates.setdefault(p, [])
                before.append(update)
                if len(before) > delay:
                    p.copy_(old - (update + update - before.pop(0)))
            elif correction == "nesterov":
                state, (beta1, beta2) = adam.state[p], group["betas"]
                t = float(state["step"])
                share = min((delay + 1) * (1 - beta1), 1.0)
                ahead = (1 - share) / (1 - beta1 ** (t + 1)) * state["exp_avg"] + share / (1 - beta1**t) * p.grad
                scale = (state["exp_avg_sq"] / (1 - beta2**t)).sqrt() + group["eps"]
                p.copy_(old * (1 - group["lr"] * group["weight_decay"]) - group["lr"] * ahead / scale)

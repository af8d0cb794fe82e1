"""The step that sites take together: DiLoCo among whoever is there; a new one takes its state from a live site.

A meeting counts for all or for none (`heddle.train.sites.place`), so a site that dies changes nobody's weights. What is
sent is kept until it counts: a repeated meeting starts from the same differences.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from heddle.checkpoint.checkpoint import ADAM, state_of
from heddle.errors import HeddleError
from heddle.parallel.codecs import CODECS
from heddle.parallel.collectives import start_sum_numbers
from heddle.parallel.mesh import Mesh
from heddle.parallel.shards import Kept, Piece
from heddle.spec.job import PlannedJob
from heddle.spec.tables import to_table
from heddle.train.sites.member import Member, exchange
from heddle.train.sites.wire import LostError
from heddle.train.step.optimizer import Optimizer


class SiteStep:
    """One rank of a site: where all were last, the outer momentum, and what is yet to be said."""

    def __init__(self, job: PlannedJob, mesh: Mesh, optimizer: Optimizer) -> None:
        train, plan = job.train, job.plan
        self.pieces, self.optimizer = optimizer.pieces, optimizer
        self.every, self.last = train.meet_every, train.steps
        self.rate, self.momentum = train.outer_learning_rate, train.outer_momentum
        self.codec = CODECS.get(plan.compress_gradients)
        count = sum(piece.master.numel() for piece in self.pieces)
        self.before, self.velocity, self.residual = (torch.zeros(count) for _ in range(3))
        words = json.dumps([to_table(job.model), to_table(replace(plan, devices=()))], sort_keys=True)
        assert train.meeting is not None
        digest = hashlib.sha256(words.encode()).hexdigest()
        self.member = Member(train.meeting, train.site, digest, mesh)
        self.step = 0  # of the trainer, which sets it before a meeting and reads it after
        self.place: int | None = None  # which share of all samples is next for this site; None: it has not joined
        self.met = 0  # sites at the last meeting
        self.giving: list[threading.Thread] = []
        self.begin()

    def due(self, step: int) -> bool:
        """Whether sites meet after so many steps; a run's last one is a meeting."""
        return step % self.every == 0 or step == self.last

    def join(self, step: int) -> None:
        """Come to the others: begin with them, or take over what a live one has."""
        self.step = step
        word = self.member.hello(step)
        while "start" not in word and not self._taken(word):
            word = self.member.heard()
        self.place = int(word["place"])

    @torch.no_grad()
    def begin(self) -> None:
        """All sites have these weights: that is where the next steps start from."""
        for piece, before in self._beside(self.before):
            before.copy_(piece.master.flatten())

    @torch.no_grad()
    def meet(self) -> None:
        """Average what was learned since the last meeting, among all who are there, and go on from the same weights."""
        for thread in self.giving:
            thread.join(self.member.wait)
        self.giving.clear()
        meant = self.residual + self.before
        for piece, part in self._beside(meant):
            part.sub_(piece.master.flatten())
        self.member.say({"ready": self.step, "last": self.last})
        word, found = self.member.heard(), None
        while "meet" in word:
            found = self._tried(word, meant)
            self.member.say({"done": word["meet"], "well": found is not None})
            word = self.member.heard()
        while "late" in word or "take" in word:  # the others went on: what was learned since is lost
            if self._taken(word):
                self.place = int(word["place"])
                return
            word = self.member.heard()
        assert found is not None, "a meeting counts only where it went well"
        mean, self.residual = found
        self.velocity.mul_(self.momentum).add_(mean)
        self.before.sub_(mean.add(self.velocity, alpha=self.momentum), alpha=self.rate)
        self._fill()
        self.place, self.met = int(word["place"]), int(word["met"])
        if word["give"]:
            state = list(self._state())
            for addresses in word["give"]:
                self.giving.append(threading.Thread(target=self._give, args=(addresses, state), daemon=True))
                self.giving[-1].start()

    def agree(self, loss: Tensor, asked: Tensor) -> tuple[Tensor, Tensor]:
        """The mean loss over this site's replicas, and how many of them were asked to stop since the last meeting."""
        data = self.member.mesh.data
        mean, stops = start_sum_numbers(torch.stack([loss / data.size, asked]), data).wait().unbind()
        asked.zero_()
        return mean, stops

    def _tried(self, word: dict[str, Any], meant: Tensor) -> tuple[Tensor, Tensor] | None:
        found = None
        with suppress(LostError):
            found = exchange(self.member, word, meant, self.codec)
        return found if self.member.all_well(found is not None) else None

    def _fill(self) -> None:
        for piece, before in self._beside(self.before):
            piece.master.copy_(before.view_as(piece.master))
            if piece.target is not None:
                piece.target.copy_(piece.master)

    def _state(self) -> Iterator[bytes]:
        """What a new site needs, as it is now: where all are, the outer momentum, this site's moments."""
        state_of(self.pieces, self.optimizer.adam, owned=False)  # which makes moments where there are none yet
        yield json.dumps({"step": self.step, "updates": self.optimizer.updates}).encode()
        moments = [
            torch.cat([self.optimizer.adam.state[piece.master][kind].flatten().float().cpu() for piece in self.pieces])
            for kind in ADAM
        ]
        for values in (self.before, self.velocity, *moments):
            yield values.numpy().tobytes()

    def _give(self, addresses: list[str], state: list[bytes]) -> None:
        try:
            channel = self.member.dial(addresses, {"state": True})
            for frame in state:
                channel.send(frame)
            channel.hear()  # that all of it has come
            channel.close()
        except LostError:
            pass  # who is to take it asks again

    @torch.no_grad()
    def _taken(self, word: dict[str, Any]) -> bool:
        """Take over a live site's state, if the meeting place says that one brings it now."""
        if "take" not in word:
            return False
        facts = None
        end = time.monotonic() + self.member.wait
        try:
            channel, why = self.member.accept(end)
            while "state" not in why:
                channel.close()
                channel, why = self.member.accept(end)
            facts = channel.hear()
            flat = [torch.frombuffer(channel.receive(4 * len(self.before)), dtype=torch.float32) for _ in range(4)]
            channel.say({"taken": True})
            channel.close()
        except (LostError, ValueError, RuntimeError):
            facts = None
        if not self.member.all_well(facts is not None and all(len(part) == len(self.before) for part in flat)):
            self.member.say({"ready": self.step, "last": self.last, "again": True})
            return False
        assert facts is not None
        self.before, self.velocity = flat[0].clone(), flat[1].clone()
        self.residual.zero_()
        state_of(self.pieces, self.optimizer.adam, owned=False)
        for kind, values in zip(ADAM, flat[2:], strict=True):
            for piece, part in self._beside(values):
                kept = self.optimizer.adam.state[piece.master]
                kept[kind].copy_(part.view_as(kept[kind]))
        self.step, self.optimizer.updates = int(facts["step"]), int(facts["updates"])
        for piece in self.pieces:
            self.optimizer.adam.state[piece.master]["step"].fill_(self.optimizer.updates)
        self._fill()
        return True

    def kept(self, _optimizer: Optimizer) -> list[Kept]:
        """What goes on with a run that is resumed."""
        found = []
        for flat, kind in ((self.velocity, "outer_momentum"), (self.residual, "outer_residual")):
            found += [Kept(replace(piece, master=part, target=None), kind) for piece, part in self._beside(flat)]
        return found

    def close(self) -> None:
        """Leave, once those who take this site's state have it."""
        for thread in self.giving:
            thread.join(self.member.wait)
        self.member.close()

    def _beside(self, flat: Tensor) -> Iterator[tuple[Piece, Tensor]]:
        at = 0
        for piece in self.pieces:
            yield piece, flat[at : at + piece.master.numel()]
            at += piece.master.numel()


def check_sites(job: PlannedJob) -> None:
    """Refuse what does not go with sites that come and go."""
    if job.train.meeting is None:
        return
    if job.plan.local_steps or job.plan.zero or job.plan.offload or job.plan.layers:
        raise HeddleError(
            "train.meeting cannot be combined with plan.local_steps, zero, offload or layers.",
            "Each site holds all weights and their state, and meets the others after train.meet_every steps.",
            "Leave them out of [plan].",
        )

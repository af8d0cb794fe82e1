"""The step that sites take together: DiLoCo among whoever is there; a new one takes its state from a live site.

A meeting counts for all or for none (`heddle.training.sites.place`), so a site that dies changes nobody's weights.
What is sent is kept until it counts: a repeated meeting starts from the same differences.
"""

from __future__ import annotations

import hashlib
import json
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor

from heddle.checkpoint.checkpoint import ADAM, state_of
from heddle.errors import HeddleError
from heddle.parallel.codecs import CODECS
from heddle.parallel.collectives import start_sum_numbers
from heddle.parallel.mesh import Mesh
from heddle.parallel.shards import Kept
from heddle.runs.folder import FREE
from heddle.runtime.recorder import NoRecorder
from heddle.spec.job import PlannedJob
from heddle.spec.tables import to_table
from heddle.training.outer.outer import Meetings, Reached
from heddle.training.outer.parcel import beside
from heddle.training.sites.member import Member, exchange
from heddle.training.sites.wire import LostError
from heddle.training.step.optimizer import Optimizer


class SiteStep(Meetings):
    """One rank of a site: where all were last, the outer momentum, and what is yet to be said."""

    def __init__(
        self, job: PlannedJob, mesh: Mesh, optimizer: Optimizer, recorder: NoRecorder, device: torch.device
    ) -> None:
        super().__init__(recorder, device)
        train, plan = job.train, job.plan
        self.pieces, self.optimizer = optimizer.pieces, optimizer
        self.every, self.last = train.meet_every, train.steps
        self.rate, self.momentum = train.outer_learning_rate, train.outer_momentum
        self.codec = CODECS.get(plan.compress_gradients)
        count = sum(piece.master.numel() for piece in self.pieces)
        self.before, self.velocity, self.residual = (torch.zeros(count) for _ in range(3))
        self.settings, self.samples = settings(job), train.meet_every * train.global_batch
        assert train.meeting is not None
        self.join_as = partial(Member, train.meeting, train.site, mesh)
        self.data = mesh.data
        self.step = 0  # of the trainer; another site may bring a later one
        self.agreed = 0  # the step after which all were where `before` is
        self.share: int | None = None  # which of all samples is next for this site; None: it has not joined
        self.met = 0  # sites at the last meeting
        self.giving: list[threading.Thread] = []
        self.begin()

    def due(self, step: int) -> bool:
        """Whether sites meet after so many steps; a run's last one is a meeting."""
        return step % self.every == 0 or step == self.last

    def stay_away(self) -> None:
        """Never meet anybody: a dry run has nobody to meet."""
        self.share, self.every, self.last = 0, sys.maxsize, sys.maxsize

    @cached_property
    def member(self) -> Member:
        """This rank among those of other sites; whoever does not join needs no socket and no secret."""
        return self.join_as()

    def before_step(self, reached: Reached) -> Reached:
        """Come to the others before the first step: begin with them, or take over what a live one has."""
        if self.share is not None:
            return reached
        self._join(*reached)
        return self._moved_on()

    def after_step(self, reached: Reached, loss: Tensor, stops: Tensor) -> tuple[Reached, Tensor, Tensor]:
        """Meet, if it is time, and go on where the meeting place says."""
        _, loss, stops = super().after_step(reached, loss, stops)
        return self._moved_on() if self.due(reached.step) else reached, loss, stops

    def _moved_on(self) -> Reached:
        """Where this site goes on: samples of its own, and if it took another's state, that one's step."""
        assert self.share is not None
        if self.step >= self.last:
            self.close()
        return Reached(self.step, self.share * self.samples)

    def _join(self, step: int, position: int) -> None:
        self.step = self.agreed = step
        history = hashlib.blake2b(self.before.numpy().data, digest_size=32)
        history.update(self.velocity.numpy().data)
        place = -(-position // self.samples)
        word = self.member.hello(history.digest(), {"settings": self.settings, "step": step, "place": place})
        self._wait_for_state(word)

    @torch.no_grad()
    def _wait_for_state(self, word: dict[str, Any]) -> None:
        """Go on from the last state that this site shared with others, or from one that a live site brings."""
        while "start" not in word and not self._taken(word):
            word = self.member.heard()
        if "start" in word:
            self.step = self.agreed
            self._fill()
            self._hand_over(word["give"])
        self.agreed, self.share = self.step, int(word["place"])

    @torch.no_grad()
    def begin(self) -> None:
        """All sites have these weights: that is where the next steps start from."""
        for piece, before in beside(self.pieces, self.before):
            before.copy_(piece.master.flatten())

    @torch.no_grad()
    def meet(self) -> None:
        """Average what was learned since the last meeting, among all who are there, and go on from the same weights."""
        for thread in self.giving:
            thread.join(self.member.wait)
        self.giving.clear()
        meant = self.residual + self.before
        for piece, part in beside(self.pieces, meant):
            part.sub_(piece.master.flatten().cpu())
        self.member.say({"ready": self.step, "last": self.last})
        word, found = self.member.heard(), None
        while "meet" in word:
            found = self._tried(word, meant)
            self.member.say({"done": word["meet"], "well": found is not None})
            word = self.member.heard()
        if "go" not in word:  # the others went on: what was learned since is lost
            self._wait_for_state(word)
            return
        assert found is not None, "a meeting counts only where it went well"
        mean, self.residual = found
        self.velocity.mul_(self.momentum).add_(mean)
        self.before.sub_(mean.add(self.velocity, alpha=self.momentum), alpha=self.rate)
        self._fill()
        self.agreed, self.share, self.met = self.step, int(word["place"]), int(word["met"])
        self._hand_over(word["give"])

    def _hand_over(self, takers: list[list[str]]) -> None:
        """Give the state to sites that join, beside the next steps."""
        if not takers:
            return
        state = list(self._state())
        for addresses in takers:
            self.giving.append(threading.Thread(target=self._give, args=(addresses, state), daemon=True))
            self.giving[-1].start()

    def agree(self, loss: Tensor) -> tuple[Tensor, Tensor]:
        """The mean loss over this site's replicas, and how many of them were asked to stop since the last meeting."""
        mean, stops = start_sum_numbers(torch.stack([loss / self.data.size, self.asked]), self.data).wait().unbind()
        self.asked.zero_()
        return mean, stops

    def _tried(self, word: dict[str, Any], meant: Tensor) -> tuple[Tensor, Tensor] | None:
        found = None
        with suppress(LostError):
            found = exchange(self.member, word, meant, self.codec)
        return found if self.member.all_well(found is not None) else None

    def _fill(self) -> None:
        for piece, before in beside(self.pieces, self.before):
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
            self.member.say({"ready": self.step, "last": self.last, "again": self.agreed})
            return False
        assert facts is not None
        self.before, self.velocity = flat[0].clone(), flat[1].clone()
        self.residual.zero_()
        state_of(self.pieces, self.optimizer.adam, owned=False)
        for kind, values in zip(ADAM, flat[2:], strict=True):
            for piece, part in beside(self.pieces, values):
                kept = self.optimizer.adam.state[piece.master]
                kept[kind].copy_(part.view_as(kept[kind]))
        self.step, self.optimizer.updates = int(facts["step"]), int(facts["updates"])
        for piece in self.pieces:
            self.optimizer.adam.state[piece.master]["step"].fill_(self.optimizer.updates)
        self._fill()
        return True

    def kept(self) -> list[Kept]:
        """What goes on with a run that is resumed."""
        found = []
        for flat, kind in ((self.velocity, "outer_momentum"), (self.residual, "outer_residual")):
            found += [Kept(replace(piece, master=part, target=None), kind) for piece, part in beside(self.pieces, flat)]
        return found

    def close(self) -> None:
        """Leave, once those who take this site's state have it."""
        if "member" in vars(self):
            for thread in self.giving:
                thread.join(self.member.wait)
            self.member.close()


def settings(job: PlannedJob) -> dict[str, Any]:
    """All that a site's numbers depend on and that the others must have alike, whatever devices each has."""
    free = FREE | {"from", "watch_links", "offload_folder"}  # `Site.history` tells of `from`
    train = {key: value for key, value in to_table(job.train).items() if key not in free}
    train |= {"precision": job.precision, "sequence": job.sequence}
    tables = {"model": to_table(job.model), "plan": to_table(replace(job.plan, devices=())), "train": train}
    found = {f"{table}.{key}": value for table, keys in tables.items() for key, value in keys.items()}
    plain: dict[str, Any] = json.loads(json.dumps(found))
    return plain


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

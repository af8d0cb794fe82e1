"""The meeting place: who is there, who takes part in the next meeting, and whether it counts.

It carries no weights. A run begins when enough sites are here: with those who have come furthest and have the same
state, which they give to the others. It begins so again whenever nobody is left who has it. Sites say when they are
ready; the place waits for all who are alive, but never longer than it was told, and names those who meet. They exchange
among themselves and say how that went. Only if all of them say well does the meeting count, for everybody at once; if
one died meanwhile, the rest is named again and repeats it.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from heddle.spec.address import Address
from heddle.training.sites.door import Door
from heddle.training.sites.secret import Secret
from heddle.training.sites.wire import Channel, LostError

BEAT = 1.0  # seconds between two heartbeats
SILENT = 10.0  # seconds without one after which a site counts as dead, though its connection stands


@dataclass(eq=False)
class Site:
    """One that is connected."""

    name: str
    channel: Channel
    settings: dict[str, Any]  # all that numbers depend on
    step: int  # of its state
    place: int  # which share of all samples was next for it when it came
    history: str  # alike where sites have the same state
    addresses: list[str]
    state: str = "new"  # new, joining, training, ready, meeting, done, late, refused
    heard: float = field(default_factory=time.monotonic)
    well: bool = False  # how the exchange went, once it is done


class MeetingPlace:
    """Keeps the list; one per run."""

    def __init__(
        self, address: Address, secret: Secret, quorum: int, wait: float, tell: Callable[[str], None] = print
    ) -> None:
        self.quorum, self.wait, self.tell = quorum, wait, tell
        self.sites: list[Site] = []
        self.lock = threading.RLock()
        self.first_ready: float | None = None
        self.met: list[Site] = []  # of the attempt under way
        self.attempt = self.round = self.step = 0
        self.position = 0  # the first share of all samples that nobody has been given
        self.founded = self.over = self.asked_to_resume = False
        self.last = 0  # step of the run
        self.refused_at = 0.0  # when a stranger was last spoken of
        self.door = Door(address, secret, self._greet, self._refused)

    @property
    def port(self) -> int:
        """Where it listens."""
        return self.door.port

    def serve(self) -> None:
        """Until closed, or until the last site of a run that is over has gone."""
        while not (self.over and not self.sites) and self.door.open:
            time.sleep(0.05)
            with self.lock:
                now = time.monotonic()
                for site in [each for each in self.sites if now - each.heard > SILENT]:
                    self._gone(site, f"said nothing for {SILENT:.0f} s")
                self._advance()

    def close(self) -> None:
        """Stop listening, and let go of everybody."""
        self.door.close()
        with self.lock:
            for site in self.sites:
                site.channel.close()

    def _refused(self, host: str, why: LostError) -> None:
        """Strangers may come by the thousand: one line a second is enough."""
        with self.lock:
            if time.monotonic() > self.refused_at + 1:
                self.refused_at = time.monotonic()
                self.tell(f"{host} was refused: {why}")

    def _greet(self, channel: Channel) -> None:
        try:
            word = channel.within(SILENT).hear()
            name, settings, addresses = (
                str(word["site"])[:100],
                dict(word["settings"]),
                list(map(str, word["addresses"])),
            )
            site = Site(name, channel, settings, int(word["step"]), int(word["place"]), str(word["history"]), addresses)
        except (LostError, KeyError, TypeError, ValueError) as error:
            self.tell(f"A site was refused: {error}")
            channel.close()
            return
        with self.lock:
            if (why := self._why_not(site)) is not None:
                self.tell(f"{site.name} was refused: {why}")
                with suppress(LostError):
                    site.channel.say({"refused": why})
                site.channel.close()
                return
            self.sites.append(site)
            site.state = "joining" if self.founded else "new"
            self.tell(f"{site.name} {'joins' if self.founded else 'is here'} ({len(self.sites)} connected)")
        self._listen(site)

    def _why_not(self, site: Site) -> str | None:
        """Why a site cannot take part; None if it can."""
        if any(each.name == site.name for each in self.sites):
            return f"There is already a site {site.name!r}; set train.site."
        if self.sites and (differing := _differing(site.settings, self.sites[0].settings)):
            return f"{differing}; all sites must train alike."
        return "The run is over." if self.over else None

    def _listen(self, site: Site) -> None:
        try:
            while True:
                word = site.channel.hear()
                with self.lock:
                    site.heard = time.monotonic()
                    if "ready" in word:
                        self._ready(site, word)
                    elif "done" in word and word["done"] == self.attempt and site.state == "meeting":
                        site.state, site.well = "done", bool(word["well"])
        except (LostError, KeyError, TypeError, ValueError) as error:
            with self.lock:
                self._gone(site, str(error))

    def _ready(self, site: Site, word: dict[str, Any]) -> None:
        if "again" in word:  # it could not take the state that it was to have
            site.step, site.history = int(word["again"]), f"{site.name} alone"
            site.state = "late"
        if site.state != "training":  # the others went on without it
            site.state = "joining"
            self._say(site, {"late": True})
            return
        site.state, site.step = "ready", int(word["ready"])
        self.last = int(word["last"])
        self.first_ready = self.first_ready or time.monotonic()

    def _gone(self, site: Site, why: str) -> None:
        if site in self.sites:
            self.sites.remove(site)
            site.channel.close()
            self.tell(f"{site.name} is gone: {why} ({len(self.sites)} connected)")

    def _say(self, site: Site, word: dict[str, Any]) -> None:
        try:
            site.channel.say(word | {"wait": self.wait})
        except LostError as error:
            self._gone(site, str(error))

    def _advance(self) -> None:
        """Found the run, begin a meeting, or end it, as soon as that can be."""
        if self.met:
            alive = [site for site in self.met if site in self.sites]
            if all(site.state == "done" for site in alive):
                self._end(alive)
            return
        if self.founded and all(site.state == "joining" for site in self.sites):
            self.founded = False  # nobody is left who has the state
            for site in self.sites:
                site.state = "new"
        if not self.founded:
            if len(self.sites) >= self.quorum:
                self._found()
            return
        training = [site for site in self.sites if site.state in ("training", "ready")]
        ready = [site for site in training if site.state == "ready"]
        if self.first_ready is None or not ready:
            self.first_ready = None
            return
        late = time.monotonic() - self.first_ready > self.wait
        if len(ready) < self.quorum:
            if late:
                self._end_without_quorum(ready)
            return
        if late or len(ready) == len(training):
            for site in training:
                if site.state == "training":
                    self.tell(f"{site.name} is late; the others continue")
                    site.state = "late"
            self._begin(ready)

    def _found(self) -> None:
        """Begin with the sites that have come furthest and have the same state; they give it to the others at once."""
        furthest = max(site.step for site in self.sites)
        if self.step and not furthest:
            if not self.asked_to_resume:
                self.tell(
                    f"Nobody here has a state of this run, which was at step {self.step}: start one with --resume"
                )
                self.asked_to_resume = True
            return
        there = [site for site in self.sites if site.step == furthest]
        ((history, _),) = Counter(site.history for site in there).most_common(1)
        founders = [site for site in there if site.history == history]
        self.step, self.founded, self.asked_to_resume = furthest, True, False
        # A meeting place that was restarted does not know what has been trained on; the sites do.
        self.position = max(self.position, *(site.place for site in founders), 0)
        others = [site for site in self.sites if site not in founders]
        self.tell(f"The run goes on after step {furthest}" if furthest else "The run begins")
        self._send_on(founders, others, {"start": self.round})

    def _send_on(self, alive: list[Site], joiners: list[Site], word: dict[str, Any]) -> None:
        """Let sites train, each on its own share of the samples; those who have the state give it to the joiners."""
        gives: dict[Site, list[list[str]]] = {site: [] for site in alive}
        for number, joiner in enumerate(joiners):
            gives[alive[number % len(alive)]].append(joiner.addresses)
        for number, site in enumerate((*alive, *joiners)):
            site.state, site.step, site.history = "training", self.step, f"round {self.round}"
            told = word | {"give": gives[site]} if site in gives else {"take": True}
            self._say(site, {"place": self.position + number, **told})
        self.position += len(alive) + len(joiners)

    def _begin(self, sites: list[Site]) -> None:
        self.attempt += 1
        self.met = sites
        members = [site.addresses for site in sites]
        for site in sites:
            site.state, site.well = "meeting", False
        for number, site in enumerate(list(sites)):
            self._say(site, {"meet": self.attempt, "number": number, "members": members})

    def _end(self, alive: list[Site]) -> None:
        """The meeting counts if all who were named say well; else whoever is left repeats it."""
        if len(alive) < len(self.met) or not all(site.well for site in alive):
            self.met = []
            if len(alive) >= self.quorum:
                self.tell(f"meeting {self.round} is repeated with {len(alive)} sites")
                self._begin(alive)
            else:
                self._end_without_quorum(alive)
            return
        self.round, self.met, self.first_ready = self.round + 1, [], None
        self.step = alive[0].step
        joiners = [site for site in self.sites if site.state == "joining"]
        self.over = self.over or self.step >= self.last
        if self.over:
            for site in joiners:
                self._say(site, {"refused": "The run is over."})
            joiners = []
        self.tell(f"meeting {self.round} after step {self.step}: {len(alive)} sites, {len(joiners)} join")
        self._send_on(alive, joiners, {"go": self.round, "met": len(alive)})

    def _end_without_quorum(self, sites: list[Site]) -> None:
        for site in list(sites):
            site.state = "refused"
            self._say(site, {"refused": f"{len(sites)} of at least {self.quorum} sites are left."})


def _differing(settings: dict[str, Any], others: dict[str, Any]) -> str:
    """The first settings in which a site differs from the others."""
    keys = [key for key in sorted({*settings, *others}) if settings.get(key) != others.get(key)]
    shown = (f"{key} is {settings.get(key)!r} there and {others.get(key)!r} at the others" for key in keys[:3])
    return "; ".join(shown)[:1000]

"""The meeting place: who is there, who takes part in the next meeting, and whether it counts.

It carries no weights. Sites say when they are ready; the place waits for all who are alive, but never longer than it
was told, and names those who meet. They exchange among themselves and say how that went. Only if all of them say well
does the meeting count, for everybody at once; if one died meanwhile, the rest is named again and repeats it.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from heddle.train.sites.wire import Channel, LostError

BEAT = 1.0  # seconds between two heartbeats
SILENT = 10.0  # seconds without one after which a site counts as dead, though its connection stands


@dataclass(eq=False)
class Site:
    """One that is connected."""

    name: str
    channel: Channel
    digest: str
    step: int
    state: str = "new"  # new, joining, training, ready, meeting, done
    addresses: list[str] = field(default_factory=list)
    heard: float = field(default_factory=time.monotonic)
    well: bool = False  # how the exchange went, once it is done


class MeetingPlace:
    """Keeps the list; one per run."""

    def __init__(
        self, address: tuple[str, int], secret: bytes, quorum: int, wait: float, tell: Callable[[str], None] = print
    ) -> None:
        self.listener = socket.create_server(address, backlog=64)
        self.secret, self.quorum, self.wait, self.tell = secret, quorum, wait, tell
        self.sites: list[Site] = []
        self.lock = threading.RLock()
        self.first_ready: float | None = None
        self.met: list[Site] = []  # of the attempt under way
        self.attempt = self.round = self.step = 0
        self.position = 0  # the first sample that nobody has been given
        self.founded = self.over = False
        self.last = 0  # step of the run

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.listener.getsockname()[1])

    def serve(self) -> None:
        """Until closed, or until the last site of a run that is over has gone."""
        threading.Thread(target=self._accept, daemon=True).start()
        while not (self.over and not self.sites) and self.listener.fileno() >= 0:
            time.sleep(0.05)
            with self.lock:
                now = time.monotonic()
                for site in [each for each in self.sites if now - each.heard > SILENT]:
                    self._gone(site, f"said nothing for {SILENT:.0f} s")
                self._advance()

    def close(self) -> None:
        """Stop listening, and let go of everybody."""
        self.listener.close()
        with self.lock:
            for site in self.sites:
                site.channel.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, (host, *_) = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._greet, args=(connection, host), daemon=True).start()

    def _greet(self, connection: socket.socket, host: str) -> None:
        try:
            channel = Channel(connection, self.secret, server=True).within(SILENT)
            word = channel.hear()
            site = Site(str(word["site"])[:100], channel, str(word["digest"]), int(word["step"]))
            site.addresses = [str(each) for each in word["addresses"]]
        except (LostError, KeyError, TypeError, ValueError) as error:
            self.tell(f"{host} was refused: {error}")
            connection.close()
            return
        with self.lock:
            if (why := self._why_not(site)) is not None:
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
        if self.sites and site.digest != self.sites[0].digest:
            return "Its model or plan differs from that of the others."
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
        if site.state != "training" or "again" in word:  # the others went on without it, or it takes state first
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
        if not self.founded:
            if len(self.sites) >= self.quorum:
                self._found()
            return
        if self.met:
            alive = [site for site in self.met if site in self.sites]
            if all(site.state == "done" for site in alive):
                self._end(alive)
            return
        training = [site for site in self.sites if site.state in ("training", "ready")]
        ready = [site for site in training if site.state == "ready"]
        if self.first_ready is None or not ready:
            return
        late = time.monotonic() - self.first_ready > self.wait
        if len(ready) < self.quorum:
            if late:
                for site in ready:
                    self._say(site, {"refused": f"{len(ready)} of at least {self.quorum} sites came."})
            return
        if late or len(ready) == len(training):
            for site in training:
                if site.state == "training":
                    self.tell(f"{site.name} is late; the others continue")
                    site.state = "late"
            self._begin(ready)

    def _found(self) -> None:
        self.step = max(site.step for site in self.sites)
        self.founded = True
        for site in list(self.sites):
            site.state = "training" if site.step == self.step else "joining"
        self._hand_out([site for site in self.sites if site.state == "training"], "start")

    def _hand_out(self, sites: list[Site], key: str, **more: Any) -> None:
        """Tell sites to go on, each from where its samples of the next round begin, counted in rounds' worth."""
        for number, site in enumerate(sites):
            self._say(site, {key: self.round, "place": self.position + number, **more})
        self.position += len(sites)

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
                return
            for site in alive:
                self._say(site, {"refused": f"{len(alive)} of at least {self.quorum} sites are left."})
            return
        self.round, self.met, self.first_ready = self.round + 1, [], None
        self.step = alive[0].step
        joiners = [site for site in self.sites if site.state == "joining"]
        self.over = self.over or self.step >= self.last
        if self.over:
            for site in joiners:
                self._say(site, {"refused": "The run is over."})
            joiners = []
        gives: dict[Site, list[list[str]]] = {site: [] for site in alive}
        for number, joiner in enumerate(joiners):
            gives[alive[number % len(alive)]].append(joiner.addresses)
        for site in (*alive, *joiners):
            site.state = "training"
        for number, site in enumerate((*alive, *joiners)):
            taken = {"give": gives[site]} if site in gives else {"take": True}
            self._say(site, {"go": self.round, "place": self.position + number, "met": len(alive), **taken})
        self.position += len(alive) + len(joiners)
        self.tell(f"meeting {self.round} after step {self.step}: {len(alive)} sites, {len(joiners)} join")

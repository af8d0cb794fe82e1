"""A site among others: its word with the meeting place, and its ranks' channels to the same ranks elsewhere."""

from __future__ import annotations

import json
import queue
import socket
import threading
import time
from contextlib import suppress
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from heddle.errors import HeddleError
from heddle.parallel.codecs import Codec
from heddle.parallel.collectives import gather
from heddle.parallel.mesh import Mesh
from heddle.spec.address import parsed_address, written_address
from heddle.training.sites.door import Door
from heddle.training.sites.place import BEAT
from heddle.training.sites.secret import shared_secret
from heddle.training.sites.wire import Channel, LostError, StrangerError, connect

LETTERS = 128  # of an address
PATIENCE = 60.0  # seconds in which the meeting place must answer first


class Member:
    """One rank of a site; the first one speaks for all."""

    def __init__(self, meeting: str, site: str, mesh: Mesh) -> None:
        self.mesh, self.secret, self.site = mesh, shared_secret(), site
        self.where = parsed_address(meeting)
        self.come: queue.Queue[tuple[Channel, dict[str, Any]]] = queue.Queue()  # who came, and what for
        own = _own_address(*self.where)
        try:
            self.door = Door((own, 0), self.secret, self._welcome)
        except OSError as error:
            raise HeddleError(
                f"{site} cannot listen on {own}.",
                f"{error.strerror or error}.",
                "The other sites reach it there: that is the address of this machine that leads to the meeting place.",
            ) from None
        self.place: Channel | None = None
        self.wait = PATIENCE

    def _welcome(self, channel: Channel) -> None:
        try:
            self.come.put((channel, channel.within(self.wait).hear()))
        except LostError:
            channel.close()

    @property
    def address(self) -> str:
        """Where this rank's counterparts reach it."""
        return written_address(self.door.host, self.door.port)

    def hello(self, history: bytes, facts: dict[str, Any]) -> dict[str, Any]:
        """Join at the meeting place with facts about this site and the state of this rank; returns its first answer."""
        letters = self.address.encode().ljust(LETTERS) + history
        words = gather(torch.tensor([*letters], dtype=torch.uint8)[None], self.mesh.host)
        told = [bytes(each.tolist()) for each in words]
        addresses = [each[:LETTERS].decode().strip() for each in told]
        if self.mesh.rank == 0:
            self.place = self._reached()
            self.place.connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            whole = b"".join(each[LETTERS:] for each in told).hex()
            self.place.say({"site": self.site, "addresses": addresses, "history": whole, **facts})
            threading.Thread(target=self._beat, daemon=True).start()
        return self.heard()

    def _reached(self) -> Channel:
        end = time.monotonic() + PATIENCE
        while True:
            try:
                return connect(*self.where, self.secret, PATIENCE)
            except LostError as error:
                if time.monotonic() > end or isinstance(error, StrangerError):
                    raise HeddleError(
                        f"The meeting place {written_address(*self.where)} cannot be reached.",
                        f"{error}.",
                        "Start `heddle meeting` there, with the same secret file.",
                    ) from None
            time.sleep(0.2)

    def _beat(self) -> None:
        assert self.place is not None
        with suppress(LostError):
            while True:
                self.place.say({"beat": True})
                time.sleep(BEAT)

    def say(self, word: dict[str, Any]) -> None:
        """Something to the meeting place, from the first rank."""
        if self.place is not None:
            try:
                self.place.say(word)
            except LostError as error:
                raise self._lost(error) from None

    def heard(self) -> dict[str, Any]:
        """The next word of the meeting place, on all ranks."""
        word: dict[str, Any] = {}
        if self.place is not None:
            try:
                word = self.place.hear()
            except LostError as error:
                word = {"lost": str(error)}
        word = self._shared(word)
        if "refused" in word:
            raise HeddleError(
                f"The meeting place refused {self.site}.", str(word["refused"]), "Its own output says more."
            )
        if "lost" in word:
            raise self._lost(LostError(word["lost"]))
        self.wait = float(word.get("wait", self.wait))
        return word

    def _lost(self, error: LostError) -> HeddleError:
        return HeddleError(
            "The connection to the meeting place was lost.",
            f"{error}. Without it, sites cannot agree on who takes part.",
            "Restart it, then the sites with --resume.",
        )

    def _shared(self, word: dict[str, Any]) -> dict[str, Any]:
        """What the first rank knows, on all."""
        host = self.mesh.host
        if host.size == 1:
            return word
        text = json.dumps(word).encode()
        length = torch.tensor([len(text)])
        dist.broadcast(length, host.ranks[0], group=host.group)
        letters = (
            torch.tensor([*text], dtype=torch.uint8) if host.rank == 0 else torch.empty(int(length), dtype=torch.uint8)
        )
        dist.broadcast(letters, host.ranks[0], group=host.group)
        found: dict[str, Any] = json.loads(bytes(letters.tolist()))
        return found

    def all_well(self, well: bool) -> bool:
        """Whether it went well on all ranks of this site."""
        host = self.mesh.host
        if host.size == 1:
            return well
        bad = torch.tensor([0 if well else 1])
        dist.all_reduce(bad, group=host.group)
        return not int(bad)

    def dial(self, addresses: list[str], purpose: dict[str, Any]) -> Channel:
        """A channel to this rank's counterpart at another site."""
        channel = connect(*parsed_address(addresses[self.mesh.rank]), self.secret, self.wait).within(self.wait)
        channel.say(purpose)
        return channel

    def accept(self, end: float) -> tuple[Channel, dict[str, Any]]:
        """Whoever comes next and has the secret, and what for."""
        try:
            return self.come.get(timeout=max(0.01, end - time.monotonic()))
        except queue.Empty:
            raise LostError(f"no site came within {self.wait:.0f} s") from None

    def close(self) -> None:
        """Leave: nobody reaches this rank any more."""
        self.door.close()
        with suppress(queue.Empty):
            while True:
                self.come.get_nowait()[0].close()
        if self.place is not None:
            self.place.close()


def _own_address(host: str, port: int) -> str:
    """The address of this machine on the way to the meeting place: the only one that is listened on."""
    try:
        family, kind, _, _, name = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as sender:
            sender.connect(name)
            return str(sender.getsockname()[0])
    except (OSError, UnicodeError) as error:
        raise HeddleError(
            f"There is no route to the meeting place {written_address(host, port)}.",
            f"{getattr(error, 'strerror', None) or error}.",
            "Use an address that this machine can reach.",
        ) from None


def exchange(member: Member, meeting: dict[str, Any], numbers: Tensor, codec: Codec | None) -> tuple[Tensor, Tensor]:
    """The mean of what all members of a meeting bring, the same bits for each, and what codes could not say of ours.

    Everybody owns a share: it gets that of all others, adds up, and tells everybody the sum. Raises LostError.
    """
    addresses, number = meeting["members"], int(meeting["number"])
    n, count = len(addresses), len(numbers)
    if n == 1:
        return numbers.clone(), torch.zeros_like(numbers)
    purpose = {"meeting": meeting["meet"], "number": number}
    channels: dict[int, Channel] = {}
    try:
        for other in range(number):
            channels[other] = member.dial(addresses[other], purpose)
        end = time.monotonic() + member.wait
        while len(channels) < n - 1:
            channel, why = member.accept(end)
            other = int(why.get("number", -1))
            if why.get("meeting") != meeting["meet"] or not number < other < n or other in channels:
                channel.close()
                continue
            channels[other] = channel
        return _summed(channels, number, n, numbers, count, codec)
    except (ValueError, TypeError) as error:
        raise LostError(str(error)) from None
    finally:
        for channel in channels.values():
            channel.close()


def _summed(
    channels: dict[int, Channel], number: int, n: int, numbers: Tensor, count: int, codec: Codec | None
) -> tuple[Tensor, Tensor]:
    share = -(-count // n)
    padded = torch.zeros(n * share)
    padded[:count] = numbers
    shares = padded.view(n, share)
    codes = _coded(shares, codec)
    parts = _swapped(channels, {other: codes[other] for other in channels}, codes.shape[1])
    total = shares[number].clone()
    for other in sorted(parts):
        total += _read(parts[other][None], share, codec)[0]
    said = _coded(total[None], codec)
    sums = _swapped(channels, dict.fromkeys(channels, said[0]), said.shape[1])
    sums[number] = said[0]
    whole = _read(torch.stack([sums[place] for place in range(n)]), share, codec)
    left = shares - _read(codes, share, codec)
    left[number] = total - whole[number]  # of the sum: what the owner says with its own next difference
    return whole.reshape(-1)[:count] / n, left.reshape(-1)[:count].nan_to_num_(0.0, 0.0, 0.0)


def _coded(x: Tensor, codec: Codec | None) -> Tensor:
    return x.contiguous().view(torch.uint8) if codec is None else codec.encode(x)


def _read(codes: Tensor, count: int, codec: Codec | None) -> Tensor:
    return codes.contiguous().view(torch.float32) if codec is None else codec.decode(codes, count)


def _swapped(channels: dict[int, Channel], sent: dict[int, Tensor], size: int) -> dict[int, Tensor]:
    """Send to all, receive from all, at once; frames are of the same size."""
    failed: list[LostError] = []

    def send(other: int) -> None:
        try:
            channels[other].send(sent[other].contiguous().numpy().tobytes())
        except LostError as error:
            failed.append(error)

    threads = [threading.Thread(target=send, args=(other,), daemon=True) for other in channels]
    for thread in threads:
        thread.start()
    found = {}
    for other, channel in channels.items():
        frame = channel.receive(size)
        if len(frame) != size:
            raise LostError(f"{len(frame)} bytes, not {size}")
        found[other] = torch.frombuffer(frame, dtype=torch.uint8)
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
    return found

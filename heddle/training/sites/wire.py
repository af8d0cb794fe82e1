"""Frames over TLS 1.3: both ends have proven that they have the shared secret, and nobody between them can read along.

A frame is its length and its bytes. Words are JSON, and nothing is unpickled.

One thread may send while another receives. A connection of OpenSSL must not be used by two threads at once, so it works
in memory, under a lock that nobody holds while the network is waited for.
"""

from __future__ import annotations

import json
import socket
import ssl
import struct
import threading
import time
from contextlib import suppress
from typing import Any

from heddle.spec.address import written_address
from heddle.training.sites.secret import Secret

LONGEST_WORD = 1 << 20  # bytes of a frame of words
HEADER = struct.Struct(">Q")
PIECE = 1 << 18  # bytes that are encrypted, sent or received at once
SHAKE = 10.0  # seconds in which both ends must have proven themselves, all told


class LostError(ConnectionError):
    """The other end is gone, too late, or not who it should be."""


class StrangerError(LostError):
    """The other end does not have the secret."""


class Channel:
    """One connection whose ends have proven that they have the secret."""

    def __init__(self, connection: socket.socket, secret: Secret, server: bool) -> None:
        self.connection = connection
        self._coming, self._going = ssl.MemoryBIO(), ssl.MemoryBIO()
        context = secret.server if server else secret.client
        self._tls = context.wrap_bio(self._coming, self._going, server_side=server)
        self._memory, self._sending = threading.Lock(), threading.Lock()
        with suppress(OSError):  # of a pair of sockets, which is no TCP
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._shake_hands(time.monotonic() + SHAKE)
        if self._tls.getpeercert(binary_form=True) != secret.certificate:
            raise StrangerError("the other end does not have the secret")
        connection.settimeout(None)

    def _shake_hands(self, end: float) -> None:
        """Prove to each other who they are, within one time limit however slowly the other end talks."""
        done = False
        while not done:
            try:
                self._tls.do_handshake()
                done = True
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLError as error:
                with suppress(LostError):
                    self._push(self._going.read())  # why, for the other end
                raise StrangerError(f"the other end does not have the secret ({error.reason or error})") from None
            left = end - time.monotonic()
            if left <= 0:
                raise LostError(f"the other end has not proven itself within {SHAKE:.0f} s")
            self.connection.settimeout(left)
            self._push(self._going.read())
            if not done:
                self._pull()

    def within(self, seconds: float | None) -> Channel:
        """The same channel; whoever waits longer than that for it has lost it."""
        self.connection.settimeout(seconds)
        return self

    def send(self, frame: bytes | memoryview) -> None:
        """Bytes, as one frame."""
        view = memoryview(frame).cast("B")
        with self._sending:
            self._encrypt(HEADER.pack(len(view)))
            for at in range(0, len(view), PIECE):
                self._encrypt(view[at : at + PIECE])

    def _encrypt(self, some: bytes | memoryview) -> None:
        try:
            with self._memory:
                self._tls.write(some)
                coded = self._going.read()
        except ssl.SSLError as error:
            raise LostError(str(error)) from None
        self._push(coded)

    def receive(self, most: int) -> bytearray:
        """The next frame, of at most so many bytes."""
        (length,) = HEADER.unpack(self._exactly(HEADER.size))
        if length > most:
            raise LostError(f"a frame of {length} bytes, where at most {most} are expected")
        return self._exactly(length)

    def say(self, word: dict[str, Any]) -> None:
        """A table, as JSON."""
        self.send(json.dumps(word).encode())

    def hear(self) -> dict[str, Any]:
        """The next table."""
        try:
            word = json.loads(self.receive(LONGEST_WORD))
        except (ValueError, RecursionError):
            raise LostError("something that is not JSON") from None
        if not isinstance(word, dict):
            raise LostError("something that is not a table")
        return word

    def close(self) -> None:
        """End the connection, and wake up whoever waits for it."""
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)
        self.connection.close()

    def _push(self, some: bytes) -> None:
        try:
            self.connection.sendall(some)
        except OSError as error:
            raise LostError(str(error)) from None

    def _pull(self) -> None:
        try:
            some = self.connection.recv(PIECE)
        except OSError as error:
            raise LostError(str(error)) from None
        if not some:
            raise LostError("the connection was closed")
        with self._memory:
            self._coming.write(some)

    def _exactly(self, count: int) -> bytearray:
        found = bytearray(count)
        view, at = memoryview(found), 0
        while at < count:
            try:
                with self._memory:
                    got = self._tls.read(count - at, view[at:])
            except ssl.SSLWantReadError:
                self._pull()
                continue
            except ssl.SSLError as error:
                raise LostError(f"the connection was refused or changed ({error.reason or error})") from None
            if not got:
                raise LostError("the connection was closed")
            at += int(got)
        return found


def connect(host: str, port: int, secret: Secret, seconds: float) -> Channel:
    """A channel to whoever listens there."""
    try:
        connection = socket.create_connection((host, port), timeout=seconds)
    except OSError as error:
        raise LostError(f"{written_address(host, port)}: {error}") from None
    try:
        return Channel(connection, secret, server=False)
    except LostError:
        connection.close()
        raise

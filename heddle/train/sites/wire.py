"""Authenticated frames over TCP: both ends know a secret, and every frame carries a code made with it.

    client  nonce                                  ──►
                                                   ◄──  nonce, proof that the server knows the secret
    client  proof that the client knows it         ──►

Each direction then has a key of its own. A frame is its length, its bytes, and BLAKE2b over its number and its bytes:
one that was changed, left out or said twice ends the connection. Words are JSON, and nothing is unpickled. Nothing is
encrypted either.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import socket
import struct
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from heddle.errors import HeddleError

SECRET, SECRET_FILE = "HEDDLE_SECRET", "HEDDLE_SECRET_FILE"  # the variables that hold them
SHORTEST = 16  # characters of a secret
NONCE, PROOF = 32, 32
LONGEST_WORD = 1 << 20  # bytes of a frame of words
HEADER = struct.Struct(">Q")
SHAKE = 10.0  # seconds in which both ends must have proven themselves


class LostError(ConnectionError):
    """The other end is gone, too late, or not who it should be."""


def shared_secret() -> bytes:
    """The secret that all sites and their meeting place were given."""
    text = os.environ.get(SECRET, "")
    if not text and (path := os.environ.get(SECRET_FILE)):
        try:
            text = Path(path).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise HeddleError(
                f"The secret cannot be read from {path}.",
                f"{error}.",
                f"Set {SECRET_FILE} to a file that you can read.",
            ) from None
    if len(text) < SHORTEST:
        raise HeddleError(
            f"There is no shared secret of at least {SHORTEST} characters.",
            "Sites prove to each other that they know it, so that no stranger joins.",
            f"Make one with `openssl rand -hex 32`, and set {SECRET}, or {SECRET_FILE} to a file with it, everywhere.",
        )
    return text.encode()


class Channel:
    """One connection whose ends have proven that they know the secret."""

    def __init__(self, connection: socket.socket, secret: bytes, server: bool) -> None:
        self.connection = connection
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.settimeout(SHAKE)
        own = secrets.token_bytes(NONCE)
        if server:
            theirs = bytes(self._exactly(NONCE))
            self._push(own + _proof(secret, b"server", theirs, own))
            proven = hmac.compare_digest(self._exactly(PROOF), _proof(secret, b"client", own, theirs))
            client_nonce, server_nonce = theirs, own
        else:
            self._push(own)
            answer = self._exactly(NONCE + PROOF)
            theirs = bytes(answer[:NONCE])
            proven = hmac.compare_digest(answer[NONCE:], _proof(secret, b"server", own, theirs))
            if proven:
                self._push(_proof(secret, b"client", theirs, own))
            client_nonce, server_nonce = own, theirs
        if not proven:
            connection.close()
            raise LostError("the other end does not know the secret")
        there, back = (_proof(secret, way, client_nonce, server_nonce) for way in (b"to server", b"to client"))
        self._sends, self._gets = (back, there) if server else (there, back)
        self._sent = self._got = 0
        self._sending = threading.Lock()
        connection.settimeout(None)

    def within(self, seconds: float | None) -> Channel:
        """The same channel; whoever waits longer than that for it has lost it."""
        self.connection.settimeout(seconds)
        return self

    def send(self, frame: bytes | memoryview) -> None:
        """Bytes, as one frame."""
        with self._sending:
            code = _code(self._sends, self._sent, frame)
            self._sent += 1
            self._push(HEADER.pack(len(frame)))
            self._push(frame)
            self._push(code)

    def receive(self, most: int) -> bytearray:
        """The next frame, of at most so many bytes."""
        (length,) = HEADER.unpack(self._exactly(HEADER.size))
        if length > most:
            raise LostError(f"a frame of {length} bytes, where at most {most} are expected")
        frame = self._exactly(length)
        if not hmac.compare_digest(self._exactly(PROOF), _code(self._gets, self._got, frame)):
            raise LostError("a frame that was changed in transit")
        self._got += 1
        return frame

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

    def _push(self, some: bytes | memoryview) -> None:
        try:
            self.connection.sendall(some)
        except OSError as error:
            raise LostError(str(error)) from None

    def _exactly(self, count: int) -> bytearray:
        found = bytearray(count)
        view, at = memoryview(found), 0
        while at < count:
            try:
                got = self.connection.recv_into(view[at:])
            except OSError as error:
                raise LostError(str(error)) from None
            if not got:
                raise LostError("the connection was closed")
            at += got
        return found


def _proof(secret: bytes, who: bytes, one: bytes, two: bytes) -> bytes:
    return hmac.digest(secret, b"heddle 1 " + who + b"|" + one + two, "sha256")


def _code(key: bytes, number: int, frame: bytes | bytearray | memoryview) -> bytes:
    made = hashlib.blake2b(HEADER.pack(number), key=key, digest_size=PROOF)
    made.update(frame)
    return made.digest()


def connect(host: str, port: int, secret: bytes, seconds: float) -> Channel:
    """A channel to whoever listens there."""
    try:
        connection = socket.create_connection((host, port), timeout=seconds)
    except OSError as error:
        raise LostError(f"{host}:{port}: {error}") from None
    try:
        return Channel(connection, secret, server=False)
    except LostError:
        connection.close()
        raise


def parsed_address(text: str) -> tuple[str, int]:
    """HOST:PORT."""
    host, _, port = text.rpartition(":")
    if not host or not (port.isascii() and port.isdecimal() and 0 <= int(port) < 65536):
        raise HeddleError(f"{text!r} is not an address.", "It is HOST:PORT.", "For example 10.0.0.1:29700.")
    return host.strip("[]"), int(port)

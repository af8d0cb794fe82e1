"""Where others come in: many may prove at once that they have the secret, and no stranger keeps anybody out."""

from __future__ import annotations

import socket
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

from heddle.spec.address import Address
from heddle.training.sites.secret import Secret
from heddle.training.sites.wire import Channel, LostError

MOST = 64  # connections that have not proven themselves; beyond that, the host with most of them loses its oldest
ROUND = 1.0  # seconds that a connection may wait where descriptors have run out
PAUSE = 0.05  # seconds after which accepting is tried again when descriptors, memory or threads have run out


class Door:
    """Listens on one address, and hands over every connection whose other end has the secret."""

    def __init__(
        self,
        address: Address,
        secret: Secret,
        welcome: Callable[[Channel], None],
        refused: Callable[[str, LostError], None] = lambda *_: None,
    ) -> None:
        family, _, _, _, found = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)[0]
        self.listener = socket.create_server(found, family=family, backlog=256)
        self.host, self.port = str(found[0]), int(self.listener.getsockname()[1])
        self.secret, self.welcome, self.refused = secret, welcome, refused
        self.waiting: dict[socket.socket, tuple[str, float]] = {}  # host and time of each; oldest first
        self.lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def open(self) -> bool:
        """Whether it still listens."""
        return self.listener.fileno() >= 0

    def close(self) -> None:
        """Listen no more."""
        with suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)  # closing alone does not wake up who accepts
        self.listener.close()
        with self.lock:
            for connection in self.waiting:
                _hang_up(connection)

    def _accept(self) -> None:
        while True:
            try:
                connection, (host, *_) = self.listener.accept()
            except OSError:  # such as no more descriptors
                if not self.open:
                    return
                self._make_room(0, ROUND)
                time.sleep(PAUSE)
                continue
            self._make_room(MOST - 1)
            with self.lock:
                self.waiting[connection] = host, time.monotonic()
            try:
                threading.Thread(target=self._greet, args=(connection, host), daemon=True).start()
            except RuntimeError:  # no more threads
                with self.lock:
                    self.waiting.pop(connection, None)
                connection.close()
                time.sleep(PAUSE)

    def _make_room(self, most: int, patience: float = 0.0) -> None:
        """Let go of one where more wait, if it has waited for so many seconds."""
        with self.lock:
            if len(self.waiting) > most:
                busiest = Counter(host for host, _ in self.waiting.values()).most_common(1)[0][0]
                oldest, (_, since) = next(item for item in self.waiting.items() if item[1][0] == busiest)
                if time.monotonic() >= since + patience:
                    del self.waiting[oldest]
                    _hang_up(oldest)  # which wakes up its thread, and that closes it

    def _greet(self, connection: socket.socket, host: str) -> None:
        try:
            channel = Channel(connection, self.secret, server=True)
        except LostError as error:
            connection.close()
            self.refused(host, error)
            return
        finally:
            with self.lock:
                self.waiting.pop(connection, None)
        self.welcome(channel)


def _hang_up(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)

"""A small server for one reader: on loopback, behind a token, with nothing but what it is asked to show.

Only who has the link can ask: every request carries the token, and the host and the origin that a browser states are
looked at, so that no other page that is open beside it can. It serves files of this package and numbers, never a path
that a request names.
"""

from __future__ import annotations

import hmac
import io
import json
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from typing import Any
from urllib.parse import parse_qs, urlsplit

from heddle.errors import HeddleError
from heddle.explore.worker import Answer, CanceledError, Workers
from heddle.files import shown

LARGEST = 1 << 16  # bytes of a question
PATIENCE = 20.0  # seconds for a client to say all that it wants
MOST = 64  # connections at once; a page has a few
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; connect-src 'self'; "
    "img-src 'self' data: blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
KINDS = {".html": "text/html", ".js": "text/javascript", ".css": "text/css"}
Events = Callable[[Callable[[str, Any], None]], None]


class WebSite:
    """What a server shows: pages, answers to questions, and streams of events."""

    def __init__(self, page: str, data: Mapping[str, Any]) -> None:
        self.page, self.data = page, data
        self.answers: dict[str, Answer] = {}  # pure functions, in processes of their own
        self.given: dict[str, tuple[Any, ...]] = {}  # what they get beside the question
        self.events: dict[str, Events] = {}


class Server(ThreadingHTTPServer):
    """Serves a site to whoever has the link."""

    daemon_threads = True
    request_queue_size = 16

    def __init__(self, site: WebSite, host: str = "127.0.0.1", port: int = 0) -> None:
        self.site, self.workers = site, Workers()
        self.token = secrets.token_urlsafe(24)
        self.free = threading.BoundedSemaphore(MOST)
        if not host:
            raise HeddleError(
                "--host is empty.", "Everybody could ask, which is never meant so.", "127.0.0.1 is this machine alone."
            )
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            super().__init__((host, port), _Handler)
        except (OSError, UnicodeError) as error:
            raise HeddleError(
                f"Nothing can listen at {shown(host)}, port {port}.",
                f"{error.strerror}." if isinstance(error, OSError) else "This is not a host name.",
                "Leave --host and --port out, or use another.",
            ) from None
        self.shown = f"[{host}]" if ":" in host else host
        names = {self.shown, "localhost"} if host in ("127.0.0.1", "::1") else {self.shown}
        self.hosts = {f"{name}:{self.server_port}" for name in names}

    @property
    def link(self) -> str:
        """What one opens in a browser."""
        return f"http://{self.shown}:{self.server_port}/?token={self.token}"

    def handle_error(self, _request: Any, _address: Any) -> None:
        """Say nothing of readers that are gone in the middle of an answer; anything else is a mistake of ours."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(_request, _address)

    def process_request(self, request: Any, address: Any) -> None:
        """Answer in a thread; whoever comes when all are taken is sent away, so that their number is bounded."""
        if self.free.acquire(blocking=False):
            super().process_request(request, address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, address: Any) -> None:
        """The thread."""
        try:
            super().process_request_thread(request, address)
        finally:
            self.free.release()

    def close(self) -> None:
        """End what is at work, and listen no more."""
        self.workers.close()
        self.server_close()


class _Impatient(io.RawIOBase):
    """What a client says, with one time limit for all of it: bytes that trickle do not make it longer."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection, self.until = connection, 0.0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left = self.until - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self.connection.settimeout(left)
        try:
            return self.connection.recv_into(buffer)
        finally:
            self.connection.settimeout(PATIENCE)  # of what is sent


class _Handler(BaseHTTPRequestHandler):
    server: Server
    server_version, sys_version = "heddle", ""
    protocol_version = "HTTP/1.1"
    timeout = PATIENCE

    def log_message(self, *_: object) -> None:
        """Nothing: what is asked is the reader's own business."""

    def setup(self) -> None:
        """Read with patience that ends."""
        super().setup()
        self.words = _Impatient(self.connection)
        self.rfile = io.BufferedReader(self.words)

    def handle_one_request(self) -> None:
        """A request, or the end of the connection."""
        self.words.until = time.monotonic() + PATIENCE
        super().handle_one_request()

    def parse_request(self) -> bool:
        """Also what cannot be a path is refused."""
        if not super().parse_request():
            return False
        try:
            self.where = urlsplit(self.path)
        except ValueError:  # http://[
            self._refuse(HTTPStatus.BAD_REQUEST)
            return False
        return True

    def do_GET(self) -> None:
        """The page, its files, and streams of events."""
        asked = self.where.path
        name = asked.removeprefix("/assets/")
        if asked.startswith("/assets/") and self._allowed(None):
            kept = _asset(name)
            if kept is None:
                self._refuse(HTTPStatus.NOT_FOUND)
            else:
                self._send(kept, KINDS["." + name.rpartition(".")[2]])
        elif not self._allowed(parse_qs(self.where.query).get("token", [""])[0]):
            self._refuse(HTTPStatus.FORBIDDEN)
        elif asked == "/":
            page = _asset(self.server.site.page) or b""
            data = json.dumps(self.server.site.data).replace("<", "\\u003c").encode()
            self._send(page.replace(b"{{data}}", data), KINDS[".html"])
        elif asked in self.server.site.events:
            self._stream(self.server.site.events[asked])
        else:
            self._refuse(HTTPStatus.NOT_FOUND)

    def do_POST(self) -> None:
        """A question."""
        site, path = self.server.site, self.where.path
        size = self.headers.get("Content-Length", "")
        if not self._allowed(self.headers.get("X-Heddle-Token", "")):
            self._refuse(HTTPStatus.FORBIDDEN)
        elif path not in site.answers:
            self._refuse(HTTPStatus.NOT_FOUND)
        elif not (size.isascii() and size.isdecimal() and len(size) < 9 and int(size) <= LARGEST):
            self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        else:
            try:
                question = json.loads(self.rfile.read(int(size)))
            except (ValueError, RecursionError):
                self._refuse(HTTPStatus.BAD_REQUEST)
                return
            page = f"{path} {self.headers.get('X-Heddle-Page', '')[:40]}"
            parts = self.server.workers.parts(page, site.answers[path], question, *site.given.get(path, ()))
            with closing(parts):
                self._send_parts(parts)

    def _allowed(self, token: str | None) -> bool:
        """Whether this is our own page; files of the page itself are no secret, and need no token."""
        origin = self.headers.get("Origin")
        if self.headers.get("Host") not in self.server.hosts:
            return False
        if origin is not None and origin.removeprefix("http://") not in self.server.hosts:
            return False
        return token is None or hmac.compare_digest(token.encode(), self.server.token.encode())

    def _stream(self, events: Events) -> None:
        """Server-sent events, until the reader is gone."""
        self._head(HTTPStatus.OK, "text/event-stream", None)
        self.close_connection = True

        def say(kind: str, data: Any) -> None:
            self.wfile.write(f"event: {kind}\ndata: {json.dumps(data)}\n\n".encode())
            self.wfile.flush()

        with suppress(OSError):  # the reader is gone
            events(say)

    def _send_parts(self, parts: Iterator[dict[str, Any]]) -> None:
        """An answer, a line of JSON for each of its parts, as they come."""
        self._head(HTTPStatus.OK, "application/x-ndjson; charset=utf-8", None, ("Transfer-Encoding", "chunked"))
        try:
            for part in parts:
                self._send_piece(json.dumps(part).encode() + b"\n")
        except CanceledError:
            self._send_piece(b'{"canceled": true}\n')
        self._send_piece(b"")

    def _send_piece(self, content: bytes) -> None:
        self.wfile.write(b"%x\r\n%b\r\n" % (len(content), content))
        self.wfile.flush()

    def _send(self, content: bytes, kind: str) -> None:
        self._head(HTTPStatus.OK, f"{kind}; charset=utf-8", len(content))
        self.wfile.write(content)

    def _refuse(self, status: HTTPStatus) -> None:
        self._head(status, "text/plain; charset=utf-8", len(status.phrase))
        self.wfile.write(status.phrase.encode())
        self.close_connection = True

    def _head(self, status: HTTPStatus, kind: str, size: int | None, *more: tuple[str, str]) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        if size is not None:
            self.send_header("Content-Length", str(size))
        for name, value in more:
            self.send_header(name, value)
        self.send_header("Content-Security-Policy", POLICY)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("Cache-Control", "no-store")
        self.end_headers()


def _asset(name: str) -> bytes | None:
    """A file of the page: by its name alone, in one of two folders of the package."""
    if "/" in name or "\\" in name or name.startswith(".") or "." + name.rpartition(".")[2] not in KINDS:
        return None
    if len(name) > 100:  # more than a file system takes is an error of its own
        return None
    for room in ("heddle.explore", "heddle.reporting"):
        path = files(room) / "assets" / name
        if path.is_file():
            return path.read_bytes()
    return None

"""A small server for one reader: on loopback, behind a token, with nothing but what it is asked to show.

Only who has the link can ask: every request carries the token, and the host and the origin that a browser states are
looked at, so that no other page that is open beside it can. It serves files of this package and numbers, never a path
that a request names.
"""

from __future__ import annotations

import hmac
import json
import secrets
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from typing import Any
from urllib.parse import parse_qs, urlsplit

from heddle.errors import HeddleError
from heddle.explore.worker import Answer, CanceledError, Workers

LARGEST = 1 << 16  # bytes of a question
PATIENCE = 20.0  # seconds for a client to say what it wants
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
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            super().__init__((host, port), _Handler)
        except OSError as error:
            raise HeddleError(
                f"Nothing can listen at {host}, port {port}.", f"{error.strerror}.", "Leave --port out, or use another."
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

    def close(self) -> None:
        """End what is at work, and listen no more."""
        self.workers.close()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: Server
    server_version, sys_version = "heddle", ""
    protocol_version = "HTTP/1.1"
    timeout = PATIENCE

    def log_message(self, *_: object) -> None:
        """Nothing: what is asked is the reader's own business."""

    def do_GET(self) -> None:
        """The page, its files, and streams of events."""
        where = urlsplit(self.path)
        asked = where.path
        name = asked.removeprefix("/assets/")
        if asked.startswith("/assets/") and self._allowed(None):
            kept = _asset(name)
            if kept is None:
                self._refuse(HTTPStatus.NOT_FOUND)
            else:
                self._send(kept, KINDS["." + name.rpartition(".")[2]])
        elif not self._allowed(parse_qs(where.query).get("token", [""])[0]):
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
        site, path = self.server.site, urlsplit(self.path).path
        size = self.headers.get("Content-Length", "")
        if not self._allowed(self.headers.get("X-Heddle-Token", "")):
            self._refuse(HTTPStatus.FORBIDDEN)
        elif path not in site.answers:
            self._refuse(HTTPStatus.NOT_FOUND)
        elif not size.isdecimal() or int(size) > LARGEST:
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
    for room in ("heddle.explore", "heddle.reporting"):
        path = files(room) / "assets" / name
        if path.is_file():
            return path.read_bytes()
    return None

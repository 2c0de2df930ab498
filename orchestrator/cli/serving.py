"""Serves one page on this machine, with the standard library alone."""

import gzip
import http.server
import threading
from http import HTTPStatus
from typing import Any, Final

from orchestrator.errors import ConfigurationError, TaxmeterError
from orchestrator.report.page.following import Follower
from orchestrator.report.page.html import element

LOCAL: Final = "127.0.0.1"
_NAMES: Final = {LOCAL, "localhost"}
"""By which a browser may ask: any other name is a page elsewhere that had its own name lead here (DNS rebinding)."""
_VERSION: Final = "/version"
"""What the page at / asks for, to load itself anew only if another one would be made."""
_PATHS: Final = ("/", _VERSION)
_FAST: Final = 1


class PageServer(http.server.ThreadingHTTPServer):
    """Answers each request with the page as of now."""

    daemon_threads = True

    def __init__(self, follower: Follower, port: int) -> None:
        super().__init__((LOCAL, port), _Handler)
        self.follower = follower
        self.making = threading.Lock()
        """One page is made at a time: requests that come meanwhile take the same one."""


class _Handler(http.server.BaseHTTPRequestHandler):
    server: PageServer
    server_version = "taxmeter"
    sys_version = ""

    def do_GET(self) -> None:
        """The page or what it is called now, or why there is none."""
        if (self.headers.get("Host") or "").rpartition(":")[0] not in _NAMES:
            self._answer(HTTPStatus.FORBIDDEN, "this page answers to 127.0.0.1 and localhost only")
        elif self.path.partition("?")[0] not in _PATHS:
            self._answer(HTTPStatus.NOT_FOUND, "there is one page only, at /")
        else:
            try:
                found = self._found(self.path.partition("?")[0])
            except TaxmeterError as error:
                self._answer(HTTPStatus.SERVICE_UNAVAILABLE, str(error))
            else:
                self._send(HTTPStatus.OK, found)

    def _found(self, path: str) -> str:
        with self.server.making:
            return self.server.follower.version() if path == _VERSION else self.server.follower.page()[0].html

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 -- the names are those of the library
        """Nothing: whoever reads the page sees that it works."""

    def _answer(self, status: HTTPStatus, problem: str) -> None:
        self._send(status, f"<!DOCTYPE html>{element('p', problem).html}")

    def _send(self, status: HTTPStatus, page: str) -> None:
        body = gzip.compress(page.encode(), _FAST)
        self.send_response(status)
        for name, value in {
            "Content-Type": "text/html; charset=utf-8",
            "Content-Encoding": "gzip",
            "Content-Length": str(len(body)),
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


def page_server(follower: Follower, port: int) -> PageServer:
    """A server that is bound to this machine's own address, and to be started with `serve_forever`.

    Args:
        follower: makes the page.
        port: 0 takes a free one.

    Raises:
        ConfigurationError: the port is taken, or not ours to take.
    """
    try:
        return PageServer(follower, port)
    except OSError as error:
        raise ConfigurationError(
            f"{port}: {(error.strerror or str(error)).lower()}; choose another, or 0 for a free one", key="--port"
        ) from error

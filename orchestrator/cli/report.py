"""`taxmeter report` and `taxmeter serve`: a page about what was measured, as a file or on this machine's network."""

import errno
import gzip
import http.server
import os
import threading
import time
from collections.abc import Callable
from functools import wraps
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

import click

from orchestrator.analysis.conditions import Condition, parse_conditions
from orchestrator.cli.campaigns import known_campaign
from orchestrator.cli.compare import where_option
from orchestrator.cli.stores import place_option, require_store
from orchestrator.errors import ConfigurationError, TaxmeterError
from orchestrator.report.page.html import element
from orchestrator.report.page.watch import Follower, Made, Question, follow
from orchestrator.store.query.tabular import appearing, require_place

_MEGABYTE = 1e6
_EVERY_S = 10
LOCAL: Final = "127.0.0.1"
_NAMES: Final = {LOCAL, "localhost"}
"""By which a browser may ask: any other name is a page elsewhere that had its own name lead here (DNS rebinding)."""
_VERSION: Final = "/version"
"""What the page at / asks for, to load itself anew only if another one would be made."""
_PATHS: Final = ("/", _VERSION)
MOST_CONNECTIONS: Final = 16
"""At once; a browser opens six."""
SILENCE_S: Final = 10
"""Who says nothing for so long is left."""
_FAST: Final = 1

baseline_option = click.option(
    "--baseline",
    "baselines",
    multiple=True,
    metavar="AXIS=VALUE",
    help="What ratios are against: backend=NAME (by default eager) and gpu=, cpu=, host= or system=.",
)
flagged_option = click.option(
    "--without-flagged",
    is_flag=True,
    help="Leave out of all numbers trials whose guards found that something disturbed them; they are still told.",
)
every_option = click.option(
    "--every",
    "every_s",
    type=click.IntRange(1, 3600),
    default=None,
    show_default=str(_EVERY_S),
    help="Seconds between two looks at the store.",
)


def asking(command: Callable[..., None]) -> Callable[..., None]:
    """Adds what says which trials a page is about, and how often it is made anew: a `Question`, and seconds or null."""

    @wraps(command)
    def asked(
        campaign_id: str | None,
        where: tuple[str, ...],
        baselines: tuple[str, ...],
        without_flagged: bool,
        place: str | Path,
        **options: Any,
    ) -> None:
        results = require_store(place)
        conditions: tuple[Condition, ...] = parse_conditions(where, "--where") if where else ()
        known: str | None = None
        if campaign_id is not None or not where:
            known = known_campaign(results, campaign_id, place)["campaign_id"]
            conditions = (*parse_conditions(f"campaign={known}"), *conditions)
        command(Question(results, conditions, baselines, known, without_flagged), **options)

    adding = (every_option, place_option, flagged_option, baseline_option, where_option)
    for option in (*adding, click.argument("campaign_id", metavar="[CAMPAIGN]", required=False)):
        asked = option(asked)
    return asked


@click.command("report")
@asking
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    default=Path("report.html"),
    show_default=True,
    help="The file of the page; one that is there is replaced.",
)
@click.option("--watch", is_flag=True, help="Write it again whenever rows arrive, until the campaign ends.")
def report_command(question: Question, output: Path, watch: bool, every_s: int | None) -> None:
    """Writes one page in HTML: verdicts, charts, systems, failures and raw samples, readable offline.

    Without CAMPAIGN it is about the newest one, and with --where alone about all that the store has:

    \b
      taxmeter report
      taxmeter report quickstart-2026 --where workload=bert-base
      taxmeter report --where 'gpu~*A100*,*H100*' --baseline gpu=A100
    """
    if every_s is not None and not watch:
        raise ConfigurationError("is for --watch, which writes the page again", key="--every")
    # Before the page is made, which takes a while
    require_place(output, force=True)
    if not output.parent.is_dir():
        raise ConfigurationError(f"cannot be written: {os.strerror(errno.ENOENT)}; name another file", file=output)
    refresh_s = every_s or _EVERY_S
    follower = Follower(question, refresh_s if watch else None)

    def write(made: Made) -> None:
        with appearing(output, force=True) as temporary:
            temporary.write_text(made.html, encoding="utf-8")
        size = len(made.html.encode()) / _MEGABYTE
        state = " so far; Ctrl-C ends watching" if watch and made.is_running else ""
        click.echo(f"{output}: {made.trials:,} trials, {size:.1f} MB{state}", err=True)

    if watch:
        follow(follower, write, lambda: time.sleep(refresh_s))
    else:
        write(follower.page()[0])


@click.command("serve")
@asking
@click.option("--port", type=click.IntRange(0, 65535), default=8765, show_default=True, help="0 takes a free one.")
def serve_command(question: Question, port: int, every_s: int | None) -> None:
    """Shows the page of `taxmeter report` on this machine, at 127.0.0.1 alone; it follows a running campaign.

    From elsewhere, `ssh -L 8765:127.0.0.1:8765 HOST` brings it to you.
    """
    follower = Follower(question, every_s or _EVERY_S, is_served=True)
    follower.page()
    with PageServer(follower, port) as server:
        click.echo(f"http://127.0.0.1:{server.server_port}/ shows the page; Ctrl-C ends it", err=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            click.echo("ended", err=True)


class PageServer(http.server.ThreadingHTTPServer):
    """Answers each request with the page as of now, at this machine's own address; `serve_forever` starts it."""

    daemon_threads = True
    request_queue_size = 8

    def __init__(self, follower: Follower, port: int) -> None:
        try:
            super().__init__((LOCAL, port), _Handler)
        except OSError as error:
            raise ConfigurationError(
                f"{port}: {(error.strerror or str(error)).lower()}; choose another, or 0 for a free one", key="--port"
            ) from error
        self.follower = follower
        self._free = threading.BoundedSemaphore(MOST_CONNECTIONS)
        self.making = threading.Lock()
        """One page is made at a time: requests that come meanwhile take the same one."""

    def process_request(self, request: Any, client_address: Any) -> None:
        """Gives it a thread, or closes it if too many are open: whoever says nothing takes a thread for a while."""
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()


class _Handler(http.server.BaseHTTPRequestHandler):
    timeout = SILENCE_S
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

"""`taxmeter report --watch` and `taxmeter serve`: the page follows a running campaign."""

import gzip
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from orchestrator.analysis.conditions import parse_conditions
from orchestrator.cli.report import PageServer
from orchestrator.errors import ConfigurationError
from orchestrator.report.page import make_report
from orchestrator.report.page.watch import Follower, Made, Question, follow
from orchestrator.store import Store, open_store
from tests.browser import opened
from tests.conftest import Captured
from tests.results import CAMPAIGNS, make_store, put_dimensions, taxmeter, trial


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return make_store(tmp_path / "results", trial("one"), trial("two", round=2))


def question(store: Store, campaign: str = CAMPAIGNS[0]) -> Question:
    conditions = parse_conditions(f"campaign={campaign}")
    return Question(open_store(store.layout.root), conditions, campaign_id=campaign)


def add(store: Store, *names: str, campaign: str = CAMPAIGNS[0], **more: object) -> None:
    with store.writer() as writer:
        writer.append([trial(name, campaign, **{"round": 9, **more}) for name in names])


def end(store: Store) -> None:
    with store.writer() as writer:
        writer.finish_campaign(CAMPAIGNS[0], finished_at=datetime(2025, 11, 20, 4, tzinfo=UTC))


def test_a_page_is_made_anew_only_when_the_store_has_changed(store: Store) -> None:
    follower = Follower(question(store), refresh_s=10)
    first, is_new = follower.page()
    assert (is_new, first.trials, first.is_running) == (True, 2, True)
    assert follower.page() == (first, False)
    add(store, "three")
    second, is_new = follower.page()
    assert (is_new, second.trials) == (True, 3)
    assert 'data-refresh="10"' in second.html
    assert "the page loads itself anew every 10 s" in second.html


def test_watching_ends_with_the_campaign(store: Store) -> None:
    steps = iter([lambda: add(store, "three"), lambda: None, lambda: end(store)])
    written: list[Made] = []
    follow(Follower(question(store), refresh_s=5), written.append, lambda: next(steps)())
    assert [one.trials for one in written] == [2, 3, 3]
    assert 'data-refresh="0"' in written[-1].html


def test_a_campaign_without_a_trial_has_a_page_that_waits(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "results")
    with store.writer() as writer:
        put_dimensions(writer)
    made, _ = Follower(question(store), refresh_s=5).page()
    assert "No trial has ended yet" in made.html
    assert '<meta http-equiv="refresh" content="5">' in made.html
    with pytest.raises(ConfigurationError, match="--watch"):
        Follower(question(store), refresh_s=None).page()


def test_what_a_page_cannot_show_alone_is_waited_with(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "results")
    with store.writer() as writer:
        put_dimensions(writer)
    add(store, "a-second-half", replicate=1)
    assert Follower(question(store), refresh_s=5).page()[0].trials == 0
    with pytest.raises(ConfigurationError, match="second halves"):
        make_report(open_store(tmp_path / "results"))
    add(store, "disturbed", guard_flags=["load"])
    left_out = replace(question(store), without_flagged=True)
    assert Follower(left_out, refresh_s=5).page()[0].trials == 0
    assert Follower(question(store), refresh_s=5).page()[0].trials == 2


def test_the_command_writes_the_page_of_the_newest_campaign(store: Store, tmp_path: Path) -> None:
    add(store, "other", campaign=CAMPAIGNS[1])
    target = tmp_path / "page.html"
    for _ in range(2):  # the second one takes the place of the first
        assert taxmeter("report", "--results", store.layout.root, "--output", target) == 0
    page = target.read_text()
    assert f"Campaign {CAMPAIGNS[1]}" in page
    assert 'data-refresh="0"' in page
    assert list(tmp_path.glob(".page*")) == []


@pytest.mark.parametrize(
    ("arguments", "place", "problem"),
    [
        (["nope"], "page.html", "no campaign nope"),
        ([], "page.html", "no trial has ended yet; --watch"),
        (["--where", "gpu=A100"], "page.html", "no trial has gpu=A100"),
        (["--where", "bacth=1"], "page.html", "did you mean batch"),
        ([CAMPAIGNS[0], "--baseline", "backend=nope"], "page.html", "no trial has backend=nope"),
        ([CAMPAIGNS[0], "--baseline", "dtype=float32"], "page.html", "expected backend or one of"),
        ([CAMPAIGNS[0], "--every", "5"], "page.html", "--every: is for --watch"),
        ([CAMPAIGNS[0]], "typo/page.html", "page.html: cannot be written: No such file or directory"),
        ([CAMPAIGNS[0]], "results/page.html", "is within the result store"),
    ],
)
def test_wrong_requests_are_one_line_and_write_nothing(
    store: Store, tmp_path: Path, arguments: list[str], place: str, problem: str, capfd: Captured
) -> None:
    target = tmp_path / place
    assert taxmeter("report", *arguments, "--results", store.layout.root, "--output", target) == 2
    said = capfd.readouterr().err
    assert problem in said
    assert said.count("\n") == 1
    assert not target.exists()
    assert [path.name for path in tmp_path.iterdir()] == ["results"]


@pytest.fixture
def server(store: Store) -> Iterator[PageServer]:
    with PageServer(Follower(question(store), refresh_s=2, is_served=True), port=0) as found:
        thread = threading.Thread(target=found.serve_forever)
        thread.start()
        yield found
        found.shutdown()
        thread.join()


def get(server: PageServer, path: str = "/", host: str = "127.0.0.1") -> str:
    port = server.server_port
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers={"Host": f"{host}:{port}"})
    with urllib.request.urlopen(request) as answer:
        assert answer.headers["Cache-Control"] == "no-store"
        return gzip.decompress(answer.read()).decode()


def test_the_server_has_the_page_as_of_now_and_tells_whether_there_is_anything_new(
    server: PageServer, store: Store
) -> None:
    first, page = get(server, "/version"), get(server)
    assert "<b>2</b>" in page
    assert f'data-version="{first}"' in page
    assert get(server, "/version") == first
    add(store, "three", "four", "five")
    assert get(server, "/version") != first
    assert "<b>5</b>" in get(server)


def test_the_server_is_for_this_machine_and_has_one_page(server: PageServer) -> None:
    assert server.server_address[0] == "127.0.0.1"
    assert "taxmeter" in get(server, host="localhost")
    for path, host, status in (("/etc/passwd", "127.0.0.1", 404), ("/", "evil.example", 403)):
        with pytest.raises(urllib.error.HTTPError) as caught:
            get(server, path, host)
        assert caught.value.code == status
        caught.value.close()


def test_a_port_that_is_taken_is_said(store: Store, capfd: Captured) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        assert taxmeter("serve", "--results", store.layout.root, "--port", port) == 2
    assert "--port" in capfd.readouterr().err


def test_an_open_page_shows_new_rows_by_itself(running: Browser, server: PageServer, store: Store) -> None:
    with opened(running, f"http://127.0.0.1:{server.server_port}/") as shown:
        assert shown.page.locator(".tile b").first.inner_text() == "2"
        add(store, "three")
        shown.page.wait_for_selector(".tile b:text-is('3')")
        address = f"http://127.0.0.1:{server.server_port}/"
        assert {url.partition("?")[0].partition("#")[0] for url in shown.requests} == {address, f"{address}version"}
        assert shown.said == []

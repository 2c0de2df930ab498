"""`taxmeter serve` stays answerable and small, whoever opens connections and says nothing."""

import http.client
import socket
import threading
from types import SimpleNamespace
from typing import Any, cast

from orchestrator.cli import report
from orchestrator.cli.report import MOST_CONNECTIONS, PageServer
from tests.conftest import Patch


def test_silent_connections_take_a_bounded_number_of_threads_for_a_bounded_time(monkeypatch: Patch) -> None:
    monkeypatch.setattr(report._Handler, "timeout", 1.0)
    follower = SimpleNamespace(version=lambda: "1")
    before = threading.active_count()
    with PageServer(cast("Any", follower), 0) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        silent = [socket.create_connection(("127.0.0.1", server.server_port), 5) for _ in range(100)]
        assert threading.active_count() - before <= MOST_CONNECTIONS + 1
        for connection in silent:
            connection.settimeout(20)
            assert connection.recv(1) == b"", "each is closed, at once or when its time is over"
            connection.close()
        asked = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=20)
        asked.request("GET", "/version")
        assert asked.getresponse().status == 200
        asked.close()
        server.shutdown()
        thread.join()

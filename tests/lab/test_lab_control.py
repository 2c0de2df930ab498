"""A campaign on lab hosts, whose driver is in the head's container, steered from the project on this machine."""

from collections import Counter
from pathlib import Path

import pytest

from orchestrator.campaign.control import ControlFiles
from orchestrator.cli import run
from orchestrator.errors import ExitCode
from orchestrator.store import Store
from tests.lab.workshop import HOSTS, Workshop
from tests.project import sleeps

pytestmark = [pytest.mark.engine, pytest.mark.lab, pytest.mark.cluster, pytest.mark.long]

LONGER = sleeps(rounds=4)
"""Eight trials of a second on every host, two in each task."""


def test_hosts_over_ssh_are_watched_drained_stopped_and_gone_on_with(
    with_cluster: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    workshop, log = with_cluster, tmp_path / "log"
    # this process is not the driver's, and is quicker than one that must start first
    monkeypatch.chdir(workshop.files.root)

    driver = workshop.start(log, *workshop.sweep(LONGER))
    workshop.wait_for_rows(1, driver, log)
    assert run(["sweep", "drain", "h2"]) == ExitCode.OK
    capsys.readouterr()
    assert run(["sweep", "status"]) == ExitCode.OK
    said = capsys.readouterr().out
    assert f"is running on {workshop.cluster().head_container}" in " ".join(said.split())
    assert all(f"\n{host} " in said for host in HOSTS)
    assert max(map(len, said.splitlines())) <= 80
    assert driver.wait(120) in (ExitCode.OK, ExitCode.TRIALS_FAILED), log.read_text()
    rows = Counter(row["host"] for row in workshop.rows())
    assert (rows["h1"], rows["h3"]) == (8, 8)
    assert 0 < rows["h2"] < 8
    assert rows["h2"] % 2 == 0

    # neither the sweep's file nor the inventory is needed any more
    for name in ("sweep.yaml", "hosts.yaml"):
        (workshop.files.root / name).unlink()
    done = workshop.taxmeter("sweep", "resume", code=ExitCode.OK)
    assert f"of 24 trials {8 - rows['h2']} are left (h2 {8 - rows['h2']})" in done.stdout
    assert "looking at h2\n" in done.stdout
    assert Counter((row["host"], row["status"]) for row in workshop.rows()) == {(host, "ok"): 8 for host in HOSTS}

    driver = workshop.start(log, *workshop.sweep(LONGER))
    workshop.wait_for_rows(24 + 3, driver, log)
    assert run(["sweep", "stop"]) == ExitCode.OK
    assert "has ended:" in capsys.readouterr().out
    assert driver.wait(60) == ExitCode.INTERRUPTED, log.read_text()
    assert not ControlFiles(workshop.files.control).is_alive()
    assert workshop.left_containers() == []

    some = workshop.taxmeter("sweep", "resume", "--limit", "h1:h2")
    assert "trials of the campaign are left there" in some.stdout, some.stdout + some.stderr
    status = workshop.taxmeter("sweep", "status", code=ExitCode.TRIALS_FAILED)
    assert "is not finished" in " ".join(status.stdout.split())
    workshop.taxmeter("sweep", "resume", code=ExitCode.OK)
    rows = Counter((row["host"], row["status"]) for row in workshop.rows())
    assert rows == {(host, "ok"): 16 for host in HOSTS}
    assert Store.open(workshop.results).campaigns().num_rows == 2

"""Whole sweeps on three lab hosts at once: through SSH, agents and containers, into one store on this machine."""

import os
import re
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from orchestrator.environments import BuiltImage, remove_container
from orchestrator.errors import ExitCode
from orchestrator.execution.docker import LABEL
from orchestrator.hosts.cluster.executing import run_in
from orchestrator.hosts.cluster.lifecycle import load
from orchestrator.store import Store
from tests.lab.host import LabHost
from tests.lab.workshop import HOSTS, MODELS, SLEEPS, Workshop

pytestmark = [pytest.mark.engine, pytest.mark.lab, pytest.mark.cluster]


def test_a_sweep_of_real_models_on_three_hosts(workshop: Workshop, cpu_image: BuiltImage) -> None:
    workshop.taxmeter("cluster", "down")
    done = workshop.run(MODELS)
    rows = workshop.rows()
    assert Counter((row["host"], row["status"]) for row in rows) == Counter(
        {(host, status): count for host in HOSTS for status, count in (("ok", 2), ("skipped", 1))}
    )
    ran = [row for row in rows if row["status"] == "ok"]
    assert {row["isolation"] for row in rows} == {"docker"}
    assert {row["image_id"] for row in ran} == {cpu_image.image_id}
    assert len({row["environment_id"] for row in ran}) == 1
    assert {host.hardware.cpu_model for host in workshop.lab.hosts()} == {row["cpu_model"] for row in ran}
    # what never ran on a host refers to the same system as what did
    assert len({(row["host"], row["system_id"]) for row in rows}) == 3
    assert len(Store.open(workshop.results).systems()) == 3
    assert all(row["verified"] and row["latency_sync_median_s"] for row in ran)

    assert re.search(r"\bh2: .*environment cpu, in containers", " ".join(done.stdout.split()))
    assert load(workshop.files) is None
    for host in workshop.lab.hosts():
        with host.engine() as engine:
            assert engine.containers.list(all=True, ignore_removed=True) == []
        # a campaign that lost a task, as another test's, keeps its logs
        assert not [one for one in host.run("ls", "/var/lib/taxmeter/campaigns").stdout.split() if "models" in one]


@pytest.mark.long
def test_hosts_that_are_down_or_not_as_expected_are_left_out_and_named(with_cluster: Workshop) -> None:
    workshop = with_cluster
    workshop.edit = lambda inventory: inventory.replace("Simulated Heron 9 CPU", "Simulated Swan 3 CPU")
    with ExitStack() as mend:
        dead = workshop.lab.host("h3")
        mend.callback(dead.start)
        dead.kill()
        done = workshop.run(MODELS)
    assert Counter(row["host"] for row in workshop.rows() if row["status"] == "ok") == {"h1": 2}
    reason = "h2: expect: expected processor Simulated Swan 3 CPU, found Simulated Heron 9 CPU: "
    said = " ".join(done.stdout.split())
    assert f"not measured: {reason}" in said
    assert "not measured: h3: " in said
    [campaign] = Store.open(workshop.results).campaigns().to_pylist()
    assert "h3: " in campaign["plan"]
    assert load(workshop.files) is not None


@pytest.mark.long
def test_another_host_takes_the_place_of_one_that_cannot_join(workshop: Workshop) -> None:
    workshop.taxmeter("cluster", "down")
    walled = workshop.lab.host("h1")
    with ExitStack() as mend:
        mend.callback(run_in, walled.container, ["iptables", "-F"])
        blocked = run_in(walled.container, ["iptables", "-A", "OUTPUT", "-p", "tcp", "--syn", "-j", "REJECT"])
        if blocked.exit_code != 0:
            pytest.skip(f"no firewall in a lab host: {blocked.stderr.strip()}")
        done = workshop.run(MODELS + "targets: any\n")
    [host] = {row["host"] for row in workshop.rows()}
    assert host in ("h2", "h3")
    assert Counter(row["status"] for row in workshop.rows()) == {"ok": 2, "skipped": 1}
    assert "h1: it does not reach this machine at " in done.stdout + done.stderr
    # the cluster was the sweep's, also the one that was made anew for it
    assert load(workshop.files) is None
    assert workshop.left_containers() == []


@pytest.mark.long
@pytest.mark.parametrize("ending", ["driver killed", "interrupted"])
def test_an_ended_sweep_leaves_nothing_and_goes_on(
    with_cluster: Workshop, cpu_image: BuiltImage, ending: str, tmp_path: Path
) -> None:
    workshop, log = with_cluster, tmp_path / "log"
    driver = workshop.start(log, *workshop.sweep(SLEEPS))
    before = workshop.wait_for_rows(3, driver, log)
    if ending == "driver killed":
        os.kill(workshop.driver_process(), signal.SIGKILL)
    else:
        os.killpg(driver.pid, signal.SIGINT)
    assert driver.wait(90) == (137 if ending == "driver killed" else ExitCode.INTERRUPTED), log.read_text()
    assert workshop.left_containers() == []

    [campaign] = Store.open(workshop.results).campaigns()["campaign_id"].to_pylist()
    with left_over(workshop.lab.host("h2"), cpu_image, campaign, "another") as (ours, other):
        again = workshop.run(SLEEPS)
        assert f"h2: removed container {ours}, left by a run that was killed" in again.stdout
        assert workshop.trial_containers() == [other]
    found = re.search(r"(\d+) are in the store already", again.stdout)
    assert found is not None, again.stdout
    assert int(found[1]) >= len(before)
    rows = workshop.rows()
    assert Counter((row["host"], row["status"]) for row in rows) == {(host, "ok"): 4 for host in HOSTS}
    assert len({row["trial_id"] for row in rows}) == 12
    assert len({row["campaign_id"] for row in rows}) == 1
    assert before <= {row["trial_id"] for row in rows}


@contextmanager
def left_over(host: LabHost, image: BuiltImage, *campaigns: str) -> Iterator[list[str]]:
    """Containers on a host as trials of campaigns, whose names are yielded."""
    with host.engine() as engine:
        containers = [
            engine.containers.run(
                image.reference, ["sleep", "600"], labels={LABEL: one}, network_mode="none", init=True, detach=True
            )
            for one in campaigns
        ]
        try:
            yield [str(one.name) for one in containers]
        finally:
            for one in containers:
                remove_container(one)

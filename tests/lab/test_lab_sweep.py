"""Whole sweeps on three lab hosts at once: through SSH, agents and containers, into one store on this machine."""

import re
from collections import Counter

import pytest

from orchestrator.environments import BuiltImage
from orchestrator.hosts.cluster.lifecycle import load
from orchestrator.store import Store
from tests.lab.workshop import HOSTS, MODELS, Workshop

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

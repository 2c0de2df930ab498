"""What the containers of a cluster should be, and what is wrong where they are found otherwise. Without an engine."""

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.config import Connection, Exclusive, Host
from orchestrator.environments import ImageIdentity
from orchestrator.hosts.cluster.engines import MENDS, Observed, Versions, problems
from orchestrator.hosts.cluster.plan import (
    LABEL,
    LABEL_NODE,
    LABEL_PLAN,
    AgentImage,
    ClusterPlan,
    ContainerPlan,
    Site,
    agent_container,
    head_container,
    refuse_unfit,
)
from orchestrator.hosts.cluster.state import Cluster
from orchestrator.hosts.lock import LOCKS, LOCKS_VARIABLE

SECRET = "5ec2e7"
IMAGE = AgentImage("taxmeter/agent:1", ImageIdentity("sha256:1", "0" * 64, ()))
CLUSTER = Cluster("c1", 20000, Path("/p/.taxmeter/cluster/token"), Path("/tmp/s"), "10.0.0.1")
PLAN = ClusterPlan(CLUSTER, IMAGE, SECRET, {})
SITE = Site("h1", Host(connection=Connection.LOCAL), "/work", "10.0.0.7", None, has_gpus=True, has_os_release=True)
SOCKET = "/dev/null"  # of an engine; only whose it is counts
VERSIONS = Versions("3.11.2", "2.60.0", hashlib.sha256(SECRET.encode()).hexdigest())
FOUND = Observed("running", None, "2026-01-01T00:00:00Z", "plan", "node", VERSIONS, ("node",))


def agent(plan: ClusterPlan = PLAN, site: Site = SITE, head: str = "head-1") -> ContainerPlan:
    return agent_container(plan, site, "/run/docker.sock", "sha256:2", head)


def head(plan: ClusterPlan = PLAN) -> ContainerPlan:
    return head_container(plan, Path("/p"), SOCKET)


def in_cluster(**changes: Any) -> ClusterPlan:
    return replace(PLAN, cluster=replace(CLUSTER, **changes))


def on_host(**changes: Any) -> Site:
    return replace(SITE, host=SITE.host.model_copy(update=changes))


def test_what_runs_and_is_right_stays() -> None:
    for found in (FOUND, replace(FOUND, living=("earlier", "node"))):
        assert problems(found, plan="plan", node="node", versions=VERSIONS) == ()
        assert problems(replace(found, plan="other", node=None, living=())) == ()


@pytest.mark.parametrize(
    ("found", "problem"),
    [
        (Observed(), "its container is missing"),
        (Observed("exited", plan="plan", node="node", living=("node",)), "its container is exited"),
        (replace(FOUND, versions=None), "it does not tell its versions"),
        (replace(FOUND, versions=replace(VERSIONS, token="none")), "its token is not that of the cluster"),
        (replace(FOUND, versions=replace(VERSIONS, ray="1.2.3")), "it has Ray 1.2.3, and the head has 2.60.0"),
        (replace(FOUND, versions=replace(VERSIONS, python="3.12.0")), "it has Python 3.12.0, and the head has 3.11.2"),
        (replace(FOUND, plan="other"), "its image, its settings or its token have changed"),
        (replace(FOUND, node="other"), "its container is not the one that `up` started"),
        (replace(FOUND, living=("other",)), "its container runs, but Ray does not count it among the living nodes"),
    ],
)
def test_what_is_wrong_is_named(found: Observed, problem: str) -> None:
    assert problems(found, plan="plan", node="node", versions=VERSIONS) == (f"{problem}; {MENDS}",)


def test_what_is_made_from_anything_else_is_another_container() -> None:
    others = [
        agent(replace(PLAN, token="another")),
        agent(in_cluster(first_port=21000)),
        agent(replace(PLAN, tls={"RAY_TLS_CA_CERT": b"x"})),
        agent(head="head-2"),
        *(agent(site=site) for site in (replace(SITE, work_directory="/other"), replace(SITE, has_gpus=False))),
        agent(site=on_host(reserved_cores=2)),
        agent(site=on_host(labels={"rack": "b"})),
        agent(site=on_host(exclusive=Exclusive.GPU)),
        head(replace(PLAN, token="another")),
        head(in_cluster(head_address="10.0.0.2")),
    ]
    assert len({plan.digest for plan in (agent(), head(), *others)}) == len(others) + 2
    assert (agent().digest, head().digest) == (agent().digest, head().digest)


def test_a_node_has_its_own_label_and_the_plan_of_all() -> None:
    created = agent().created("n7")
    assert "taxmeter-node=n7" in " ".join(created["command"])
    assert (created["labels"][LABEL], created["labels"][LABEL_NODE]) == ("c1", "n7")
    assert created["labels"][LABEL_PLAN] == agent().created("n8")["labels"][LABEL_PLAN] == agent().digest
    refuse_unfit(Host(connection=Connection.LOCAL, labels={"rack": "b-1", "org/site": "lab_2"}))


def test_the_head_sees_the_project_and_the_clusters_files_wherever_they_are() -> None:
    elsewhere = head(in_cluster(token_path=Path("/elsewhere/token")))
    assert elsewhere.settings["volumes"].keys() == {"/p", "/tmp/s", "/elsewhere", SOCKET}
    assert head().settings["volumes"].keys() == {"/p", "/tmp/s", SOCKET}


def test_a_driver_asks_for_the_very_lock_of_a_host_that_its_agent_sees() -> None:
    assert agent().settings["volumes"][str(LOCKS)] == {"bind": str(LOCKS), "mode": "rw"}
    assert {plan.settings["environment"][LOCKS_VARIABLE] for plan in (head(), agent())} == {str(LOCKS)}

"""What the containers of a cluster should be, and what follows where they are found otherwise. Without an engine."""

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.config import Connection, Exclusive, Host
from orchestrator.environments import ImageIdentity
from orchestrator.hosts.cluster.image import AgentImage
from orchestrator.hosts.cluster.plan import (
    LABEL,
    LABEL_NODE,
    LABEL_PLAN,
    MENDS,
    Action,
    ClusterPlan,
    Difference,
    HeadPlace,
    Observed,
    Site,
    Versions,
    Wanted,
    agent_container,
    difference,
    head_container,
)
from orchestrator.hosts.cluster.settings import TOKEN, Ports
from orchestrator.hosts.cluster.survey import Survey

SECRET = "5ec2e7"
IMAGE = AgentImage("taxmeter/agent:1", ImageIdentity("sha256:1", "0" * 64, ()))
PLAN = ClusterPlan("c1", "10.0.0.1", Ports(20000), IMAGE, SECRET, {})
PLACE = HeadPlace(Path("/p"), Path("/p/.taxmeter/cluster"), Path("/p/t"), "/tmp/s", "/run/docker.sock", 1000, 1000, 999)
SITE = Site("h1", Host(connection=Connection.LOCAL), "/work", Survey(None, None, True, True), "10.0.0.7")

VERSIONS = Versions("3.11.2", "2.60.0", hashlib.sha256(SECRET.encode()).hexdigest())
WANTED = Wanted("plan", "node", SECRET, "3.11.2", "2.60.0")
FOUND = Observed("running", "id", "2026-01-01T00:00:00Z", "plan", "node", VERSIONS, ("node",))


def agent(plan: ClusterPlan = PLAN, site: Site = SITE, head: str = "head-1") -> str:
    return agent_container(plan, site, "/run/docker.sock", "sha256:2", head).digest


def test_what_runs_and_is_right_stays() -> None:
    assert difference(WANTED, FOUND) == Difference(Action.KEEP)
    assert difference(WANTED, replace(FOUND, living=("earlier", "node"))) == Difference(Action.KEEP)
    assert difference(Wanted(), replace(FOUND, plan="other", node=None, living=())) == Difference(Action.KEEP)


def test_what_is_not_there_is_made_and_what_ended_is_made_anew() -> None:
    assert difference(WANTED, Observed()) == Difference(Action.MAKE, (f"its container is missing; {MENDS}",))
    ended = Observed("exited", "id", plan="plan", node="node", living=("node",))
    assert difference(WANTED, ended) == Difference(Action.REPLACE, (f"its container is exited; {MENDS}",))


@pytest.mark.parametrize(
    ("found", "problem"),
    [
        (replace(FOUND, versions=None), "it does not tell its versions"),
        (replace(FOUND, versions=replace(VERSIONS, token="none")), "its token is not that of the cluster"),
        (replace(FOUND, versions=replace(VERSIONS, ray="1.2.3")), "it has Ray 1.2.3, and the head has 2.60.0"),
        (replace(FOUND, versions=replace(VERSIONS, python="3.12.0")), "it has Python 3.12.0, and the head has 3.11.2"),
        (replace(FOUND, plan="other"), "its image, its settings or its token have changed"),
        (replace(FOUND, node="other"), "its container is not the one that `up` started"),
        (replace(FOUND, living=("other",)), "its container runs, but Ray does not count it among the living nodes"),
    ],
)
def test_what_is_wrong_is_named_and_made_anew(found: Observed, problem: str) -> None:
    assert difference(WANTED, found) == Difference(Action.REPLACE, (f"{problem}; {MENDS}",))


def test_an_agent_of_anything_else_is_another_agent() -> None:
    host = SITE.host
    others = [
        agent(replace(PLAN, token="another")),
        agent(replace(PLAN, ports=Ports(21000))),
        agent(replace(PLAN, tls={"RAY_TLS_CA_CERT": b"x"})),
        agent(head="head-2"),
        agent(site=replace(SITE, work_directory="/other")),
        agent(site=replace(SITE, survey=Survey(None, None, False, True))),
        agent(site=replace(SITE, host=host.model_copy(update={"reserved_cores": 2}))),
        agent(site=replace(SITE, host=host.model_copy(update={"labels": {"rack": "b"}}))),
        agent(site=replace(SITE, host=host.model_copy(update={"exclusive": Exclusive.GPU}))),
    ]
    assert len({agent(), *others}) == len(others) + 1
    assert agent() == agent()


def test_a_node_has_its_own_label_and_the_plan_of_all() -> None:
    plan = agent_container(PLAN, SITE, "/run/docker.sock", "sha256:2", "head-1")
    created = plan.created("n7")
    assert "taxmeter-node=n7" in " ".join(created["command"])
    assert created["labels"][LABEL_NODE] == "n7"
    assert created["labels"][LABEL_PLAN] == plan.created("n8")["labels"][LABEL_PLAN] == plan.digest
    assert created["labels"][LABEL] == "c1"


def test_the_secret_is_put_into_agents_and_in_nothing_that_an_engine_tells() -> None:
    plan = agent_container(PLAN, SITE, "/run/docker.sock", "sha256:2", "head-1")
    assert plan.files[TOKEN] == SECRET.encode()
    assert SECRET not in str(plan.created("n"))
    assert SECRET not in str(head_container(PLAN, PLACE).created())


def test_a_head_of_anything_else_is_another_head() -> None:
    digest = head_container(PLAN, PLACE).digest
    assert head_container(PLAN, PLACE).digest == digest
    assert head_container(replace(PLAN, token="another"), PLACE).digest != digest
    assert head_container(replace(PLAN, address="10.0.0.2"), PLACE).digest != digest
    assert head_container(PLAN, replace(PLACE, state=Path("/elsewhere"))).settings["volumes"].keys() >= {"/elsewhere"}

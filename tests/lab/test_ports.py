"""What a cluster listens on, seen from outside, and what it tells whoever has no token or a wrong one."""

import json
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from docker import DockerClient

from orchestrator.environments import connect
from orchestrator.hosts.cluster import Cluster
from orchestrator.hosts.cluster.executing import execution
from orchestrator.hosts.cluster.plan import AgentImage
from tests.lab import probe
from tests.lab.clusters import Site, foreign
from tests.lab.host import LabHost
from tests.lab.lab import Lab

pytestmark = [pytest.mark.long, pytest.mark.engine, pytest.mark.lab, pytest.mark.cluster]

TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
LISTENS = "0A"
LOOPBACK = ("0100007F", "00000000000000000000000001000000")
OK, UNIMPLEMENTED, UNAUTHENTICATED = "0", "12", "16"
"""Of gRPC."""
NO_ANSWER = "no answer"


@dataclass(frozen=True)
class Watched:
    """A cluster, and the ports that somebody has listened on from outside since it came up."""

    cluster: Cluster
    of_head: frozenset[int]
    of_host: frozenset[int]


def listening(tables: str, sockets: frozenset[str] | None = None) -> frozenset[int]:
    """Ports that are reached from other machines; of these sockets alone, if any are named by their numbers."""
    found = [line.split() for line in tables.splitlines()]
    listed = [line for line in found if line[3:4] == [LISTENS] and (sockets is None or line[9] in sockets)]
    ends = [line[1].split(":") for line in listed]
    return frozenset(int(port, 16) for address, port in ends if address not in LOOPBACK)


def of_head(cluster: Cluster, client: DockerClient) -> frozenset[int]:
    """Ports of the processes in the container of the head, which has this machine's network."""
    listed = client.containers.get(cluster.head_container).top(ps_args="-eo pid")["Processes"]
    opened = {str(entry.readlink()) for [pid] in listed for entry in Path(f"/proc/{pid.strip()}/fd").iterdir()}
    sockets = frozenset(name[len("socket:[") : -1] for name in opened if name.startswith("socket:["))
    return listening("\n".join(Path(table).read_text() for table in TABLES), sockets)


def there(host: LabHost) -> frozenset[int]:
    return listening(host.sh(f"cat {' '.join(TABLES)}"))


SLEEPER = """
import ray, time
ray.init(logging_level="error", log_to_driver=False)
@ray.remote(num_cpus=0, resources={"bench_slot": 1})
def sleep():
    time.sleep(600)
asked = sleep.options(label_selector={"taxmeter-host": "h1"}).remote()
print("asked", flush=True)
ray.get(asked)
"""
"""A task, with which driver and worker have their ports."""


@pytest.fixture(scope="module")
def watched(shared_lab: Lab, image: AgentImage, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    shared_lab.up(hosts=3)
    shared_lab.seed([image.reference])
    before = there(shared_lab.host("h1"))
    site = Site(shared_lab, tmp_path_factory.mktemp("ports") / "state")
    try:
        cluster = site.up("h1")
        with closing(connect()) as client, execution(cluster, ["python", "-c", SLEEPER]):
            first, last = cluster.ports.agent_workers
            deadline = time.monotonic() + 60
            while not there(shared_lab.host("h1")).intersection(range(first, last + 1)):
                assert time.monotonic() < deadline, "no worker listens"
                time.sleep(0.5)
            yield Watched(cluster, of_head(cluster, client), there(shared_lab.host("h1")) - before)
    finally:
        site.down()
        # nobody listens any more
        assert there(shared_lab.host("h1")) == before


def asked(
    lab: Lab, watched: Watched, token: str | None, *, is_right: bool = False
) -> dict[tuple[str, int], dict[str, Any]]:
    """What a stranger on another host of the lab is told, by place and port."""
    places = {
        "head": (watched.cluster.head_address, watched.of_head),
        "host": (lab.host("h1").address, watched.of_host),
    }
    asking = [(place, address, port) for place, (address, ports) in places.items() for port in sorted(ports)]
    questions = json.dumps([[address, port, token, is_right] for _, address, port in asking])
    with lab.host("h3").engine() as engine:
        image = watched.cluster.agents["h1"].image_id
        with foreign(
            engine, image, "python", "-c", Path(probe.__file__).read_text(), questions, network_mode="host"
        ) as stranger:
            code, said = stranger.wait(timeout=600)["StatusCode"], stranger.logs().decode()
    assert code == 0, said
    return {(place, port): answer for (place, _, port), answer in zip(asking, json.loads(said), strict=True)}


def told(answers: Iterable[str]) -> str:
    return ", ".join(f"{answer} × {count}" for answer, count in sorted(Counter(answers).items()))


def test_ports_from_outside_are_those_of_the_block_and_tell_nothing_without_the_token(
    lab: Lab, watched: Watched
) -> None:
    first = watched.cluster.first_port
    assert watched.of_head <= set(range(first, first + 300))
    assert watched.of_host <= {*range(first + 10, first + 17), *range(first + 200, first + 300)}
    right = asked(lab, watched, watched.cluster.token_path.read_text().strip(), is_right=True)
    for token in (None, "0" * 64):
        answers = asked(lab, watched, token)
        for (place, port), answer in answers.items():
            others = right[place, port]
            print(f"{place} +{port - first} {'wrong token' if token else 'no token'}: gRPC {told(answer['grpc'].values())} "
                  f"(right: {told(others['grpc'].values())}), HTTP {told(answer['http'].values())} "
                  f"(right: {told(others['http'].values())})")  # fmt: skip
            # what there is refuses; what is not there is unimplemented
            assert set(answer["grpc"].values()) in ({UNAUTHENTICATED, UNIMPLEMENTED}, {NO_ANSWER})
            assert set(answer["http"].values()) <= {NO_ANSWER, "401", "403"}
            assert {UNAUTHENTICATED, "401", "403"}.intersection([*answer["grpc"].values(), *answer["http"].values()])
    # the control: with the token the head does tell
    assert OK in {status for answer in right.values() for status in answer["grpc"].values()}

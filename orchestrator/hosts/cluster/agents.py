"""The agents: one container on every host, which is a node of Ray and starts the containers of trials beside itself."""

import hashlib
import json
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from docker import DockerClient
from docker.errors import NotFound
from docker.types import Mount

from orchestrator.config.inventory import Exclusive, Host
from orchestrator.environments import UNLABELLED, remove_container
from orchestrator.errors import InfrastructureError
from orchestrator.hosts.cluster import boot
from orchestrator.hosts.cluster.code import CodeArchive
from orchestrator.hosts.cluster.commands import run_in
from orchestrator.hosts.cluster.engines import (
    LABEL,
    LABEL_NODE,
    LABEL_PLAN,
    LABEL_ROLE,
    HostEngine,
    find,
    plan_of,
    put_files,
    remove,
)
from orchestrator.hosts.cluster.head import SHARED_MEMORY, SOCKET
from orchestrator.hosts.cluster.image import AgentImage
from orchestrator.hosts.cluster.model import AGENT_CONTAINER, Agent
from orchestrator.hosts.cluster.probe import ALL_GPUS, Probe
from orchestrator.hosts.cluster.settings import DIRECTORY, TOKEN, Ports, agent_command, environment, tls_files
from orchestrator.hosts.cluster.survey import Survey
from orchestrator.hosts.cluster.watching import NODE_LABEL
from orchestrator.hosts.labels import HOST_LABEL, SLOT
from orchestrator.hosts.lock import LOCKS

ROLE = "agent"
MOST_SLOTS = 64
"""Of a host with `exclusive: gpu`, before its GPUs are counted: the driver never asks for more than one for each."""
BOOT = f"{DIRECTORY}/boot.py"
_ARCHIVE = f"{DIRECTORY}/code.tar"
_LAST_LINES = 40
_MOST_CHARACTERS = 600
# What Ray takes as a label; of a key also with a prefix.
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?")
_LABEL_KEY = re.compile(r"([a-z0-9.-]+/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")


@dataclass(frozen=True)
class Plan:
    """What all agents of a cluster are made from."""

    cluster: str
    head_address: str
    head_container: str
    """Its id: agents of an earlier head are of no use."""
    ports: Ports
    image: AgentImage
    code: CodeArchive
    token: str
    tls: Mapping[str, bytes]
    """Of `settings.chosen_tls`."""


@dataclass(frozen=True)
class Site:
    """A host that was reached."""

    name: str
    host: Host
    work_directory: str
    survey: Survey
    address: str


def refuse_labels(host: Host) -> None:
    """Checks the labels of a host.

    Raises:
        InfrastructureError: Ray does not take one of them.
    """
    for key, value in host.labels.items():
        if not _LABEL_KEY.fullmatch(key) or not _LABEL_VALUE.fullmatch(value):
            raise InfrastructureError(
                f"Ray does not take its label `{key}: {value}`: at most 63 letters, digits, '-', '_' and '.', with "
                "a letter or digit first and last"
            )


def running_node(client: DockerClient, plan: Plan, site: Site, digest: str) -> str | None:
    """The node of the agent that runs on a host, if it is made as it should be and its code is whole; else null.

    Raises:
        docker.errors.DockerException, requests.RequestException: the engine failed.
    """
    container = find(client, f"{AGENT_CONTAINER}{plan.cluster}", plan.cluster)
    if container is None or container.status != "running" or container.labels.get(LABEL_PLAN) != digest:
        return None
    found = read_report(container, _code(plan, site))
    token = hashlib.sha256(plan.token.encode("ascii")).hexdigest()
    whole = found is not None and (found["code"], found["token"]) == (plan.code.digest, token)
    return str(container.labels[LABEL_NODE]) if whole else None


def read_report(container: Any, code: str, program: str = BOOT) -> dict[str, str] | None:
    """What a running container of ours says about its code and its versions; null if it cannot.

    Args:
        container: of an agent or the head.
        code: where our packages lie in it.
        program: where `boot.py` lies in it.
    """
    done = run_in(container, ["python", program, "report", code])
    if done.exit_code != 0:
        return None
    found: dict[str, str] = json.loads(done.output)
    return found


def forget_old_code(client: DockerClient, plan: Plan, site: Site) -> str | None:
    """Has an agent remove code that no agent of its host uses, of whichever cluster; null, or why it could not.

    Raises:
        docker.errors.DockerException, requests.RequestException: the engine failed.
    """
    selected = {"label": f"{LABEL_ROLE}={ROLE}"}
    agents = client.containers.list(all=True, filters=selected, ignore_removed=True)
    used = {_used_code(one) for one in agents} - {""}
    container = find(client, f"{AGENT_CONTAINER}{plan.cluster}", plan.cluster)
    if container is None:
        return None
    done = run_in(container, ["python", BOOT, "prune", f"{site.work_directory}/code", *sorted(used)])
    return None if done.exit_code == 0 else done.last_words


def _used_code(container: Any) -> str:
    variables = container.attrs["Config"].get("Env") or ()
    return next((one.rpartition("/")[2] for one in variables if one.startswith("PYTHONPATH=")), "")


def start_agent(engine: HostEngine, plan: Plan, site: Site, probe: Probe, image_id: str) -> Agent:
    """Makes the agent of a host. It becomes a node a few seconds later.

    Raises:
        docker.errors.DockerException, requests.RequestException: the engine failed.
    """
    node = secrets.token_hex(6)
    agent = Agent(
        name=site.name,
        address=site.address,
        work_directory=site.work_directory,
        cores=probe.cores,
        agent_cores=probe.cores[: site.host.reserved_cores],
        code_digest=plan.code.digest,
        image_id=image_id,
        gpu_uuids=probe.gpu_uuids,
        node=node,
    )
    digest = digest_of(engine.socket, plan, site, image_id)
    container = engine.client.containers.create(
        name=f"{AGENT_CONTAINER}{plan.cluster}",
        command=_command(plan, site, node),
        labels={LABEL: plan.cluster, LABEL_ROLE: ROLE, LABEL_PLAN: digest, LABEL_NODE: node},
        cpuset_cpus=",".join(map(str, agent.agent_cores)) or None,
        device_requests=[ALL_GPUS] if probe.with_gpus else None,
        **_configuration(engine.socket, plan, site, image_id),
    )
    try:
        own = {TOKEN: plan.token.encode("ascii"), BOOT: Path(boot.__file__).read_bytes(), _ARCHIVE: plan.code.tar}
        put_files(container, own | tls_files(plan.tls))
        container.start()
    except BaseException:
        remove_container(container)
        raise
    return agent


def remove_agent(client: DockerClient, cluster: str) -> None:
    """Removes the agent of a cluster from a host, if there is one."""
    container = find(client, f"{AGENT_CONTAINER}{cluster}", cluster)
    if container is not None:
        remove(container)


def agent_log(client: DockerClient, cluster: str) -> str | None:
    """The end of what an agent said that does not run; null if it runs."""
    try:
        container = client.containers.get(f"{AGENT_CONTAINER}{cluster}")
    except NotFound:
        return "it is gone"
    if container.status == "running":
        return None
    return last_words(container.logs(tail=_LAST_LINES).decode("utf-8", "replace"))


def last_words(log: str) -> str:
    """What a process said at its end, in one line; of tracebacks the exceptions alone."""
    lines = [line for line in log.splitlines() if line.strip()]
    kept: list[str] = []
    # The end of a log may begin within a frame
    in_frames = any(line.lstrip().startswith('File "') for line in lines) and lines[0][0].isspace()
    for line in lines:
        if line.startswith("Traceback (most recent call last)") or line.lstrip().startswith('File "'):
            in_frames = True
        elif not (in_frames and line[0].isspace()):
            in_frames = False
            kept.append(line)
    return " ".join(" ".join(kept or lines).split())[-_MOST_CHARACTERS:] or "it said nothing"


def digest_of(socket: str, plan: Plan, site: Site, image_id: str) -> str:
    """Of all that the agent of a host is made from, as far as it is known before anything runs there."""
    configuration = _configuration(socket, plan, site, image_id)
    more = [
        str(site.host.reserved_cores),
        str(site.survey.has_gpus),
        plan.head_container,
        plan.token,
        str(sorted(plan.tls.items())),
    ]
    return plan_of(configuration, *_command(plan, site, ""), *more)


def _configuration(socket: str, plan: Plan, site: Site, image_id: str) -> dict[str, Any]:
    mounts = [Mount(target=SOCKET, source=socket, type="bind")]
    if site.survey.has_os_release:
        # for the fingerprint: it is the host that is described, not the image
        mounts.append(Mount(target="/etc/os-release", source="/etc/os-release", type="bind", read_only=True))
    return {
        "image": image_id,
        "network_mode": "host",
        "init": True,
        "shm_size": SHARED_MEMORY,
        "mounts": mounts,
        "security_opt": [UNLABELLED],
        # as volumes, so that the engine makes the directories if they are not there
        "volumes": {path: {"bind": path, "mode": "rw"} for path in (site.work_directory, str(LOCKS))},
        "environment": environment(TOKEN, _code(plan, site), plan.tls),
        # an agent that died is made anew by `up`, never by the engine
        "restart_policy": {"Name": "no"},
    }


def _command(plan: Plan, site: Site, node: str) -> list[str]:
    labels: Mapping[str, str] = {**site.host.labels, HOST_LABEL: site.name, NODE_LABEL: node}
    head = f"{plan.head_address}:{plan.ports.head}"
    return [
        # every user of the host may take its lock, also where the engine has just made the directory
        *("sh", "-c", f'chmod 1777 {LOCKS} && exec "$@"', "sh"),
        *("python", BOOT, "start", _ARCHIVE, _code(plan, site), plan.code.digest),
        *agent_command(head, site.address, plan.ports, labels, {SLOT: _slots(site)}),
    ]


def _slots(site: Site) -> int:
    return MOST_SLOTS if site.host.exclusive is Exclusive.GPU and site.survey.has_gpus else 1


def _code(plan: Plan, site: Site) -> str:
    return f"{site.work_directory}/code/{plan.code.name}"

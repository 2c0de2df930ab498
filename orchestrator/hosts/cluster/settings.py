"""How Ray is started: its environment, its ports and its options, for the head and for the agents."""

import json
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from orchestrator.errors import ConfigurationError

HOST_LABEL: Final = "taxmeter-host"
SLOT: Final = "bench_slot"
"""A resource, usually one per host: a second benchmark would disturb the first, whatever cores it uses."""
RELAY: Final = "relay_slot"
"""Of the node beside the driver, on which tasks wait for hosts that no node serves."""
RELAY_SLOTS: Final = 1000

FIRST_PORT = 20000
FIRST_PORT_VARIABLE = "TAXMETER_FIRST_PORT"
_WORKERS = 100
_LAST = 300
_END = 32768
"""From here on the kernel takes ports for outgoing connections, so that none can be kept free."""

HEAD_MEMORY_BYTES = 200_000_000
"""Of Ray's object store, in shared memory: events and nothing larger."""

CODE_VARIABLE = "TAXMETER_CODE"
"""Names, in the environment of a driver, the directory with our packages that Ray is to bring to the hosts."""

DIRECTORY = "/run/taxmeter"
"""In every container of the cluster: the token, and what else is put into it."""
TOKEN = f"{DIRECTORY}/token"

_TLS = {
    "RAY_TLS_SERVER_CERT": f"{DIRECTORY}/tls-server.crt",
    "RAY_TLS_SERVER_KEY": f"{DIRECTORY}/tls-server.key",
    "RAY_TLS_CA_CERT": f"{DIRECTORY}/tls-ca.crt",
}

# Undocumented settings of Ray, each of which was found to matter.
WORKERS: Final = {
    # Ray would run them at nice 15, and what they start with them
    "RAY_worker_niceness": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
"""For the processes of our tasks, on whichever cluster."""

CLUSTER: Final = {
    **WORKERS,
    # it would kill the worker, and with it the task, where only the trial is to die of its own limit
    "RAY_memory_monitor_refresh_ms": "0",
    # what runs beside a measurement runs as little as it can
    "RAY_enable_metrics_collection": "false",
    "RAY_event_stats": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
}
"""For every cluster that we start."""

# A frozen host would leave its task pending for ever. What waits longer than the keepalive's timeout for an
# acknowledgement ends its connection (gRPC gives the timeout to TCP too, as TCP_USER_TIMEOUT), and with the connection
# its task: not sooner than a host is lost by its silence.
_FAR = {
    "RAY_health_check_initial_delay_ms": "2000",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "2000",
    "RAY_health_check_failure_threshold": "5",
    "RAY_grpc_client_keepalive_time_ms": "5000",
    "RAY_grpc_client_keepalive_timeout_ms": "10000",
}


@dataclass(frozen=True)
class Ports:
    """All ports of a cluster, counted from one; a firewall must pass those, and SSH."""

    first: int

    @property
    def head(self) -> int:
        """Where the agents find the head."""
        return self.first

    @property
    def driver_workers(self) -> tuple[int, int]:
        """First and last of the driver, where the agents speak to it."""
        return self.first + _WORKERS, self.first + 2 * _WORKERS - 1

    @property
    def agent_workers(self) -> tuple[int, int]:
        """First and last of an agent's processes, where the driver speaks to them."""
        return self.first + 2 * _WORKERS, self.first + 3 * _WORKERS - 1

    @property
    def node_manager(self) -> int:
        """Of an agent, where the head asks whether it lives."""
        return self.first + 11

    def of_head(self) -> list[str]:
        """Options of Ray for the head."""
        return [f"--port={self.head}", *_options(self.first, self.driver_workers)]

    def of_agent(self) -> list[str]:
        """Options of Ray for an agent; other ports than the head's, so that both fit onto one machine."""
        return _options(self.first + 10, self.agent_workers)


def chosen_ports(first: int | None, taken: Collection[int] = frozenset()) -> Ports:
    """The ports that were asked for, else those of the environment variable TAXMETER_FIRST_PORT, else the first free.

    Args:
        taken: ports that somebody has, here or on a host, such as the cluster of another project.
    """
    given = os.environ.get(FIRST_PORT_VARIABLE) if first is None else str(first)
    if not given:
        return _free_ports(taken)
    if not given.isdecimal() or not 1024 <= int(given) <= 65536 - _LAST:
        raise ConfigurationError(
            f"the cluster takes {_LAST} ports from {given} on; expected a number from 1024 to {65536 - _LAST}",
            key="first port",
        )
    return Ports(int(given))


def _free_ports(taken: Collection[int]) -> Ports:
    for first in range(FIRST_PORT, _END - _LAST + 1, _LAST):
        if not any(first <= port < first + _LAST for port in taken):
            return Ports(first)
    raise ConfigurationError(
        f"of the ports from {FIRST_PORT} to {_END - 1} no {_LAST} in a row are free on this machine and all hosts: say "
        "where there are some with --first-port",
        key="first port",
    )


def chosen_tls(environ: Mapping[str, str]) -> dict[str, bytes]:
    """What Ray's own variables of TLS name: the content of each file, by the variable; empty without TLS.

    Args:
        environ: with RAY_USE_TLS and the paths, on this machine, of certificate, key and authority.
    """
    if environ.get("RAY_USE_TLS", "0") != "1":
        return {}
    found = {}
    for name in _TLS:
        if name not in environ:
            raise ConfigurationError(f"RAY_USE_TLS is 1, so name a file with {name} too", key=name)
        try:
            found[name] = Path(environ[name]).read_bytes()
        except OSError as error:
            raise ConfigurationError(f"{environ[name]}: {error.strerror}", key=name) from None
    return found


def tls_files(tls: Mapping[str, bytes]) -> dict[str, bytes]:
    """The files of TLS by their paths in a container."""
    return {_TLS[name]: content for name, content in tls.items()}


def environment(token: str, tls: Mapping[str, bytes]) -> dict[str, str]:
    """The environment of Ray in a container.

    Args:
        token: path of the file in the container. The token itself is in no environment and on no command line.
    """
    encrypted = {"RAY_USE_TLS": "1", **{name: _TLS[name] for name in tls}} if tls else {}
    return {**CLUSTER, **_FAR, **encrypted, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": token}


def head_command(address: str, ports: Ports) -> list[str]:
    """Starts the head, on which no task ever runs but waits for hosts without agents."""
    return [
        *("ray", "start", "--head", "--block", f"--node-ip-address={address}", "--num-cpus=0", "--num-gpus=0"),
        *("--include-dashboard=false", "--include-log-monitor=false", "--disable-usage-stats", "--labels=role=driver"),
        f"--resources={json.dumps({RELAY: RELAY_SLOTS})}",
        *(f"--object-store-memory={HEAD_MEMORY_BYTES}", *ports.of_head()),
    ]


def agent_command(
    head: str, address: str, ports: Ports, labels: Mapping[str, str], slots: Mapping[str, int]
) -> list[str]:
    """Starts the node of a host.

    Args:
        slots: the resource by which benchmarks run one at a time, or at most so many at once.
    """
    return [
        *("ray", "start", "--block", f"--address={head}", f"--node-ip-address={address}"),
        *("--num-cpus=0", "--num-gpus=0", f"--resources={json.dumps(dict(slots))}"),
        f"--labels={','.join(f'{key}={value}' for key, value in labels.items())}",
        *("--include-log-monitor=false", "--disable-usage-stats"),
        *(f"--object-store-memory={HEAD_MEMORY_BYTES}", *ports.of_agent()),
    ]


def _options(first: int, workers: tuple[int, int]) -> list[str]:
    return [
        f"--node-manager-port={first + 1}",
        f"--object-manager-port={first + 2}",
        f"--dashboard-agent-listen-port={first + 3}",
        f"--dashboard-agent-grpc-port={first + 4}",
        f"--runtime-env-agent-port={first + 5}",
        f"--metrics-export-port={first + 6}",
        f"--min-worker-port={workers[0]}",
        f"--max-worker-port={workers[1]}",
    ]

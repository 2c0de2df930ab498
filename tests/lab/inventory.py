"""The inventory of a lab, as a person would write it for machines of this kind."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.lab.hardware import Hardware
from tests.lab.host import LabHost
from tests.lab.keys import IDENTITY, USER

_HEAD = """\
# The lab hosts of this machine: written when the lab comes up, with the keys that its hosts were given then, and removed
# when it goes down. docs/lab.md says what they can show, and what not.
version: 1
"""


def inventory_text(hosts: Sequence[LabHost], host_keys: Mapping[str, str], directory: Path) -> str:
    """An inventory with the host keys pinned; `directory` holds the client's key."""
    cores = len(os.sched_getaffinity(0))
    defaults = {
        "user": USER,
        "identity_file": str(directory / IDENTITY),
        "executor": "docker",
        "engine": "docker",
        "work_directory": "/var/lib/taxmeter",
        # one for the agent where that leaves one to measure with
        "reserved_cores": min(1, cores - 1),
    }
    lines = ["defaults:", *(f"  {key}: {_scalar(value)}" for key, value in defaults.items()), "groups:"]
    for group, members in _groups(hosts).items():
        labels = f"{{gpu_generation: {members[0].hardware.gpu_generation}}}"
        lines.append(f"  {group}: {{hosts: [{', '.join(host.name for host in members)}], labels: {labels}}}")
    lines.append("hosts:")
    for host in hosts:
        lines += [f"  {host.name}:", *(f"    {line}" for line in _host(host, host_keys[host.name]))]
    return _HEAD + "\n".join(lines) + "\n"


def _host(host: LabHost, host_key: str) -> list[str]:
    return [
        "connection: ssh",
        f"address: {host.address}",
        f"host_key: {host_key}",
        "labels: {site: lab}",
        f"expect: {{cpu_model: {_scalar(host.hardware.cpu_model)}}}",
    ]


def _groups(hosts: Sequence[LabHost]) -> dict[str, list[LabHost]]:
    groups: dict[str, list[LabHost]] = {}
    for host in hosts:
        groups.setdefault(_group_name(host.hardware), []).append(host)
    return groups


def _group_name(hardware: Hardware) -> str:
    return "cpu-only" if hardware.gpu_generation == "none" else hardware.gpu_generation


def _scalar(value: object) -> str:
    # YAML takes every JSON value
    return json.dumps(value)

"""The inventory of a lab, as a person would write it for machines of this kind."""

import io
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from tests.lab.host import LabHost
from tests.lab.keys import IDENTITY, USER

_HEAD = """\
# The lab hosts of this machine: written when the lab comes up, with the keys that its hosts were given then, and removed
# when it goes down. tests/lab/README.md says what they can show, and what not.
"""


def inventory_text(hosts: Sequence[LabHost], host_keys: Mapping[str, str], directory: Path) -> str:
    """An inventory with the host keys pinned; `directory` holds the client's key."""
    cores = len(os.sched_getaffinity(0))
    groups: dict[str, dict[str, Any]] = {}
    for host in hosts:
        generation = host.hardware.gpu_generation
        group = {"hosts": [], "labels": {"gpu_generation": generation}}
        groups.setdefault("cpu-only" if generation == "none" else generation, group)["hosts"].append(host.name)
    document = {
        "version": 1,
        "defaults": {
            "user": USER,
            "identity_file": str(directory / IDENTITY),
            "executor": "docker",
            "engine": "docker",
            "work_directory": "/var/lib/taxmeter",
            # one for the agent where that leaves one to measure with
            "reserved_cores": min(1, cores - 1),
        },
        "groups": groups,
        "hosts": {
            host.name: {
                "connection": "ssh",
                "address": host.address,
                "host_key": host_keys[host.name],
                "labels": {"site": "lab"},
                "expect": {"cpu_model": host.hardware.cpu_model},
            }
            for host in hosts
        },
    }
    yaml, text = YAML(), io.StringIO(_HEAD)
    yaml.width = 1000
    text.seek(0, io.SEEK_END)
    yaml.dump(document, text)
    return text.getvalue()

"""The machines of a lab: `hostinventory.yaml`.

The inventory holds what cannot be detected. What a host is made of (CPU, memory, GPU, driver) is read from the
host itself whenever it is used.
"""

from orchestrator.config.inventory.loading import load_inventory
from orchestrator.config.inventory.model import (
    WORK_DIRECTORY,
    Connection,
    Exclusive,
    ExecutorChoice,
    Expectation,
    Faults,
    Host,
    HostState,
    Inventory,
    Origin,
)
from orchestrator.config.inventory.publishing import json_schema
from orchestrator.config.inventory.selection import active_hosts, groups_of, refuse_nodes, select_hosts
from orchestrator.config.inventory.values import fingerprint_of, in_range, local_path

__all__ = [
    "WORK_DIRECTORY",
    "Connection",
    "Exclusive",
    "ExecutorChoice",
    "Expectation",
    "Faults",
    "Host",
    "HostState",
    "Inventory",
    "Origin",
    "active_hosts",
    "fingerprint_of",
    "groups_of",
    "in_range",
    "json_schema",
    "load_inventory",
    "local_path",
    "refuse_nodes",
    "select_hosts",
]

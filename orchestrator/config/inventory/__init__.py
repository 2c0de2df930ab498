"""The machines of a lab: `hostinventory.yaml`.

The inventory holds what cannot be detected. What a host is made of (CPU, memory, GPU, driver) is read from the
host itself whenever it is used.
"""

from orchestrator.config.inventory.loading import MACHINE_LABELS, inventory_words, json_schema, load_inventory
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
    active_hosts,
    groups_of,
    local_engine,
    refuse_nodes,
    select_hosts,
)
from orchestrator.config.inventory.values import fingerprint_of, in_range, local_path

__all__ = [
    "MACHINE_LABELS",
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
    "inventory_words",
    "json_schema",
    "load_inventory",
    "local_engine",
    "local_path",
    "refuse_nodes",
    "select_hosts",
]

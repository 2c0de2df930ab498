"""What people write down, read once and strictly: inventories, sweeps, and the YAML that both are made of."""

from orchestrator.config.documents import Document, Source, StrictModel, load_yaml
from orchestrator.config.inventory.loading import json_schema, load_inventory
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
    active_hosts,
    groups_of,
    local_engine,
    refuse_nodes,
    select_hosts,
)
from orchestrator.config.inventory.values import fingerprint_of, in_range, local_path
from orchestrator.config.sweep import ANY, EACH_GPU_MODEL, Sweep, WorkloadAxis, load_sweep, seconds_of

__all__ = [
    "ANY",
    "EACH_GPU_MODEL",
    "WORK_DIRECTORY",
    "Connection",
    "Document",
    "Exclusive",
    "ExecutorChoice",
    "Expectation",
    "Faults",
    "Host",
    "HostState",
    "Inventory",
    "Source",
    "StrictModel",
    "Sweep",
    "WorkloadAxis",
    "active_hosts",
    "fingerprint_of",
    "groups_of",
    "in_range",
    "json_schema",
    "load_inventory",
    "load_sweep",
    "load_yaml",
    "local_engine",
    "local_path",
    "refuse_nodes",
    "seconds_of",
    "select_hosts",
]

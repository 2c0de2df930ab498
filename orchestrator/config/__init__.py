"""What people write down, read once and strictly: inventories, sweeps, and the YAML that both are made of."""

from orchestrator.config.documents import Document, SettingError, Source, StrictModel, load_yaml
from orchestrator.config.inventory import (
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
from orchestrator.config.inventory_file import json_schema, load_inventory
from orchestrator.config.inventory_values import fingerprint_of, in_range, local_path
from orchestrator.config.sweep import ANY, EACH_GPU_MODEL, Sweep, WorkloadAxis, load_sweep, seconds_of

"""Looks at a Ray cluster from a process of its own: where something is wrong, Ray waits for minutes or aborts.

    python -m orchestrator.scheduling.glance ADDRESS

Prints what it saw as a JSON document on the last line.
"""

import json
import logging
import sys
from typing import Any

from orchestrator.hosts.labels import SLOT


def main(address: str) -> None:
    """Connects as a driver does, and tells the nodes."""
    import ray  # only here: the package is imported by much that knows no Ray

    ray.init(address, log_to_driver=False, logging_level=logging.ERROR)
    context = ray.get_runtime_context()
    nodes = [node for node in ray.nodes() if node["Alive"]]
    seen = {
        "address": context.gcs_address,
        "own_node": context.get_node_id(),
        "nodes": [_described(node) for node in nodes],
    }
    sys.stdout.write(f"\n{json.dumps(seen)}\n")
    sys.stdout.flush()


def _described(node: dict[str, Any]) -> dict[str, Any]:
    return {
        "node": node["NodeID"],
        "address": node["NodeManagerAddress"],
        "machine": node["NodeManagerHostname"],
        "labels": node.get("Labels") or {},
        "slots": (node.get("Resources") or {}).get(SLOT, 0.0),
    }


if __name__ == "__main__":
    main(sys.argv[1])

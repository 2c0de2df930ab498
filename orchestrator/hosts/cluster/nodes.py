"""Tells which nodes of Ray live: run in the head's container, and listened to from outside.

    python -m orchestrator.hosts.cluster.nodes

Prints a JSON document a line, after a mark: at once, and whenever something has changed, until it is told to end. Ray
prints lines of its own between them, such as that a node has died.
"""

import json
import logging
import os
import sys
import time
from typing import Any

MARK = "taxmeter-nodes:"
_POLL_S = 0.2


def main() -> None:
    """Watches."""
    import ray  # only here: whoever listens from outside knows no Ray

    ray.init(os.environ["RAY_ADDRESS"], log_to_driver=False, logging_level=logging.ERROR)
    said = None
    while True:
        text = json.dumps([_described(node) for node in ray.nodes()])
        if text != said:
            sys.stdout.write(f"\n{MARK}{text}\n")
            sys.stdout.flush()
            said = text
        time.sleep(_POLL_S)


def _described(node: dict[str, Any]) -> dict[str, Any]:
    return {
        "alive": bool(node["Alive"]),
        "address": node["NodeManagerAddress"],
        "labels": node.get("Labels") or {},
        "resources": node.get("Resources") or {},
        "death": node.get("DeathReasonMessage") or "",
    }


if __name__ == "__main__":
    main()

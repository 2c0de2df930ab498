"""What an idle agent costs its host: processor time of its container over a minute, as a share of one core.

    python -m benchmarks.agent_idle [--seconds 60] [--inventory hostinventory.yaml]

The cluster must be up, and no campaign run. The kernel's own account of the container is read on the host, through its
engine, at the beginning and at the end; nothing runs there in between.
"""

import argparse
import time
from contextlib import ExitStack
from pathlib import Path

from orchestrator.config import load_inventory
from orchestrator.files import ProjectFiles
from orchestrator.hosts.cluster.engines import host_engine
from orchestrator.hosts.cluster.lifecycle import load
from orchestrator.hosts.connection import Connections

TARGET_PERCENT = 1.0


def main() -> None:
    """Measures all agents at once."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--inventory", type=Path, default=Path("hostinventory.yaml"))
    parser.add_argument("--project", type=Path, default=Path.cwd())
    arguments = parser.parse_args()
    cluster = load(ProjectFiles(arguments.project))
    if cluster is None:
        raise SystemExit("no cluster is up; make cluster-up brings one up")
    hosts = load_inventory(arguments.inventory).hosts
    with ExitStack() as stack:
        connections = stack.enter_context(Connections(hosts))
        containers = {
            name: stack.enter_context(host_engine(name, hosts[name], connections)).client.containers.get(
                cluster.agent_container
            )
            for name in cluster.agents
        }
        before = {name: used_ns(container) for name, container in containers.items()}
        time.sleep(arguments.seconds)
        after = {name: used_ns(container) for name, container in containers.items()}
    for name in containers:
        seconds = (after[name][0] - before[name][0]) / 1e9
        percent = 100 * (after[name][1] - before[name][1]) / 1e9 / seconds
        verdict = "within" if percent <= TARGET_PERCENT else "above"
        print(
            f"{name:12} {percent:5.2f} % of a core over {seconds:.0f} s, {verdict} the target of {TARGET_PERCENT:g} %"
        )


def used_ns(container: object) -> tuple[int, int]:
    """Now, and the processor time that a container has used so far, in nanoseconds."""
    usage = container.stats(stream=False, one_shot=True)["cpu_stats"]["cpu_usage"]["total_usage"]  # type: ignore[attr-defined]
    return time.monotonic_ns(), int(usage)


if __name__ == "__main__":
    main()

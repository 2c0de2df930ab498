"""What an agent is asked from outside, without Ray."""

import json

from orchestrator.environments import engine_errors
from orchestrator.errors import InfrastructureError
from orchestrator.hosts.cluster.commands import run_in
from orchestrator.hosts.cluster.engines import HostEngine, find
from orchestrator.hosts.cluster.model import Cluster
from runners.contract import ContractError, decode
from runners.system import Fingerprint

_MARK = b"taxmeter-fingerprint:"
_PROGRAM = f"""
import json
from runners.contract import encode
from runners.system import collect
print("{_MARK.decode()}" + json.dumps(encode(collect())))
"""


def fingerprint_on(engine: HostEngine, cluster: Cluster) -> Fingerprint:
    """The fingerprint of a host, read where the rows of its trials are made, so that it is the same as theirs.

    Raises:
        InfrastructureError: there is no agent, or it does not tell.
    """
    with engine_errors("its engine failed"):
        container = find(engine.client, cluster.agent_container, cluster.id)
        if container is None:
            raise InfrastructureError(f"there is no container {cluster.agent_container} any more")
        done = run_in(container, ["python", "-c", _PROGRAM])
    line = next((one for one in done.output.splitlines() if one.startswith(_MARK)), None)
    if done.exit_code != 0 or line is None:
        raise InfrastructureError(f"its agent does not tell its fingerprint: {done.last_words or 'it said nothing'}")
    try:
        return decode(Fingerprint, json.loads(line.removeprefix(_MARK)), "fingerprint")
    except ContractError as error:
        raise InfrastructureError(f"its agent tells a fingerprint of another version: {error}") from error

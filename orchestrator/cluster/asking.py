"""What an agent is asked from outside, without Ray."""

import json

from orchestrator.cluster.engines import HostEngine, find
from orchestrator.cluster.model import Cluster
from orchestrator.errors import InfrastructureError
from orchestrator.images.messages import engine_errors
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
        done = container.exec_run(["python", "-c", _PROGRAM], demux=True)
    out, errors = (part or b"" for part in done.output)
    line = next((one for one in out.splitlines() if one.startswith(_MARK)), None)
    if done.exit_code != 0 or line is None:
        last = (errors.decode("utf-8", "replace").strip().splitlines() or ["it said nothing"])[-1]
        raise InfrastructureError(f"its agent does not tell its fingerprint: {last}")
    try:
        return decode(Fingerprint, json.loads(line.removeprefix(_MARK)), "fingerprint")
    except ContractError as error:
        raise InfrastructureError(f"its agent tells a fingerprint of another version: {error}") from error

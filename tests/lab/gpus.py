"""Simulated GPUs for lab hosts: what nvidia-smi says on the host, and in the containers that ask for them."""

from collections.abc import Iterator
from contextlib import contextmanager

from orchestrator.hosts.cluster.commands import run_in
from tests.lab.host import LabHost

_GPUS = "/run/lab/gpus"
_PROGRAM = "/usr/local/bin/nvidia-smi"


@contextmanager
def simulated_gpus(host: LabHost, count: int) -> Iterator[tuple[str, ...]]:
    """Gives a host so many GPUs for as long as the block lasts. They compute nothing. Yields their UUIDs."""
    uuids = tuple(f"GPU-{number + 1:08x}-1a2b-3c4d-5e6f-0123456789ab" for number in range(count))
    lines = [
        f"{uuid}, Simulated Ampere 80GB, 81920, 560.35.03, 00000000:{number + 16:02X}:00.0, Disabled, 8.0"
        for number, uuid in enumerate(uuids)
    ]
    devices = " ".join(f"/dev/nvidia{number}" for number in range(count))
    text = "\\n".join(lines)
    _run(host, f"printf '{text}\\n' >{_GPUS} && ln -sf /usr/local/lib/lab/nvidia-smi {_PROGRAM} && touch {devices}")
    try:
        yield uuids
    finally:
        _run(host, f"rm -f {_GPUS} {_PROGRAM} {devices}")


def _run(host: LabHost, command: str) -> None:
    done = run_in(host.container, ["sh", "-c", command])
    assert done.exit_code == 0, done.stderr

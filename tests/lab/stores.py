"""Images on the lab hosts: sent to one over ssh, then cloned to the others without copying a byte of a layer."""

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from docker import DockerClient
from docker.errors import ImageNotFound

from orchestrator.environments import TRANSFER_TIMEOUT_S, connect
from orchestrator.errors import InfrastructureError
from tests.lab.host import LabHost

# overlay2 never writes into the content of a layer, so stores may share its files; everything else is copied.
_CLONE = """
set -e
from=$1; shift
for to; do
  rm -rf "$to/image" "$to/overlay2"
  mkdir -p "$to/overlay2"
  cp -a "$from/image" "$to/image"
  for layer in "$from"/overlay2/*; do
    name=${layer##*/}
    if [ "$name" = l ]; then cp -a "$layer" "$to/overlay2/"; continue; fi
    mkdir "$to/overlay2/$name"
    for part in "$layer"/*; do
      if [ "${part##*/}" = diff ]; then cp -al "$part" "$to/overlay2/$name/"
      else cp -a "$part" "$to/overlay2/$name/"; fi
    done
  done
done
"""


def seed_hosts(
    local: DockerClient,
    hosts: Sequence[LabHost],
    images: Sequence[str],
    stores: tuple[str, Path],
    labels: dict[str, str],
) -> None:
    """Gives images of this machine's engine to all hosts, under the names that are given.

    A host that has nothing yet gets a clone of the first host's store; its engine is restarted for that. The others
    are sent what they lack.

    Args:
        local: this machine's engine.
        hosts: the hosts, ready.
        images: references that `local` has.
        stores: the image that clones, and the directory below which each host has its store.
        labels: of what is created on `local` meanwhile.

    Raises:
        InfrastructureError: this machine lacks an image, or a host does not take it.
    """
    wanted = {image: _image_id(local, image) for image in images}
    missing = [image for image, found in wanted.items() if found is None]
    if missing:
        raise InfrastructureError(f"this machine's engine does not have {', '.join(missing)}")
    first, *others = hosts
    idle = _send(first, wanted)
    empty = [host for host in others if idle and _is_empty(host)]
    if empty:
        _clone(local, first, empty, stores, labels)
    for host in others:
        if host not in empty:
            _send(host, wanted)


def _send(host: LabHost, wanted: dict[str, str | None]) -> bool:
    """Streams what the host lacks. Returns whether it has no container, so that its store may be cloned."""
    with closing(connect(timeout_s=TRANSFER_TIMEOUT_S)) as local, host.engine(TRANSFER_TIMEOUT_S) as engine:
        for image, expected in wanted.items():
            if _image_id(engine, image) == expected:
                continue
            engine.images.load(local.api.get_image(image))
            if _image_id(engine, image) != expected:
                raise InfrastructureError(f"{host.name} took {image}, but has another image under that name")
        return not engine.containers.list(all=True, ignore_removed=True)


def _is_empty(host: LabHost) -> bool:
    with host.engine() as engine:
        return not engine.images.list(all=True) and not engine.containers.list(all=True, ignore_removed=True)


def _clone(
    local: DockerClient, source: LabHost, targets: Sequence[LabHost], stores: tuple[str, Path], labels: dict[str, str]
) -> None:
    image, directory = stores
    for host in (source, *targets):
        host.stop_engine()
    container = local.containers.create(
        image,
        ["sh", "-c", _CLONE, "clone", *(f"/stores/{host.name}" for host in (source, *targets))],
        labels=labels,
        network_mode="none",
        # the marks of directories that hide those of lower layers are attributes that only this capability may copy
        cap_add=["SYS_ADMIN"],
        volumes={str(directory): {"bind": "/stores", "mode": "rw"}},
    )
    try:
        container.start()
        code = container.wait(timeout=TRANSFER_TIMEOUT_S)["StatusCode"]
        if code != 0:
            raise InfrastructureError(f"the store of {source.name} cannot be cloned: {container.logs(tail=5).decode()}")
    finally:
        container.remove(force=True, v=True)
        for host in (source, *targets):
            host.start_engine()


def _image_id(client: DockerClient, image: str) -> str | None:
    try:
        found: str = client.images.get(image).id
    except ImageNotFound:
        return None
    return found

"""Whether an engine's containers see the directories of this machine: an engine may be outside of ours."""

import secrets
from contextlib import closing
from pathlib import Path

from docker.errors import APIError, ContainerError
from docker.types import Mount

from orchestrator.environments import UNLABELLED, connect, engine_errors, engine_message

_AT = "/taxmeter-shared"


def shared_directory_problem(engine: str | None, image_id: str, directory: Path) -> str | None:
    """Why containers do not see a directory as this process does, in one line; null if they do.

    Args:
        engine: its address.
        image_id: of an image that it has.
        directory: of this machine; it is there, and can be written.

    Raises:
        InfrastructureError: the engine does not answer, or starts no containers.
    """
    mark = directory / f".shared-{secrets.token_hex(8)}"
    advice = (
        f"its engine does not see {directory} as this node does: where the node is a container itself, mount that "
        "directory of the engine's machine into it, under the same path"
    )
    with engine_errors("its engine refused"), closing(connect(engine)) as client:
        mark.touch()
        try:
            client.containers.run(
                image_id,
                ["test", "-e", _AT],
                # A mount, not a volume: an engine makes a directory for a volume that is not there. And the file
                # itself, because the directory may be closed for the image's user.
                mounts=[Mount(target=_AT, source=str(mark), type="bind", read_only=True)],
                network_mode="none",
                cap_drop=["ALL"],
                security_opt=["no-new-privileges", UNLABELLED],
                remove=True,
            )
        except ContainerError:
            return advice
        except APIError as error:
            if "bind source path does not exist" in engine_message(error):
                return advice
            raise
        finally:
            mark.unlink(missing_ok=True)
    return None

"""What is known of a project's cluster between two commands: a few files below `.taxmeter/cluster`."""

import os
import secrets
import tempfile
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Literal, Protocol

from pydantic import ConfigDict, TypeAdapter, ValidationError

from orchestrator.config import Connection, Host
from orchestrator.errors import InfrastructureError
from orchestrator.files import exclusive, write_atomically
from orchestrator.hosts.cluster.model import Agent, Cluster
from orchestrator.hosts.cluster.settings import Ports

_SHORT = Path("/tmp")  # noqa: S108 - whatever TMPDIR says: the path of a socket has 107 bytes


class Project(Protocol):
    """Where a project is."""

    @property
    def root(self) -> Path:
        """The directory in which the commands run."""
        ...

    @property
    def state(self) -> Path:
        """What can be made anew."""
        ...


@dataclass(frozen=True)
class State:
    """A cluster as it is remembered, up or half taken down."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    id: str
    first_port: int
    sockets: str
    version: Literal[1] = field(default=1, kw_only=True)
    head_address: str | None = None
    """Null while there is no head."""
    code: str = ""
    """The name of the directory with the code that drivers run."""
    agents: Mapping[str, Agent] = field(default_factory=dict)
    hosts: Mapping[str, Host] = field(default_factory=dict)
    """All on which something of ours may be, and those that their connections go through."""
    touched: tuple[str, ...] = ()
    """Those of `hosts` on which something may be."""
    unusable: Mapping[str, str] = field(default_factory=dict)

    def with_touched(self, name: str, hosts: Mapping[str, Host]) -> "State":
        """Remembers that something is about to be started on a host."""
        return replace(self, touched=tuple(sorted({*self.touched, name})), hosts={**self.hosts, **way_to(name, hosts)})


_STATE: Final = TypeAdapter(State)


class StateFiles:
    """The files of a project's cluster."""

    def __init__(self, project: Project) -> None:
        self.root = project.root.absolute()
        self.directory = project.state.absolute() / "cluster"

    @property
    def token(self) -> Path:
        """The secret of the cluster; nobody but its owner can read it."""
        return self.directory / "token"

    @property
    def code(self) -> Path:
        """Has a directory for each version of our packages that drivers may run."""
        return self.directory / "code"

    @property
    def of_a_sweep(self) -> Path:
        """There as long as a sweep brought the cluster up for itself, and nobody has asked for it besides."""
        return self.directory / "of-a-sweep"

    @property
    def _state(self) -> Path:
        return self.directory / "state.json"

    def locked(self, say: Callable[[str], None]) -> AbstractContextManager[None]:
        """Held by whoever changes the cluster."""
        return exclusive(
            self.directory.parent / "locks" / "cluster", lambda: say("waiting for another command on this cluster")
        )

    def load(self) -> State | None:
        """What is remembered; null if nothing is.

        Raises:
            InfrastructureError: another version wrote it, or it is damaged.
        """
        try:
            return _STATE.validate_json(self._state.read_bytes())
        except FileNotFoundError:
            return None
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            why = ": ".join(filter(None, (".".join(map(str, first["loc"])), first["msg"])))
            raise InfrastructureError(
                f"{self._state} is damaged, or of another version of taxmeter: {why}; take the cluster "
                "down with the version that brought it up, or remove the containers with the label "
                f"org.taxmeter.cluster on its hosts and then {self.directory}"
            ) from error

    def save(self, state: State) -> None:
        """Remembers a state; a crash leaves the one before or this one."""
        self._make_directory()
        write_atomically(self._state, _STATE.dump_json(state, indent=1).decode())

    def create(self, ports: Ports) -> State:
        """A cluster of a new name, with a new secret. Nothing of it runs yet."""
        self._make_directory()
        self.new_token()
        name = secrets.token_hex(4)
        state = State(name, ports.first, tempfile.mkdtemp(prefix=f"taxmeter-{name}-", dir=_SHORT))
        self.save(state)
        return state

    def new_token(self) -> None:
        """Writes a new secret."""
        descriptor = os.open(self.token, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with open(descriptor, "w", encoding="ascii") as file:
            os.fchmod(descriptor, 0o600)
            file.write(secrets.token_hex(32))

    def forget(self) -> None:
        """Removes what is remembered."""
        for path in (self._state, self.token, self.of_a_sweep):
            path.unlink(missing_ok=True)

    def cluster(self, state: State | None) -> Cluster | None:
        """The cluster that a state tells of; null if it has no head."""
        if state is None or state.head_address is None:
            return None
        ports = Ports(state.first_port)
        return Cluster(
            id=state.id,
            head_address=state.head_address,
            head_port=ports.head,
            agents=dict(state.agents),
            token_path=self.token,
            sockets=Path(state.sockets),
            unusable=dict(state.unusable),
            code=self.code / state.code,
        )

    def _make_directory(self) -> None:
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.directory.chmod(0o700)


def way_to(name: str, hosts: Mapping[str, Host]) -> dict[str, Host]:
    """A host with all that its connection jumps through."""
    found: dict[str, Host] = {}
    following: str | None = name
    while following is not None and following in hosts and following not in found:
        found[following] = hosts[following]
        following = hosts[following].jump
    return found


def is_here(host: Host) -> bool:
    """Whether a host is this machine."""
    return host.connection is Connection.LOCAL

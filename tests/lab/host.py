"""One host of a lab: a container with sshd and an engine."""

import shlex
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from docker import DockerClient
from docker.errors import APIError
from docker.models.containers import Container
from docker.models.networks import Network

from orchestrator.environments import connect
from orchestrator.errors import InfrastructureError
from orchestrator.hosts.cluster.executing import run_in
from tests.lab.hardware import Hardware
from tests.lab.keys import CONFIGURATION, give_host_key

READY_TIMEOUT_S = 60.0
"""How long a host may take until its sshd and its engine answer; usually two seconds."""
_POLL_S = 0.1
_STORAGE_DRIVER = "overlay2"
_RESTART_SSHD = (
    "pid=$(cat /run/sshd.pid); kill $pid; while kill -0 $pid 2>/dev/null; do sleep 0.05; done; "
    # it goes to the background before it listens, and writes its process number when it does
    "rm -f /run/sshd.pid; /usr/sbin/sshd -f /etc/lab/sshd_config -E /var/log/sshd.log && "
    "until [ -s /run/sshd.pid ]; do sleep 0.05; done"
)


@dataclass(frozen=True)
class LabHost:
    """A host and what can be done to it. Nothing here waits for a host to notice, except where it says so."""

    name: str
    address: str
    hardware: Hardware
    directory: Path
    """With the keys of the lab and the configuration of ssh."""
    container: Container
    network: Network

    def run(self, *argv: str, timeout_s: float = 30.0) -> subprocess.CompletedProcess[str]:
        """Runs a command on the host over ssh, with the pinned key. The exit code is the command's, or ssh's 255.

        Raises:
            subprocess.TimeoutExpired: it takes longer.
        """
        return subprocess.run(
            [*self._ssh(), self.name, "--", shlex.join(argv)],
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=timeout_s,
            check=False,
        )

    @contextmanager
    def engine(self, timeout_s: float = 60.0) -> Iterator[DockerClient]:
        """A client of the host's engine, whose socket ssh forwards; `timeout_s` is for each answer.

        Raises:
            InfrastructureError: ssh or the engine does not answer.
        """
        # the path of a socket has 107 bytes, so it cannot stand below the project; whoever opens it is root there
        with tempfile.TemporaryDirectory(prefix="taxmeter-lab-") as directory:
            socket, log = Path(directory, "engine.sock"), Path(directory, "ssh.log")
            command = [
                *self._ssh(),
                *("-o", "ExitOnForwardFailure=yes", "-o", "StreamLocalBindMask=0177"),
                *("-N", "-L", f"{socket}:/var/run/docker.sock", self.name),
            ]
            with log.open("wb") as errors:
                process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=errors, stderr=errors)
            try:
                while not socket.exists():
                    if process.poll() is not None:
                        raise InfrastructureError(f"{self.name}: {log.read_text(errors='replace').strip()}")
                    time.sleep(0.01)
                with closing(connect(f"unix://{socket}", timeout_s)) as client:
                    yield client
            finally:
                process.terminate()
                process.wait()

    def pause(self) -> None:
        """Freezes the whole host; its connections stay open and say nothing."""
        self.container.pause()

    def unpause(self) -> None:
        """Lets a frozen host go on."""
        self.container.unpause()

    def kill(self) -> None:
        """Cuts the host's power: all that runs on it ends at once."""
        self.container.kill()

    def start(self) -> None:
        """Switches a killed host on, and waits until it is ready. Its address and its disk are as before."""
        self.container.start()
        self.wait_ready()

    def disconnect(self) -> None:
        """Pulls the network cable; the host goes on."""
        self.network.disconnect(self.container)

    def connect(self) -> None:
        """Plugs the network cable in again, with the same address."""
        self.network.connect(self.container, ipv4_address=self.address)

    def kill_engine(self) -> None:
        """Kills the engine; its containers go on, and the host starts it again by itself, which ends them."""
        self._sh("kill -KILL $(cat /run/docker.pid)")

    def stop_engine(self) -> None:
        """Ends the engine with its containers and waits for that; the host does not start it again."""
        self._sh("touch /run/lab/engine-off; kill $(cat /run/docker.pid) && while pidof dockerd; do sleep 0.05; done")

    def start_engine(self) -> None:
        """Starts a stopped engine, and waits until it answers."""
        self._sh("rm -f /run/lab/engine-off")
        self.wait_ready()

    def rotate_key(self) -> str:
        """Gives the host another host key, from now on. Returns its public half; who pinned the old one is refused."""
        authorized = self._sh("cat /etc/lab/authorized_keys").strip()
        public = give_host_key(self.container, self.name, authorized)
        self._sh(_RESTART_SSHD)
        return public

    def wait_ready(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Returns when sshd takes the pinned key and the engine answers.

        Raises:
            InfrastructureError: that took too long, or the engine cannot use layers that share files.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            said = self._ready()
            if said == _STORAGE_DRIVER:
                return
            if said in ("vfs", "fuse-overlayfs", "btrfs", "zfs", "devicemapper"):
                raise InfrastructureError(
                    f"the engine in a lab host keeps images with {said}, not {_STORAGE_DRIVER}: put the store of this "
                    "machine's engine onto ext4 or xfs"
                )
            # time changes nothing about these
            refused = any(
                reason in said for reason in ("Host key verification failed", "Permission denied (publickey)")
            )
            if refused or time.monotonic() > deadline:
                log = self.container.logs(tail=15).decode(errors="replace")
                wait = "refuses" if refused else f"is not ready after {timeout_s:.0f} s"
                raise InfrastructureError(f"{self.name} {wait}: {said}\n{log}")
            time.sleep(_POLL_S)

    def _ready(self) -> str:
        """The storage driver of the host's engine, or what went wrong."""
        try:
            done = self.run("docker", "info", "--format", "{{.Driver}}", timeout_s=10)
        except subprocess.TimeoutExpired:
            return "no answer over ssh"
        return done.stdout.strip() if done.returncode == 0 else done.stderr.strip()

    def _ssh(self) -> list[str]:
        return ["ssh", "-F", str(self.directory / CONFIGURATION)]

    def _sh(self, script: str) -> str:
        """Runs a script as root on the host, not over ssh."""
        done = run_in(self.container, ["sh", "-c", script])
        if done.exit_code != 0:
            called = f"{self.name}: {script.partition(';')[0]} …"
            raise InfrastructureError(f"{called}: exit code {done.exit_code}: {done.stderr.strip()}")
        return done.stdout


def state_of(container: Container, network: Network) -> str:
    """`running` if it also has its network, `disconnected` if not; else what the engine calls its state."""
    container.reload()
    if container.status != "running":
        return str(container.status)
    connected = container.attrs["NetworkSettings"]["Networks"]
    return "running" if network.name in connected else "disconnected"


def recover(host: LabHost) -> None:
    """Brings a host back that was paused, killed or disconnected, and waits until it is ready.

    Raises:
        InfrastructureError: it does not come back.
    """
    try:
        host.container.reload()
        if host.container.status == "paused":
            host.unpause()
        elif host.container.status != "running":
            host.container.start()
        if state_of(host.container, host.network) == "disconnected":
            host.connect()
    except APIError as error:
        raise InfrastructureError(f"{host.name}: {error.explanation}") from error
    host.wait_ready()

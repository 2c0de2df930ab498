"""The first look at a host, by a shell: there may be no Python. What it printed is understood here, from its text."""

import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field

from orchestrator.errors import InfrastructureError
from orchestrator.hosts.check.script import SCRIPT, arguments
from runners.system import GpuPlace, NumaNode, Topology, bus_id
from runners.system.reading import parse_list

_MIB = 1 << 20


@dataclass(frozen=True)
class PreflightGpu:
    """One GPU as its driver shows it; null where it does not say."""

    uuid: str
    name: str
    memory_bytes: int | None
    compute_capability: str | None
    pci_bus_id: str | None = None
    """As /sys names it."""
    numa_node: int | None = None
    near_cpus: str | None = None
    """The processors near to it, as the kernel lists them."""
    mig: bool | None = None
    """Whether it is divided into parts."""


@dataclass(frozen=True)
class GpuProcess:
    """A process that computes on a GPU."""

    pid: int
    user: str
    """A number if it has no name there, `?` if it is hidden from us."""
    memory_bytes: int | None
    name: str


@dataclass(frozen=True)
class EngineSocket:
    """A place where the engine's socket may be."""

    path: str
    state: str
    """`listening`; `silent` (nobody was seen waiting for connections); `denied`; `missing`."""


@dataclass(frozen=True)
class Preflight:
    """What a host is and does now; null where it does not say."""

    system: str
    """Such as `Linux`."""
    release: str
    architecture: str
    host_name: str
    user: str
    """Who looked."""
    groups: tuple[str, ...]
    """The groups of that user."""
    cpu_model: str | None
    threads: int | None
    memory_bytes: int | None
    load_1m: float | None
    governors: tuple[str, ...]
    """Empty where frequencies are not scaled, as in virtual machines."""
    python: str | None
    """Version of its python3, which nothing but the fingerprint needs."""
    gpus: tuple[PreflightGpu, ...]
    driver_version: str | None
    gpu_problem: str | None
    """Why there are fewer GPUs in `gpus` than on the bus, in one line; null if there are not."""
    gpu_processes: tuple[GpuProcess, ...]
    sockets: tuple[EngineSocket, ...]
    free_bytes: Mapping[str, int | None]
    """By directory, of the disk that it is on or would be."""
    cores: tuple[str, ...] = ()
    """The hardware threads of each physical core, as the kernel lists them."""
    nodes: tuple[NumaNode, ...] = ()
    filesystems: Mapping[str, str | None] = field(default_factory=dict)
    """The kind of file system by directory."""
    allowed: tuple[int, ...] = ()
    """The processors that processes of ours may use there; empty if it does not tell."""

    @property
    def socket(self) -> EngineSocket | None:
        """The engine's socket: the first that is there; null if none is."""
        return next((socket for socket in self.sockets if socket.state != "missing"), None)

    @property
    def topology(self) -> Topology:
        """Where its processors and GPUs sit."""
        places = (GpuPlace(gpu.uuid, gpu.pci_bus_id, gpu.numa_node, gpu.near_cpus, gpu.mig) for gpu in self.gpus)
        return Topology(self.cores, self.nodes, tuple(places))


@dataclass(frozen=True)
class PreflightQuestion:
    """What a host is looked at for."""

    engine: str | None
    """As the inventory has it."""
    directories: tuple[str, ...]
    """Of whose disks the free space and the file systems are wanted."""
    limit_s: float

    @property
    def command(self) -> list[str]:
        """The command whose standard input is `SCRIPT`."""
        return arguments(self.engine, self.directories)


def preflight_here(question: PreflightQuestion) -> Preflight:
    """Looks at the machine of this process.

    Raises:
        InfrastructureError: it does not answer in time.
    """
    try:
        done = subprocess.run(
            question.command,
            input=SCRIPT,
            text=True,
            capture_output=True,
            timeout=question.limit_s,
            errors="replace",
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise InfrastructureError(f"this machine told nothing about itself within {question.limit_s:g} s") from None
    return parse(done.stdout)


def parse(text: str) -> Preflight:
    """Reads the output of the script.

    Raises:
        InfrastructureError: it is not whole, because another shell than POSIX's ran it or it was ended.
    """
    sections = _sections(text)
    if "end" not in sections or len(sections.get("system", [])) != 4:
        said = " ".join(text.split())[:200]
        raise InfrastructureError(f"its shell did not run the script of the check; it said: {said or 'nothing'}")
    system, release, architecture, host_name = sections["system"]
    user, _, groups = (sections["user"] + ["?", "?", ""])[:3]
    rows = [[part.strip() for part in line.split(",")] for line in sections["gpus"]]
    bus = dict(_place(line) for line in sections.get("pci", []))
    gpus = tuple(_gpu(row, bus) for row in rows if len(row) >= 4)
    return Preflight(
        system=system,
        release=release,
        architecture=architecture,
        host_name=host_name,
        user=user,
        groups=tuple(groups.split()),
        cpu_model=_first(sections, "cpu") or _first(sections, "lscpu"),
        threads=_integer(_first(sections, "threads")),
        memory_bytes=_kib(_first(sections, "memory")),
        load_1m=_number((_first(sections, "load") or "").partition(" ")[0]),
        governors=tuple(sections.get("governors", [])),
        python=_first(sections, "python"),
        gpus=gpus,
        driver_version=next((row[3] for row in rows if len(row) >= 4), None),
        gpu_problem=_gpu_problem(len(gpus), len(bus), sections.get("nvidia-smi")),
        gpu_processes=tuple(
            _process(line) for line in sections.get("gpu-processes", []) if re.match(r"\d+,[^,]*,[^,]*,", line)
        ),
        sockets=tuple(_socket(line) for line in sections["sockets"]),
        free_bytes=dict(_disk(line) for line in sections["disks"]),
        cores=tuple(sections.get("cores", [])),
        nodes=tuple(_node(line) for line in sections.get("nodes", []) if re.match(r"\d+ \d", line)),
        filesystems=dict(_filesystem(line) for line in sections.get("filesystems", [])),
        allowed=tuple(sorted(parse_list(_first(sections, "allowed")))),
    )


def _sections(text: str) -> dict[str, list[str]]:
    sections: dict[str, list[str]] = {}
    current: list[str] = []
    for line in text.splitlines():
        if line.startswith("@"):
            current = sections.setdefault(line[1:], [])
        elif line.strip():
            current.append(line.strip())
    return sections


def _first(sections: Mapping[str, list[str]], name: str) -> str | None:
    return next(iter(sections.get(name, [])), None)


def _place(line: str) -> tuple[str, tuple[int | None, str | None]]:
    """What /sys says of a GPU on the bus: its NUMA node, if it is known, and the processors near to it."""
    address, node, near = [*line.split(), "", ""][:3]
    return address.lower(), (_integer(node), near or None)


def _node(line: str) -> NumaNode:
    number, _, cpus = line.partition(" ")
    return NumaNode(int(number), cpus)


def _gpu(row: list[str], bus: Mapping[str, tuple[int | None, str | None]]) -> PreflightGpu:
    memory = _integer(row[2])
    address, mig, capability = (*row[4:7], "", "", "")[:3]
    node, near = bus.get(bus_id(address) or "", (None, None))
    return PreflightGpu(
        uuid=row[0],
        name=row[1],
        memory_bytes=None if memory is None else memory * _MIB,
        compute_capability=capability if re.fullmatch(r"\d+\.\d+", capability) else None,
        pci_bus_id=bus_id(address),
        numa_node=node,
        near_cpus=near,
        mig={"Enabled": True, "Disabled": False}.get(mig),
    )


def _gpu_problem(seen: int, on_bus: int, answer: list[str] | None) -> str | None:
    """What is on the bus and not seen; a virtual machine's bus may show nothing at all."""
    failed = answer is not None and answer[:1] != ["0"]
    if not failed and seen >= on_bus:
        return None
    shown = f"{on_bus} NVIDIA GPU{'s' if on_bus != 1 else ''} on the bus"
    if answer is None:
        return f"{shown}, but there is no nvidia-smi: install NVIDIA's driver"
    if failed:
        said = " ".join(" ".join(answer[1:]).split()) or f"exit code {answer[0] if answer else '?'}"
        return f"nvidia-smi fails ({said[:160]}): install a driver that fits the kernel, or restart the host"
    return f"{shown}, but nvidia-smi shows {seen}: `dmesg | grep -i xid` says what became of the others"


def _process(line: str) -> GpuProcess:
    pid, used, user, name = line.split(",", 3)
    memory = _integer(used.strip())
    return GpuProcess(int(pid), user, None if memory is None else memory * _MIB, name)


def _socket(line: str) -> EngineSocket:
    state, _, path = line.partition(" ")
    return EngineSocket(path, state)


def _disk(line: str) -> tuple[str, int | None]:
    free, _, directory = line.partition(" ")
    # df said nothing: the line begins with the blank, which was stripped
    return (line, None) if line.startswith("/") else (directory, int(free) * 1024 if free.isdecimal() else None)


def _filesystem(line: str) -> tuple[str, str | None]:
    kind, _, directory = line.partition(" ")
    # stat said nothing: as above
    return (line, None) if line.startswith("/") else (directory, kind)


def _integer(text: str | None) -> int | None:
    return int(text) if text is not None and re.fullmatch(r"\d+", text) else None


def _number(text: str) -> float | None:
    return float(text) if re.fullmatch(r"\d+(\.\d+)?", text) else None


def _kib(text: str | None) -> int | None:
    match = re.search(r"(\d+) kB", text or "")
    return int(match[1]) * 1024 if match else None

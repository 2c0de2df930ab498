"""The first look at a host, by a shell, and what it printed: there may be no Python.

The script is POSIX shell and what every Linux has; what is missing is left out of its answer.
"""

import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from orchestrator.errors import InfrastructureError
from runners.system import GpuPlace, NumaNode, Topology, bus_id
from runners.system.reading import parse_list

# As `stat -f` of several systems calls them.
_NETWORK = re.compile(r"nfs|smb|cifs|ceph|lustre|gpfs|beegfs|fhgfs|gluster|sshfs|afs|panfs|ocfs|gfs2|orangefs|pvfs")
_KIB, _MIB = 1 << 10, 1 << 20

ENGINE_ROOTS = ("/var/lib/docker", "/var/lib/containers/storage")
"""Where engines usually keep images and containers."""

SCRIPT = r"""
LC_ALL=C; export LC_ALL
echo  # ends what a login shell may have printed
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin; export PATH
engine=$1; shift
section() { printf '@%s\n' "$1"; }
# A GPU that has failed can make its tools wait for ever.
limited() { if command -v timeout >/dev/null 2>&1; then timeout -k 2 20 "$@"; else "$@"; fi; }
user=$(id -u)
# the directory, or the nearest above it that is there
existing() {
  there=$1
  while [ -n "$there" ] && [ ! -d "$there" ]; do there=${there%/*}; done
  echo "${there:-/}"
}

section system; uname -s; uname -r; uname -m; uname -n
section user; id -un; echo "$user"; id -Gn
section cpu
{ sed -n 's/^model name[[:space:]]*: *//p' /proc/cpuinfo; lscpu | sed -n 's/^Model name: *//p'; } 2>/dev/null |
  head -n 1
section threads; getconf _NPROCESSORS_ONLN 2>/dev/null || grep -c '^processor' /proc/cpuinfo 2>/dev/null
section allowed; sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/self/status 2>/dev/null
section memory; sed -n 's/^MemTotal: *\([0-9]*\) kB.*/\1/p' /proc/meminfo 2>/dev/null
section load; cut -d ' ' -f 1 /proc/loadavg 2>/dev/null
section governors; cat /sys/devices/system/cpu/cpufreq/policy*/scaling_governor 2>/dev/null | sort -u
section python; python3 -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])' 2>/dev/null </dev/null

section pci
for device in /sys/bus/pci/devices/*; do
  read -r vendor <"$device/vendor" && read -r class <"$device/class" || continue
  case $vendor:$class in 0x10de:0x0300*|0x10de:0x0302*)
    node=; near=; read -r node <"$device/numa_node"; read -r near <"$device/local_cpulist"
    echo "${device##*/} ${node:--1} $near";;
  esac
done 2>/dev/null
section cores; cat /sys/devices/system/cpu/cpu[0-9]*/topology/thread_siblings_list 2>/dev/null | sort -u
section nodes
for node in /sys/devices/system/node/node[0-9]*; do
  [ -r "$node/cpulist" ] && echo "${node##*/node} $(cat "$node/cpulist")"
done 2>/dev/null

section connection; echo "$SSH_CONNECTION"
section os-release; [ -f /etc/os-release ] && echo yes
section listened
sed -n 's/^ *[0-9]*: [0-9A-F]*:\([0-9A-F]*\) [0-9A-F:]* 0A .*/\1/p' /proc/net/tcp /proc/net/tcp6 2>/dev/null

section gpus
if command -v nvidia-smi >/dev/null 2>&1; then
  fields=uuid,name,memory.total,driver_version,pci.bus_id
  ask="limited nvidia-smi --format=csv,noheader,nounits"
  # drivers of before 2022 do not know the last field, those of before 2020 not the one before it
  for more in ,mig.mode.current,compute_cap ,mig.mode.current ""; do
    out=$($ask --query-gpu="$fields$more" 2>&1 </dev/null)
    failed=$?
    # done, or no answer at all
    case $failed in 0|124|137) break;; esac
  done
  if [ "$failed" -eq 0 ]; then printf '%s\n' "$out"; fi
  section nvidia-smi; echo "$failed"
  if [ "$failed" -ne 0 ]; then
    printf '%s\n' "$out"
  else
    section gpu-processes
    $ask --query-compute-apps=pid,used_memory,process_name 2>/dev/null </dev/null |
    while IFS=, read -r pid used name; do
      owner=$(sed -n 's/^Uid:[[:space:]]*\([0-9]*\).*/\1/p' "/proc/$pid/status" 2>/dev/null)
      echo "$pid,${used# },$(id -nu "$owner" 2>/dev/null || echo "${owner:-?}"),${name# }"
    done
  fi
fi

section sockets
case $engine in
  docker) set -- "$@" : /var/run/docker.sock "/run/user/$user/docker.sock";;
  podman) if [ "$user" = 0 ]; then set -- "$@" : /run/podman/podman.sock
          else set -- "$@" : "/run/user/$user/podman/podman.sock" /run/podman/podman.sock; fi;;
  *) set -- "$@" : "${engine#unix://}";;
esac
directories=
while [ "$1" != : ]; do directories="$directories$1
"; shift; done
shift
for socket; do
  state=missing
  if [ -S "$socket" ]; then
    state=denied
    if [ -r "$socket" ] && [ -w "$socket" ]; then
      state=silent
      # 00010000: somebody waits for connections
      name=${socket#/var}
      if grep -q " 00010000 .* \(/var\)\{0,1\}$name\$" /proc/net/unix 2>/dev/null; then state=listening; fi
    fi
  fi
  echo "$state $socket"
done

section disks
printf '%s' "$directories" | while read -r directory; do
  there=$(existing "$directory")
  free=$(df -Pk "$there" 2>/dev/null </dev/null | sed -n 2p | tr -s ' ' | cut -d ' ' -f 4)
  echo "$free|$(stat -f -c %T "$there" 2>/dev/null </dev/null)|$directory"
done
section end
"""
"""Changes nothing. Which engine's socket and which directories it looks at, its arguments say."""


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
    connection: tuple[str, str] | None = None
    """Of SSH, by which it was asked: our address as it sees us, and its own on which it was reached."""
    has_os_release: bool = False
    listened: tuple[int, ...] = ()
    """TCP ports on which somebody listens there."""

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
    """As the inventory has it: `docker`, `podman` or a socket as `unix:///path`; null is docker."""
    directories: tuple[str, ...]
    """Of whose disks the free space and the file systems are wanted."""
    limit_s: float

    @property
    def command(self) -> list[str]:
        """The command whose standard input is `SCRIPT`."""
        return ["sh", "-s", "--", self.engine or "docker", *self.directories]


def preflight_here(question: PreflightQuestion) -> Preflight:
    """Looks at the machine of this process."""
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
    connection = (_first(sections, "connection") or "").split()
    bus = dict(_place(line) for line in sections.get("pci", []))
    gpus = tuple(_gpu(row, bus) for row in rows if len(row) >= 4)
    disks = [line.split("|", 2) for line in sections["disks"]]
    return Preflight(
        system=system,
        release=release,
        architecture=architecture,
        host_name=host_name,
        user=user,
        groups=tuple(groups.split()),
        cpu_model=_first(sections, "cpu"),
        threads=_integer(_first(sections, "threads")),
        memory_bytes=_bytes(_first(sections, "memory"), _KIB),
        load_1m=next((float(load) for load in sections.get("load", []) if re.fullmatch(r"\d+(\.\d+)?", load)), None),
        governors=tuple(sections.get("governors", [])),
        python=_first(sections, "python"),
        gpus=gpus,
        driver_version=next((row[3] for row in rows if len(row) >= 4), None),
        gpu_problem=_gpu_problem(len(gpus), len(bus), sections.get("nvidia-smi")),
        gpu_processes=tuple(
            _process(line) for line in sections.get("gpu-processes", []) if re.match(r"\d+,[^,]*,[^,]*,", line)
        ),
        sockets=tuple(EngineSocket(path, state) for state, path in _pairs(sections["sockets"])),
        free_bytes={directory: _bytes(free, _KIB) for free, _, directory in disks},
        cores=tuple(sections.get("cores", [])),
        nodes=tuple(NumaNode(int(node), cpus) for node, cpus in _pairs(sections.get("nodes", [])) if cpus),
        filesystems={directory: kind or None for _, kind, directory in disks},
        allowed=tuple(sorted(parse_list(_first(sections, "allowed")))),
        connection=(connection[0], connection[2]) if len(connection) == 4 else None,
        has_os_release="yes" in sections.get("os-release", []),
        listened=tuple(sorted({int(port, 16) for port in sections.get("listened", [])})),
    )


def filesystem_problem(directory: str, kind: str | None) -> str | None:
    """Why a directory cannot be a host's own, in one line; null if it can.

    What is kept there is of this host: the lock by which clusters take turns, files compiled for its processors and
    GPUs, and the code that an agent unpacks.
    """
    if kind is None or not _NETWORK.search(kind.lower()):
        return None
    return (
        f"{directory} is on a network file system ({kind}), so hosts would mix up their files and wait for each other: "
        "name a directory of a disk of its own as `work_directory:`"
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


def _pairs(lines: Sequence[str]) -> list[tuple[str, str]]:
    """Of each line the first word, and the rest."""
    return [(first, rest) for first, _, rest in (line.partition(" ") for line in lines)]


def _first(sections: Mapping[str, list[str]], name: str) -> str | None:
    return next(iter(sections.get(name, [])), None)


def _place(line: str) -> tuple[str, tuple[int | None, str | None]]:
    """What /sys says of a GPU on the bus: its NUMA node, if it is known, and the processors near to it."""
    address, node, near = [*line.split(), "", ""][:3]
    return address.lower(), (_integer(node), near or None)


def _gpu(row: list[str], bus: Mapping[str, tuple[int | None, str | None]]) -> PreflightGpu:
    address, mig, capability = (*row[4:7], "", "", "")[:3]
    node, near = bus.get(bus_id(address) or "", (None, None))
    return PreflightGpu(
        uuid=row[0],
        name=row[1],
        memory_bytes=_bytes(row[2], _MIB),
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
    return GpuProcess(int(pid), user, _bytes(used.strip(), _MIB), name)


def _integer(text: str | None) -> int | None:
    return int(text) if text is not None and re.fullmatch(r"\d+", text) else None


def _bytes(text: str | None, unit: int) -> int | None:
    number = _integer(text)
    return None if number is None else number * unit

"""The script that looks at a host: POSIX shell and what every Linux has; what is missing is left out of its answer.

It changes nothing. `orchestrator.hosts.check.preflight` understands what it prints.
"""

import re
from collections.abc import Sequence

# As `stat -f` of several systems calls them.
_NETWORK = re.compile(r"nfs|smb|cifs|ceph|lustre|gpfs|beegfs|fhgfs|gluster|sshfs|afs|panfs|ocfs|gfs2|orangefs|pvfs")

FILESYSTEM = r"""
existing() {
  there=$1
  while [ -n "$there" ] && [ ! -d "$there" ]; do there=${there%/*}; done
  echo "${there:-/}"
}
filesystem_of() { stat -f -c %T "$(existing "$1")" 2>/dev/null </dev/null; }
"""
"""Functions in shell: the directory, or the nearest above it that is there; and the kind of file system that it is on,
which is nothing where `stat` is missing."""

SCRIPT = (
    FILESYSTEM
    + r"""
LC_ALL=C; export LC_ALL
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin; export PATH
engine=$1; shift
section() { printf '@%s\n' "$1"; }
# A GPU that has failed can make its tools wait for ever.
limited() { if command -v timeout >/dev/null 2>&1; then timeout -k 2 20 "$@"; else "$@"; fi; }
user=$(id -u)

section system; uname -s; uname -r; uname -m; uname -n
section user; id -un; echo "$user"; id -Gn
section cpu; { sed -n 's/^model name[[:space:]]*: *//p' /proc/cpuinfo | head -n 1; } 2>/dev/null
section lscpu; { lscpu | sed -n 's/^Model name: *//p' | head -n 1; } 2>/dev/null
section threads; getconf _NPROCESSORS_ONLN 2>/dev/null || grep -c '^processor' /proc/cpuinfo 2>/dev/null
section allowed; sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/self/status 2>/dev/null
section memory; grep '^MemTotal:' /proc/meminfo 2>/dev/null
section load; cat /proc/loadavg 2>/dev/null
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
  free=$(df -Pk "$(existing "$directory")" 2>/dev/null </dev/null | sed -n 2p | tr -s ' ' | cut -d ' ' -f 4)
  echo "$free $directory"
done
section filesystems
printf '%s' "$directories" | while read -r directory; do echo "$(filesystem_of "$directory") $directory"; done
section end
"""
)


def arguments(engine: str | None, directories: Sequence[str]) -> list[str]:
    """The command whose standard input is `SCRIPT`.

    Args:
        engine: `docker`, `podman` or a socket as `unix:///path`; null is docker.
        directories: whose disks' free space and file systems are wanted.
    """
    return ["sh", "-s", "--", engine or "docker", *directories]


def filesystem_problem(directory: str, kind: str | None) -> str | None:
    """Why a directory cannot be a host's own, in one line; null if it can.

    What is kept there is of this host: the lock by which clusters take turns, files compiled for its processors and
    GPUs, and the code that an agent unpacks.

    Args:
        directory: the host's work directory.
        kind: of its file system; null if it is not known.
    """
    if kind is None or not _NETWORK.search(kind.lower()):
        return None
    return (
        f"{directory} is on a network file system ({kind}), so hosts would mix up their files and wait for each other: "
        "name a directory of a disk of its own as `work_directory:`"
    )

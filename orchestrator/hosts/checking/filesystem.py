"""On which file systems a host must not keep our files."""

import re

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

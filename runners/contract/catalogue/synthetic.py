"""Workloads that need no framework: each shows one way in which a trial can go."""

from runners.contract.catalogue.entries import CPU, SYNTHETIC, WorkloadInfo

_NAMES = (
    "null",
    "crash",
    "exit",
    "hang",
    "memory",
    "print",
    "wrong",
    "turns-wrong",
    "garbage",
    "raise",
    "sleep",
    "kill-supervisor",
    "unsupported",
)

WORKLOADS = {
    "synthetic-" + name: WorkloadInfo(
        family=SYNTHETIC, frameworks=(), dtypes=("float32",), devices=(CPU,), about="no framework: it tests the runner"
    )
    for name in _NAMES
}

"""What crosses the boundary between the orchestrator and a runner: the one definition of it.

A task is a directory. The orchestrator writes `task.json` into it and starts `python -m runners DIRECTORY`
in the environment to be measured. The runner appends one JSON document per line to `records.jsonl`:

    {"type": "environment", ...}   once, after the framework is imported: what is really installed
    {"type": "begin", ...}         a trial starts; those of one session start together
    {"type": "record", ...}        the same trial ended, well or not
    {"type": "end", ...}           every trial of the task has its record

Each line ends in `"crc32"`, the checksum of what stands before it, and a record is on the disk before the next session
begins. A `begin` without its `record` means that the supervisor died while that trial's session ran. Standard output is
a log and is never parsed. Everything is a plain frozen dataclass of the standard library: the orchestrator validates
the very same classes strictly.
"""

from runners.contract.codec import (
    ContractError,
    Known,
    canonical_json,
    check_turns,
    compact_json,
    decode,
    decode_line,
    digest,
    encode,
    encode_line,
)
from runners.contract.files import EXIT_CANNOT_RECORD, TaskFiles
from runners.contract.guards import (
    NO_GUARDS,
    ClockRule,
    ClocksGuard,
    GpuProcessesGuard,
    Guard,
    GuardMoment,
    GuardOutcome,
    GuardPolicy,
    GuardResult,
    Guards,
    LoadGuard,
    ThrottlingGuard,
)
from runners.contract.record import (
    Begin,
    CacheState,
    End,
    Environment,
    Interleaving,
    Line,
    Phases,
    Series,
    Session,
    Status,
    Stop,
    TrialRecord,
    Usage,
    Verification,
)
from runners.contract.sessions import repeated, repetition, sessions_of, shared_parts
from runners.contract.spec import (
    CONTRACT_VERSION,
    LEGACY,
    METHOD_VERSION,
    STANDARD,
    TWIN_GROWTH,
    Allocation,
    BackendSpec,
    PastSession,
    Protocol,
    Task,
    Trial,
    TrialSpec,
    WorkloadSpec,
)

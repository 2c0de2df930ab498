"""Which columns of `trials` tell what was measured, with what, and where: what all that groups trials goes by.

Rows that agree in `CONFIGURATION` measure the same; their rounds, sessions and campaigns are repetitions of it.
"""

from typing import Final

WORK: Final = (
    *("workload", "workload_options", "batch", "sequence_length", "image_size"),
    *("dtype", "device", "threads", "seed"),
)
"""What is computed."""
EXECUTION: Final = ("backend", "backend_options")
"""How it is executed."""
PLACE: Final = ("system_id", "environment_id", "isolation", "method_version")
"""Where, in which software, and by which version of the method: numbers of two places mean different things."""
CONFIGURATION: Final = (*PLACE, "protocol", *WORK, *EXECUTION)
"""All that makes two trials repetitions of each other."""
RUN: Final = ("campaign_id", "host", *PLACE, "runner_sha256")
"""What trials share that can disturb each other alike: they are compared within it where both sides are in one."""

"""Lists of processors as the kernel writes them: `0-3,8`."""

import re
from collections.abc import Iterable


def cores_text(cores: Iterable[int]) -> str:
    """Processors as the kernel lists them."""
    runs: list[list[int]] = []
    for core in sorted(set(cores)):
        if runs and core == runs[-1][-1] + 1:
            runs[-1].append(core)
        else:
            runs.append([core])
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs)


def cores_in(text: str) -> tuple[int, ...]:
    """The processors of such a list, in order.

    Raises:
        ValueError: it is none.
    """
    if not re.fullmatch(r"\d+(-\d+)?(,\d+(-\d+)?)*", text):
        raise ValueError(f"{text!r} is no list of processors")
    bounds = (part.partition("-") for part in text.split(","))
    return tuple(sorted({core for first, _, last in bounds for core in range(int(first), int(last or first) + 1)}))

"""What a trial computed and with what, named as people read it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from runners.contract.catalogue import BACKENDS, WORKLOADS, BackendInfo, WorkloadInfo

Row = Mapping[str, Any]


@dataclass(frozen=True, order=True)
class Shape:
    """What was computed, but for the batch. 0 stands for a size that the workload does not have."""

    workload: str
    sequence_length: int
    image_size: int
    options: str
    """Those of the workload that are not at today's defaults."""
    dtype: str
    device: str
    threads: int
    seed: int
    protocol: str


def shape_of(row: Row) -> Shape:
    """What a trial computed, but for the batch."""
    return Shape(
        workload=row["workload"],
        sequence_length=row["sequence_length"] or 0,
        image_size=row["image_size"] or 0,
        options=" ".join(_special(WORKLOADS.get(row["workload"]), row["workload_options"] or "{}")),
        dtype=row["dtype"],
        device=row["device"],
        threads=row["threads"],
        seed=row["seed"],
        protocol=row["protocol"],
    )


def backend_name(row: Row) -> str:
    """The backend with the options that are not at today's defaults."""
    return " ".join([row["backend"], *_special(BACKENDS.get(row["backend"]), row["backend_options"])])


def _special(info: BackendInfo | WorkloadInfo | None, options: str) -> list[str]:
    defaults = {} if info is None else {name: option.default for name, option in info.options.items()}
    given: dict[str, object] = json.loads(options)
    return [f"{name}={value}" for name, value in sorted(given.items()) if defaults.get(name) != value]

"""Axes: the names by which trials are chosen, grouped and compared, and how each is read from a row of `trials`.

Comparisons, claims, reports and the gate share this one vocabulary. Peers let users name any column and then compare
what differs in ten others; here every axis knows which kind of thing it says, so that the frame can refuse to pool.
"""

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from operator import itemgetter
from typing import Any, Final, TypeAlias

from orchestrator.errors import ConfigurationError, near_names, some_names
from runners.contract.catalogue import BACKENDS, WORKLOADS, BackendInfo, IntegerRange, WorkloadInfo

Value: TypeAlias = str | int | None
"""Of an axis. Null is a number that the trial does not have, such as the sequence length of an image."""
Key: TypeAlias = tuple[Value, ...]
"""Values on several axes, in their order."""
Row: TypeAlias = Mapping[str, Any]

DEFAULTS: Final = "defaults"
"""Options of a workload of which none differs from today's defaults."""
SWEEP: Final = "sweep"
"""The one column that comes from another table: see `with_sweeps`."""
_ID_SHOWN: Final = 12


class Group(Enum):
    """What kind of thing an axis says. Two sides that name one axis of a group are expected to differ in all of it."""

    WORK = "what is computed"
    BACKEND = "how it is executed"
    SYSTEM = "where it ran"
    SOFTWARE = "in which software"
    METHOD = "how it was measured"
    CAMPAIGN = "when it ran"


@dataclass(frozen=True)
class Axis:
    name: str
    group: Group
    meaning: str
    columns: tuple[str, ...]
    """Of `trials`, that it is read from."""
    read: Callable[[Row], Value] = field(repr=False)
    is_number: bool = False
    unit: str | None = None
    is_identity: bool = False
    """Its values are ids, of which a beginning that no other shares is enough."""

    def shown(self, value: Value) -> str:
        """A value as people read it."""
        return "none" if value is None else str(value)

    def brief(self, value: Value) -> str:
        """The same, of an identity its beginning, which is enough to choose by."""
        return self.shown(value)[: _ID_SHOWN if self.is_identity else None]


def axis(name: str, option: str | None = None) -> Axis:
    """The axis of a name.

    Raises:
        ConfigurationError: there is no such axis.
    """
    found = AXES.get(name) or OPTION_AXES.get(name)
    if found is None:
        hint = near_names(name, [*AXES, *OPTION_AXES]) or f"; axes: {some_names([*AXES, *OPTION_AXES])}"
        raise ConfigurationError(f"no axis is called {name}{hint}", key=option)
    return found


def axes(names: Iterable[str], option: str | None = None) -> tuple[Axis, ...]:
    """The axes of several names, each once.

    Raises:
        ConfigurationError: a name is unknown, or stands twice.
    """
    found = tuple(axis(name.strip(), option) for name in names)
    known = [where.name for where in found]
    twice = {name for name in known if known.count(name) > 1}
    if twice:
        raise ConfigurationError(f"{', '.join(sorted(twice))} stands twice; name each axis once", key=option)
    return found


def columns_of(chosen: Iterable[Axis]) -> list[str]:
    """The columns of `trials` that these axes are read from."""
    return list(dict.fromkeys(name for where in chosen for name in where.columns))


def values_of(row: Row, chosen: Iterable[Axis]) -> Key:
    """What a row says on these axes."""
    return tuple(where.read(row) for where in chosen)


def key_text(key: Key, of: Sequence[Axis]) -> str:
    """A key in words: `gpu=A100 batch=1`, without the sizes and options that it does not have."""
    named = zip(of, key, strict=True)
    return " ".join(f"{where.name}={value}" for where, value in named if value not in (None, DEFAULTS))


def sorting(key: Key) -> tuple[tuple[bool, int, str], ...]:
    """Numbers by size, texts by alphabet, null first."""
    return tuple(
        (value is not None, value if isinstance(value, int) else 0, value if isinstance(value, str) else "")
        for value in key
    )


def grouped(rows: Iterable[Any], key: Callable[[Any], Any]) -> dict[Any, list[Any]]:
    """Rows by a key, keys and rows in the order in which they appear."""
    groups: dict[Any, list[Any]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return groups


def with_sweeps(rows: Iterable[dict[str, Any]], sweeps: Mapping[str, str]) -> list[dict[str, Any]]:
    """Rows that know the sweep of their campaign, which stands in another table."""
    return [{**row, SWEEP: sweeps.get(row["campaign_id"])} if "campaign_id" in row else row for row in rows]


def special_options(info: BackendInfo | WorkloadInfo | None, options: str | None) -> tuple[str, ...]:
    """The options that are not at today's defaults, as `mask=ptb`, by name.

    Args:
        info: whose defaults count; of something unknown nothing is a default.
        options: as JSON; null is none.
    """
    defaults = {} if info is None else {name: option.default for name, option in info.options.items()}
    given: dict[str, object] = json.loads(options or "{}")
    return tuple(f"{name}={value}" for name, value in sorted(given.items()) if defaults.get(name) != value)


@lru_cache(maxsize=4096)
def backend_text(backend: str, options: str) -> str:
    """A backend with the options that are not at today's defaults: `torch_compile(mode=reduce-overhead)`."""
    special = special_options(BACKENDS.get(backend), options)
    return f"{backend}({','.join(special)})" if special else backend


@lru_cache(maxsize=4096)
def options_text(workload: str, options: str | None) -> str:
    """The options of a workload that are not at today's defaults, as `mask=ptb`."""
    return ",".join(special_options(WORKLOADS.get(workload), options)) or DEFAULTS


def options_of(row: Row) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(row["workload_options"] or "{}")
    return found


def other_options(names: Collection[str]) -> Axis:
    """The options of a workload without some: what is left alike where those are compared, such as `layers`."""

    def read(row: Row) -> Value:
        rest = {name: value for name, value in sorted(options_of(row).items()) if name not in names}
        return options_text(row["workload"], json.dumps(rest))

    return Axis("other_options", Group.WORK, "but for those that are compared", ("workload", "workload_options"), read)


def work_axes(compared: Collection[str]) -> tuple[Axis, ...]:
    """The axes of work and backend on which two trials must agree to be one thing.

    Args:
        compared: names of the axes on which sides are meant to differ.
    """
    known = [where for where in AXES.values() if where.group in (Group.WORK, Group.BACKEND) and where.name != "seed"]
    options = sorted(OPTION_AXES.keys() & set(compared))
    if options:
        known = [other_options(options) if where.name == "options" else where for where in known]
    return tuple(where for where in known if where.name not in compared)


def followers(compared: Collection[str]) -> frozenset[str]:
    """The names of axes of work on which sides may differ, because they follow what is compared."""
    groups = {AXES[name].group for name in compared if name in AXES}
    found = _OF_A_SYSTEM if Group.SYSTEM in groups else frozenset()
    return found | _OF_A_WORKLOAD if "workload" in compared else found


def added_axes(rows: Iterable[Row], key: Sequence[Axis], compared: Collection[str]) -> tuple[Axis, ...]:
    """The axes of work and backend that a key lacks, so that work is neither pooled nor compared with other work.

    Software, systems and methods are not added: which of them a comparison is about is for the user to say.
    """
    named = {where.name for where in key}
    wanted = [where for where in work_axes(compared) if where.name not in named]
    columns = columns_of([*key, *wanted])
    distinct = {tuple(row.get(name) for name in columns): row for row in rows}.values()
    loose = followers(compared)
    corresponding = [where for where in key if where.name not in compared]
    found: list[Axis] = []
    for where in wanted:
        # Within a cell nothing may differ; between a cell and its baseline what follows from their difference may.
        apart = [*(key if where.name in loose else corresponding), *found]
        coarse = {values_of(row, apart) for row in distinct}
        # What the axes before it tell apart already needs no other: each model has its own sequence length.
        if len({values_of(row, [*apart, where]) for row in distinct}) > len(coarse):
            found.append(where)
    return tuple(found)


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
        options=" ".join(special_options(WORKLOADS.get(row["workload"]), row["workload_options"])),
        dtype=row["dtype"],
        device=row["device"],
        threads=row["threads"],
        seed=row["seed"],
        protocol=row["protocol"],
    )


def backend_name(row: Row) -> str:
    """The backend with the options that are not at today's defaults, as lines of text have it."""
    return " ".join([row["backend"], *special_options(BACKENDS.get(row["backend"]), row["backend_options"])])


@lru_cache(maxsize=4096)
def _number_of(options: str | None, name: str) -> Value:
    value = json.loads(options or "{}").get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _option(name: str) -> Axis:
    meaning, columns = "option of some workloads", ("workload_options",)
    return Axis(name, Group.WORK, meaning, columns, lambda row: _number_of(row[columns[0]], name), is_number=True)


def _text(
    name: str, group: Group, meaning: str, column: str, missing: str = "unknown", *, is_identity: bool = False
) -> Axis:
    def read(row: Row) -> Value:
        value = row[column]
        return missing if value is None else str(value)

    return Axis(name, group, meaning, (column,), read, is_identity=is_identity)


def _number(name: str, group: Group, meaning: str, column: str, unit: str | None = None) -> Axis:
    return Axis(name, group, meaning, (column,), itemgetter(column), is_number=True, unit=unit)


def _of_gpu(name: str, meaning: str, column: str, missing: str, *, is_identity: bool = False) -> Axis:
    def read(row: Row) -> Value:
        value = row[column]
        if value is not None:
            return str(value)
        return missing if row["gpu_name"] is None else "unknown"

    return Axis(name, Group.SYSTEM, meaning, (column, "gpu_name"), read, is_identity=is_identity)


_ALL: Final = (
    # Of a machine with several models the first; the others stand in the fingerprint.
    Axis(
        *("gpu", Group.SYSTEM, "model of the first GPU", ("gpu_name",)),
        lambda row: row["gpu_name"].split(", ")[0] if row["gpu_name"] else "no GPU",
    ),
    _text("cpu", Group.SYSTEM, "model of the processor", "cpu_model"),
    _text("host", Group.SYSTEM, "name in the inventory", "host"),
    _text("hw", Group.SYSTEM, "identity of the hardware: equal for equal machines", "hw_id", is_identity=True),
    _text("system", Group.SYSTEM, "identity of hardware, kernel, driver, settings", "system_id", is_identity=True),
    _of_gpu("gpu_uuid", "the GPU itself", "gpu_uuid", "no GPU", is_identity=True),
    _of_gpu("driver", "version of the GPU's driver", "driver_version", "no driver"),
    _text("workload", Group.WORK, "model or operator", "workload"),
    Axis(
        *("options", Group.WORK, "of the workload, those not at defaults", ("workload", "workload_options")),
        lambda row: options_text(row["workload"], row["workload_options"]),
    ),
    _number("batch", Group.WORK, "examples per call", "batch", "examples"),
    _number("sequence_length", Group.WORK, "tokens per example", "sequence_length", "tokens"),
    _number("image_size", Group.WORK, "height and width", "image_size", "pixels"),
    _text("dtype", Group.WORK, "of weights and activations", "dtype"),
    _text("device", Group.WORK, "`cpu` or `cuda`", "device"),
    _number("threads", Group.WORK, "of the framework, within an operator", "threads", "threads"),
    _number("seed", Group.WORK, "of weights and inputs", "seed"),
    Axis(
        *("backend", Group.BACKEND, "with the options that are not at defaults", ("backend", "backend_options")),
        lambda row: backend_text(row["backend"], row["backend_options"]),
    ),
    _text("environment", Group.SOFTWARE, "name of the pinned software stack", "environment"),
    _text(
        *("environment_id", Group.SOFTWARE, "its identity: content of image and lock, versions seen inside"),
        "environment_id",
        is_identity=True,
    ),
    _text("torch", Group.SOFTWARE, "version", "torch_version", "none"),
    _text("onnxruntime", Group.SOFTWARE, "version", "onnxruntime_version", "none"),
    _text("isolation", Group.METHOD, "`docker` or `process`", "isolation"),
    _text("exclusive", Group.METHOD, "what a trial had to itself: `host` or `gpu`", "exclusive"),
    _number("method", Group.METHOD, "version of the method: what the numbers mean", "method_version"),
    _text("protocol", Group.METHOD, "how long and how often was measured, as JSON", "protocol"),
    _text("campaign", Group.CAMPAIGN, "one run of a sweep", "campaign_id", is_identity=True),
    Axis(
        *("sweep", Group.CAMPAIGN, "name of the campaign's sweep", ("campaign_id",)),
        lambda row: str(row.get(SWEEP) or "unknown"),
    ),
)
AXES: Final[Mapping[str, Axis]] = {where.name: where for where in _ALL}
"""By name, in the order in which tables show them."""
OPTION_AXES: Final[Mapping[str, Axis]] = {
    name: _option(name)
    for info in WORKLOADS.values()
    for name, option in info.options.items()
    if isinstance(option, IntegerRange) and name not in AXES
}
"""Options of workloads that are numbers, such as `layers`; null for a workload that does not have it."""
_OF_A_SYSTEM: Final = frozenset({"device", "threads"})
"""Who compares systems compares a GPU with a processor, or processors with all of their threads."""
_OF_A_WORKLOAD: Final = frozenset({"options", "sequence_length", "image_size"})

"""Places, shapes and backends: the coordinates of cells, with names that people can tell apart."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from orchestrator.analysis.axes import AXES, Axis, Key, Row, Value, axes, columns_of, grouped, sorting, values_of
from orchestrator.report.page.sql import raw_values, sql_values
from orchestrator.report.text import work_text

PLACE: Final = axes(("system", "environment", "isolation", "method", "environment_id", "gpu", "cpu", "hw"))
SHAPE: Final = axes(
    ("workload", "options", "sequence_length", "image_size", "dtype", "device", "threads", "seed", "protocol")
)
_BACKEND: Final = AXES["backend"]
KEY: Final = (*PLACE, *SHAPE, _BACKEND, AXES["batch"])
"""Whatever must not be pooled: a cell has one value of each."""
_IN_A_PLACE: Final = columns_of(axes(("system", "environment", "isolation", "method", "environment_id")))
_COLUMNS: Final = (*columns_of(KEY), "host", "driver_version", "kernel", "gpu_name", "cpu_model")
_IN_THE_LABEL: Final = ("workload", "options", "sequence_length", "image_size")
_ID_SHOWN: Final = 8
_BOILERPLATE: Final = re.compile(
    r"\((R|TM)\)|\b(NVIDIA|GeForce|Intel|Tesla|AMD|CPU|Processor)\b|\b\d+-Core\b|@ [\d.]+ ?GHz"
)


@dataclass(frozen=True)
class Choice:
    """A value of an axis on the page: what a filter shows, and what asks the store for it."""

    label: str
    sql: str
    """A condition on `trials`."""


@dataclass(frozen=True)
class PagePlace(Choice):
    """Where and in what software trials ran: cells of one place may be compared by backend and batch."""

    system: int
    """Position in `Coordinates.systems`."""
    device: str
    """`cpu`, `cuda`, or both with a blank between them."""


@dataclass(frozen=True)
class PageShape(Choice):
    """What is computed, but for the batch."""

    values: Mapping[str, Value]
    """By the names of axes."""


@dataclass(frozen=True)
class PageSystem:
    """A system, as people call it."""

    label: str
    system_id: str
    hosts: tuple[str, ...]
    hardware: str
    """Models of processor and GPU."""


@dataclass(frozen=True)
class Coordinates:
    """What the cells of a page lie along, and the positions of each by key."""

    systems: tuple[PageSystem, ...]
    places: tuple[PagePlace, ...]
    shapes: tuple[PageShape, ...]
    backends: tuple[Choice, ...]
    axes: Mapping[str, Mapping[Value, Choice]]
    """Values of the axes of shapes that have several, by name."""
    place_of: Mapping[Key, int]
    shape_of: Mapping[Key, int]
    backend_of: Mapping[Value, int]


def coordinates(rows: Sequence[Row]) -> Coordinates:
    """The coordinates of the cells of some trials."""
    # Most trials say the same as many others.
    rows = list({tuple(row[name] for name in _COLUMNS): row for row in rows}.values())
    systems = _systems(rows)
    numbers = {system.system_id: number for number, system in enumerate(systems)}
    place_keys = sorted({values_of(row, PLACE) for row in rows}, key=lambda key: (numbers[str(key[0])], str(key)))
    places = _places(place_keys, systems, numbers, rows)
    shape_keys = sorted({values_of(row, SHAPE) for row in rows}, key=sorting)
    backends = sorted({str(_BACKEND.read(row)) for row in rows}, key=lambda name: (name != "eager", name))
    varying = [axis for axis in SHAPE if len({key[SHAPE.index(axis)] for key in shape_keys}) > 1]
    return Coordinates(
        systems=systems,
        places=places,
        shapes=_shapes(shape_keys, rows),
        backends=tuple(_choices(_BACKEND, rows)[name] for name in backends),
        axes={axis.name: _choices(axis, rows) for axis in varying if axis.name not in _IN_THE_LABEL},
        place_of={key: number for number, key in enumerate(place_keys)},
        shape_of={key: number for number, key in enumerate(shape_keys)},
        backend_of={name: number for number, name in enumerate(backends)},
    )


def short_model(name: str) -> str:
    """A processor or GPU as people call it: `A100-PCIE-40GB`, `EPYC 7763`."""
    return " ".join(_BOILERPLATE.sub(" ", name).split()) or name


def shape_label(values: Mapping[str, Value]) -> str:
    """The work with its sizes, without dtype, device and the like."""
    return work_text(str(values["workload"]), values["sequence_length"], values["image_size"], values["options"])


def _systems(rows: Iterable[Row]) -> tuple[PageSystem, ...]:
    by_id = grouped(rows, lambda row: str(AXES["system"].read(row)))
    firsts = {name: group[0] for name, group in by_id.items()}
    plain = {name: _model(row) for name, row in firsts.items()}
    named = _told_apart(plain, {name: _hosts(group) for name, group in by_id.items()}, firsts)
    systems = []
    for name, group in by_id.items():
        models = filter(None, (firsts[name]["cpu_model"], firsts[name]["gpu_name"]))
        systems.append(PageSystem(named[name], name, _hosts(group), ", ".join(models) or "unknown hardware"))
    return tuple(sorted(systems, key=lambda system: (system.label.lower(), system.system_id)))


def _model(row: Row) -> str:
    if row["system_id"] is None:
        return f"unknown system of {row['host'] or 'no host'}"
    gpu = AXES["gpu"].read(row)
    return short_model(str(row["cpu_model"] or "unknown processor") if gpu == "no GPU" else str(gpu))


def _hosts(rows: Iterable[Row]) -> tuple[str, ...]:
    return tuple(sorted({row["host"] for row in rows if row["host"]}))


def _told_apart(
    plain: Mapping[str, str], hosts: Mapping[str, tuple[str, ...]], firsts: Mapping[str, Row]
) -> dict[str, str]:
    """Names with as little added as tells them apart: the host, the driver, the kernel, or the identity."""
    additions = (
        lambda name: ", ".join(hosts[name]),
        lambda name: f"driver {firsts[name]['driver_version']}",
        lambda name: f"kernel {firsts[name]['kernel']}",
        lambda name: name[:_ID_SHOWN],
    )
    found = dict(plain)
    for add in additions:
        before = dict(found)
        for name, label in before.items():
            alike = [other for other in before if before[other] == label]
            if len({add(other) for other in alike}) > 1:
                found[name] = f"{label}, {add(name)}"
    return found


def _places(
    keys: Sequence[Key], systems: Sequence[PageSystem], numbers: Mapping[str, int], rows: Sequence[Row]
) -> tuple[PagePlace, ...]:
    devices, raw = (raw_values(rows, lambda row: values_of(row, PLACE), names) for names in (("device",), _IN_A_PLACE))
    found = []
    for key in keys:
        system, environment, isolation, method, identity = map(str, key[:5])
        siblings = [other for other in keys if other[0] == key[0] and other != key]
        label = systems[numbers[system]].label
        if siblings:
            label += f", {environment}"
        if any(other[1] == key[1] and other[2] == key[2] and other[3] == key[3] for other in siblings):
            label += f" {identity[:_ID_SHOWN]}"
        if any(other[2] != key[2] for other in keys):
            label += f", {isolation}"
        if any(other[3] != key[3] for other in keys):
            label += f", method {method}"
        device = " ".join(sorted(device for (device,) in devices[key]))
        found.append(PagePlace(label, sql_values(_IN_A_PLACE, raw[key]), numbers[system], device))
    return tuple(found)


def _shapes(keys: Sequence[Key], rows: Sequence[Row]) -> tuple[PageShape, ...]:
    work = axes(_IN_THE_LABEL)
    columns = columns_of(work)
    raw = raw_values(rows, lambda row: values_of(row, work), columns)
    known = [{axis.name: value for axis, value in zip(SHAPE, key, strict=True)} for key in keys]
    return tuple(
        PageShape(shape_label(values), sql_values(columns, raw[tuple(values[name] for name in _IN_THE_LABEL)]), values)
        for values in known
    )


def _choices(where: Axis, rows: Sequence[Row]) -> dict[Value, Choice]:
    raw = raw_values(rows, where.read, where.columns)
    return {
        value: Choice(where.shown(value), sql_values(where.columns, raw[value]))
        for value in sorted(raw, key=lambda value: sorting((value,)))
    }

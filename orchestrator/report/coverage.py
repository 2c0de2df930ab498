"""What ran and what did not: one campaign, or a few, as a page of Markdown, workloads by backends.

The page is made from the store alone, and made again it is the same. It names no host and no path.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from orchestrator.analysis.axes import axes, grouped
from orchestrator.analysis.frame import Cell, Frame, frame_columns
from orchestrator.analysis.metrics import METRICS
from orchestrator.analysis.pooling import Policy, Pool
from orchestrator.report import markdown
from orchestrator.report.text import count_text, duration_text, statuses_text, work_text
from runners.contract import Status
from runners.contract.catalogue import BACKENDS, WORKLOADS, BackendInfo, WorkloadInfo

_Row = dict[str, Any]

_LATENCY: Final = METRICS["latency_sync"]
_MACHINE: Final = ("cpu_cores", "memory_bytes", "kernel", "virtualisation", "image_digest")
_VISIT: Final = ("trial_key", "host", "round", "replicate")
_COMMON: Final = ("batch", "dtype", "device", "threads")
_SETTING: Final = axes(("environment", "isolation", "host"))
_KEY: Final = (*_SETTING, *axes(("workload", "sequence_length", "image_size", "options", *_COMMON, "backend")))
_NAMES: Final = tuple(axis.name for axis in _KEY)
_REASON_LENGTH: Final = 400
_PATH: Final = re.compile(r"(?<![\w.:/])/(?:[^\s/'\",:;()]+/)+(?=[^\s/'\",:;()])")
_OTHER: Final = "other"
_FAMILY: Final = {name: info.family for name, info in WORKLOADS.items()}
_FAMILIES: Final = (*dict.fromkeys(_FAMILY.values()), _OTHER)


def coverage_columns() -> list[str]:
    """The columns of `trials` that the page needs."""
    return list(dict.fromkeys([*frame_columns(_LATENCY), "attempt", *_MACHINE]))


def coverage_page(campaigns: Sequence[Mapping[str, Any]], trials: Sequence[pa.Table], environments: pa.Table) -> str:
    """The page of campaigns; where several have a trial, the last of them counts."""
    found = [_last_attempts(table) for table in trials]
    missing = sum(
        max(0, campaign["planned_trials"] - sum(row["status"] != Status.SKIPPED.value for row in rows.values()))
        for campaign, rows in zip(campaigns, found, strict=True)
    )
    last = {visit: row for rows in found for visit, row in rows.items()}
    rows = [last[visit] for visit in sorted(last, key=str)]
    # What ran and what did not is asked of all versions and machines together, of no number.
    cells = Frame(rows, _LATENCY, Policy(pool=frozenset(Pool))).cells(_KEY)
    versions = {row["environment_id"]: json.loads(row["versions"]) for row in environments.to_pylist()}
    lines = list(_head(campaigns, rows, missing))
    sections = grouped(cells.values(), lambda cell: cell.key[: len(_SETTING)])
    for key in sorted(sections):
        lines += _section(sections[key], versions)
    return "\n".join(lines) + "\n"


@dataclass
class _Notes:
    """Reasons, numbered as they appear."""

    hosts: frozenset[str]
    numbers: dict[tuple[str, str], int] = field(default_factory=dict)

    def number(self, row: Mapping[str, Any]) -> int:
        """The number of a row's status and reason."""
        return self.numbers.setdefault((row["status"], _told(row, self.hosts)), len(self.numbers) + 1)


def _head(campaigns: Sequence[Mapping[str, Any]], rows: Sequence[_Row], missing: int) -> Iterator[str]:
    shown = statuses_text(Counter(Status(row["status"]) for row in rows))
    yield "# Coverage"
    yield ""
    yield "Which workload runs on which backend. `ok` says that the output was right, before and after timing. The"
    yield "median latency beside it may be of a short run on a busy machine: it shows an order of magnitude."
    yield ""
    for campaign in campaigns:
        commit = f", commit {campaign['git_commit']}" if campaign["git_commit"] else ""
        yield (
            f"- Campaign `{campaign['campaign_id']}` of {campaign['started_at']:%Y-%m-%d}, sweep "
            f"`{campaign['sweep']}`, taxmeter {campaign['taxmeter_version']}{commit}"
        )
    yield f"- Trials: {shown}" + (f"; {missing} of those planned have no row yet" if missing else "")
    yield f"- Made by `taxmeter results coverage {' '.join(campaign['campaign_id'] for campaign in campaigns)}`"


def _section(cells: Sequence[Cell], versions: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    rows = [row for cell in cells for row in cell.rows]
    yield from _setting(rows, versions)
    notes = _Notes(frozenset(row["host"] for row in rows if row["host"]))
    backends = sorted({_of(cell, "backend") for cell in cells}, key=_backend_order)
    varying = [name for name in _COMMON if len({_of(cell, name) for cell in cells}) > 1]
    families = grouped(cells, lambda cell: _FAMILY.get(_of(cell, "workload"), _OTHER))
    ordered = [name for name in _FAMILIES if name in families]
    yield from ["", "### How many", "", "Workloads that are ok, of those that were tried; skipped ones were not.", ""]
    yield from markdown.head(["family", *backends])
    for family in ordered:
        by_backend = grouped(families[family], lambda cell: _of(cell, "backend"))
        yield markdown.row([family, *(_share(by_backend.get(backend, ())) for backend in backends)])
    for family in ordered:
        yield from ["", f"### {family}", "", *markdown.head(["workload", "input", *backends])]
        lines = grouped(families[family], lambda cell: _line(cell, varying))
        for line in sorted(lines, key=_line_order):
            known = {_of(cell, "backend"): cell for cell in lines[line]}
            yield markdown.row([f"`{line[0]}`", line[1], *(_cell(known.get(name), notes) for name in backends)])
    if notes.numbers:
        yield from ["", "### Reasons", ""]
        yield from (f"{number}. {status}: {told}" for (status, told), number in notes.numbers.items())


def _setting(rows: Sequence[Mapping[str, Any]], versions: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    yield from ["", f"## Environment `{rows[0]['environment']}`", ""]
    digests = sorted({row["image_digest"] for row in rows if row["image_digest"]})
    image = f", image {', '.join(f'`{digest[:19]}`' for digest in digests)}" if digests else ""
    yield f"- Isolation: {rows[0]['isolation'] or 'unknown'}{image}"
    yield from (f"- Machine: {machine}" for machine in sorted({_machine(row) for row in rows if row["cpu_model"]}))
    # An environment that was only declared, for trials that never ran, has no versions.
    for identity in sorted({row["environment_id"] for row in rows if versions.get(row["environment_id"])}):
        found = versions[identity]
        yield f"- Versions: {', '.join(f'{name} {found[name]}' for name in _frameworks() if name in found)}"
    constant = {name: rows[0][name] for name in _COMMON if len({row[name] for row in rows}) == 1}
    if constant:
        yield f"- All trials: {', '.join(_common(name, value) for name, value in constant.items())}"


def _machine(row: Mapping[str, Any]) -> str:
    parts = [row["cpu_model"]]
    parts += [f"{row['cpu_cores']} cores"] if row["cpu_cores"] else []
    parts += [f"{row['memory_bytes'] / 2**30:.0f} GiB of memory"] if row["memory_bytes"] else []
    parts += [f"kernel {row['kernel']}"] if row["kernel"] else []
    parts += [f"virtualised ({row['virtualisation']})"] if row["virtualisation"] not in (None, "none") else []
    parts += [f"{row['gpu_name']} with driver {row['driver_version']}"] if row["gpu_name"] else []
    return ", ".join(parts)


def _frameworks() -> list[str]:
    infos: list[WorkloadInfo | BackendInfo] = [*WORKLOADS.values(), *BACKENDS.values()]
    return list(dict.fromkeys(["python", *(name for info in infos for name in info.frameworks)]))


def _of(cell: Cell, name: str) -> Any:
    """The value of a cell on an axis."""
    return cell.key[_NAMES.index(name)]


def _line(cell: Cell, varying: Sequence[str]) -> tuple[str, str]:
    """Workload, and its input as text."""
    workload, *sizes = (_of(cell, name) for name in ("workload", "sequence_length", "image_size", "options"))
    text = work_text(workload, *sizes).removeprefix(workload).removeprefix(", ")
    parts = filter(None, (text, *(_common(name, _of(cell, name)) for name in varying)))
    return workload, ", ".join(parts) or "–"


def _common(name: str, value: Any) -> str:
    if name == "threads":
        return count_text(value, "thread", "threads")
    return f"batch {value}" if name == "batch" else str(value)


def _cell(cell: Cell | None, notes: _Notes) -> str:
    if cell is None:
        return "–"
    counts = cell.statuses
    ok = counts.get(Status.OK, 0)
    parts = [("ok" if ok == len(cell.rows) else f"{ok} of {len(cell.rows)} ok")] if ok else []
    parts += [duration_text(cell.estimate.bare)] if cell.estimate else []
    for status in sorted(counts.keys() - {Status.OK}, key=lambda status: status.value):
        bad = sorted((row for row in cell.rows if row["status"] == status.value), key=lambda row: row["reason"] or "")
        parts.append(f"{status.value} ({', '.join(map(str, sorted({notes.number(row) for row in bad})))})")
    return " ".join(parts)


def _share(cells: Iterable[Cell]) -> str:
    tried = [found for cell in cells if (found := set(cell.statuses)) != {Status.SKIPPED}]
    return f"{sum(found == {Status.OK} for found in tried)}/{len(tried)}" if tried else "–"


def _told(row: Mapping[str, Any], hosts: Iterable[str]) -> str:
    """A reason as it may stand on a page: alike for all workloads, without paths and names of hosts."""
    text = " ".join((row["reason"] or "no reason").split())
    text = re.sub(rf"(?<![\w-]){re.escape(row['workload'])}(?![\w-])", "WORKLOAD", text)
    text = _PATH.sub("…/", text)
    for host in hosts:
        text = re.sub(rf"(?<![\w-]){re.escape(host)}(?![\w-])", "HOST", text)
    text = text if len(text) <= _REASON_LENGTH else text[: _REASON_LENGTH - 1] + "…"
    # A code span, so that nothing in it is taken for markup
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", text)), default=0))
    return f"{fence} {text} {fence}" if len(fence) > 1 else f"`{text}`"


def _backend_order(label: str) -> tuple[int, str]:
    return _position(label.partition("(")[0], BACKENDS), label


def _line_order(line: tuple[str, str]) -> tuple[int, str, list[tuple[int, str]]]:
    # Numbers by value: 16 tokens come before 128
    parts = [(int(part), "") if part.isdigit() else (0, part) for part in re.split(r"(\d+)", line[1])]
    return _position(line[0], WORKLOADS), line[0], parts


def _position(name: str, known: Iterable[str]) -> int:
    order = list(known)
    return order.index(name) if name in order else len(order)


def _last_attempts(trials: pa.Table) -> dict[tuple[Any, ...], _Row]:
    """Of each trial of each round the last attempt."""
    rows: list[_Row] = trials.select(coverage_columns()).to_pylist()
    return {tuple(row[name] for name in _VISIT): row for row in sorted(rows, key=lambda row: row["attempt"])}

"""What ran and what did not: one campaign, or a few, as a page of Markdown, workloads by backends.

The page is made from the store alone, and made again it is the same. It names no host and no path.
"""

import itertools
import json
import re
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from orchestrator.report.text import markdown_head, markdown_row
from runners.contract import Status
from runners.contract.catalogue import BACKENDS, WORKLOADS, BackendInfo, WorkloadInfo

_Row = dict[str, Any]

_COLUMNS = (
    *(
        "trial_key",
        "round",
        "replicate",
        "attempt",
        "status",
        "reason",
        "workload",
        "workload_options",
        "batch",
        "sequence_length",
    ),
    *("image_size", "backend", "backend_options", "dtype", "device", "threads", "environment", "environment_id"),
    *("isolation", "image_digest", "host", "cpu_model", "cpu_cores", "memory_bytes", "kernel", "virtualisation"),
    *("gpu_name", "driver_version", "latency_sync_median_s"),
)
_VISIT = ("trial_key", "host", "round", "replicate")
_COMMON = ("batch", "dtype", "device", "threads")
_REASON_LENGTH = 400
_PATH = re.compile(r"(?<![\w.:/])/(?:[^\s/'\",:;()]+/)+(?=[^\s/'\",:;()])")
_OTHER = "other"
_FAMILIES = (*dict.fromkeys(info.family for info in WORKLOADS.values()), _OTHER)


def coverage_columns() -> list[str]:
    """The columns of `trials` that the page needs."""
    return list(_COLUMNS)


def coverage_page(campaigns: Sequence[Mapping[str, Any]], trials: Sequence[pa.Table], environments: pa.Table) -> str:
    """The page of campaigns; where several have a trial, the last of them counts.

    Args:
        campaigns: their rows of `campaigns`.
        trials: for each of them its rows of `trials`, with at least the columns of `coverage_columns`.
        environments: the table of that name.
    """
    rows_of_each = [_final(_attempts_in_order(table)) for table in trials]
    missing = sum(
        max(0, campaign["planned_trials"] - sum(row["status"] != Status.SKIPPED.value for row in rows))
        for campaign, rows in zip(campaigns, rows_of_each, strict=True)
    )
    rows = _final(itertools.chain(*rows_of_each))
    versions = {row["environment_id"]: json.loads(row["versions"]) for row in environments.to_pylist()}
    lines = list(_head(campaigns, rows, missing))
    sections = _grouped(rows, lambda row: tuple(row[name] or "" for name in ("environment", "isolation", "host")))
    for key in sorted(sections):
        lines += _section(sections[key], versions)
    return "\n".join(lines) + "\n"


@dataclass
class _Notes:
    """Reasons, numbered as they appear."""

    hosts: frozenset[str]
    numbers: dict[tuple[str, str], int] = field(default_factory=dict)

    def number(self, row: _Row) -> int:
        """The number of a row's status and reason."""
        return self.numbers.setdefault((row["status"], _told(row, self.hosts)), len(self.numbers) + 1)


def _head(campaigns: Sequence[Mapping[str, Any]], rows: Sequence[_Row], missing: int) -> Iterator[str]:
    counts = Counter(row["status"] for row in rows)
    shown = ", ".join(f"{counts[status.value]} {status.value}" for status in Status if counts[status.value])
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
    yield f"- Trials: {shown or 'none'}" + (f"; {missing} of those planned have no row yet" if missing else "")
    yield f"- Made by `taxmeter results coverage {' '.join(campaign['campaign_id'] for campaign in campaigns)}`"


def _section(rows: Sequence[_Row], versions: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    yield from _setting(rows, versions)
    notes = _Notes(frozenset(row["host"] for row in rows if row["host"]))
    backends = sorted({_backend(row) for row in rows}, key=_backend_order)
    families = _grouped(rows, lambda row: _family(row["workload"]))
    ordered = [name for name in _FAMILIES if name in families]
    varying = [name for name in _COMMON if len({row[name] for row in rows}) > 1]
    tables: list[str] = []
    for family in ordered:
        lines = _grouped(families[family], lambda row: _line(row, varying))
        tables += ["", f"### {family}", "", *markdown_head(["workload", "input", *backends])]
        for line in sorted(lines, key=_line_order):
            cells = _grouped(lines[line], _backend)
            shown = [_cell(cells.get(backend, []), notes) for backend in backends]
            tables.append(markdown_row([f"`{line[0]}`", line[1], *shown]))
    yield from ["", "### How many", "", "Workloads that are ok, of those that were tried; skipped ones were not.", ""]
    yield from markdown_head(["family", *backends])
    for family in ordered:
        yield markdown_row([family, *(_share(families[family], backend, varying) for backend in backends)])
    yield from tables
    if notes.numbers:
        yield from ["", "### Reasons", ""]
        yield from (f"{number}. {status}: {told}" for (status, told), number in notes.numbers.items())


def _setting(rows: Sequence[_Row], versions: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
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


def _machine(row: _Row) -> str:
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


def _line(row: _Row, varying: Sequence[str]) -> tuple[str, str]:
    """Workload, and its input as text."""
    sizes = [f"{row['sequence_length']} tokens"] if row["sequence_length"] else []
    sizes += [f"{row['image_size']} pixels"] if row["image_size"] else []
    sizes += _special(WORKLOADS.get(row["workload"]), row["workload_options"] or "{}")
    return row["workload"], ", ".join([*sizes, *(_common(name, row[name]) for name in varying)]) or "–"


def _common(name: str, value: object) -> str:
    threads = "1 thread" if value == 1 else f"{value} threads"
    return {"batch": f"batch {value}", "threads": threads}.get(name, str(value))


def _cell(rows: Sequence[_Row], notes: _Notes) -> str:
    if not rows:
        return "–"
    ok = [row for row in rows if row["status"] == Status.OK.value]
    medians = [row["latency_sync_median_s"] for row in ok if row["latency_sync_median_s"] is not None]
    parts = [("ok" if len(ok) == len(rows) else f"{len(ok)} of {len(rows)} ok")] if ok else []
    parts += [_milliseconds(statistics.median(medians))] if medians else []
    bad = _grouped((row for row in rows if row["status"] != Status.OK.value), lambda row: row["status"])
    for status in sorted(bad):
        numbers = sorted({notes.number(row) for row in sorted(bad[status], key=lambda row: row["reason"] or "")})
        parts.append(f"{status} ({', '.join(map(str, numbers))})")
    return " ".join(parts)


def _share(rows: Sequence[_Row], backend: str, varying: Sequence[str]) -> str:
    lines = _grouped((row for row in rows if _backend(row) == backend), lambda row: _line(row, varying))
    statuses = [{row["status"] for row in group} for group in lines.values()]
    tried = [found for found in statuses if found != {Status.SKIPPED.value}]
    return f"{sum(found == {Status.OK.value} for found in tried)}/{len(tried)}" if tried else "–"


def _told(row: _Row, hosts: Iterable[str]) -> str:
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


def _milliseconds(seconds: float) -> str:
    value = seconds * 1e3
    digits = 0 if value >= 99.95 else 1 if value >= 9.995 else 2 if value >= 0.9995 else 3
    return f"{value:.{digits}f} ms"


def _backend(row: _Row) -> str:
    return " ".join([row["backend"], *_special(BACKENDS.get(row["backend"]), row["backend_options"])])


def _special(info: BackendInfo | WorkloadInfo | None, options: str) -> list[str]:
    """Options that are not at today's defaults."""
    defaults = {} if info is None else {name: option.default for name, option in info.options.items()}
    given: dict[str, object] = json.loads(options)
    return [f"{name}={value}" for name, value in sorted(given.items()) if defaults.get(name) != value]


def _family(workload: str) -> str:
    return WORKLOADS[workload].family if workload in WORKLOADS else _OTHER


def _backend_order(label: str) -> tuple[int, str]:
    return _position(label.partition(" ")[0], BACKENDS), label


def _line_order(line: tuple[str, str]) -> tuple[int, str, list[tuple[int, str]]]:
    # Numbers by value: 16 tokens come before 128
    parts = [(int(part), "") if part.isdigit() else (0, part) for part in re.split(r"(\d+)", line[1])]
    return _position(line[0], WORKLOADS), line[0], parts


def _position(name: str, known: Iterable[str]) -> int:
    order = list(known)
    return order.index(name) if name in order else len(order)


def _attempts_in_order(trials: pa.Table) -> list[_Row]:
    rows: list[_Row] = trials.select(coverage_columns()).to_pylist()
    return sorted(rows, key=lambda row: row["attempt"])


def _final(rows: Iterable[_Row]) -> list[_Row]:
    last = {tuple(row[name] or 0 for name in _VISIT): row for row in rows}
    return [last[visit] for visit in sorted(last, key=str)]


def _grouped(rows: Iterable[_Row], key: Callable[[_Row], Any]) -> dict[Any, list[_Row]]:
    groups: dict[Any, list[_Row]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return groups

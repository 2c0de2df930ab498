"""The small print of a figure: where its numbers come from, how complete it is, in what it is less than the paper's."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from orchestrator.analysis.axes import DEFAULTS, grouped, options_text
from orchestrator.analysis.paper import Gathered, Setting, State, Trials, Wanted, Work, series_ms
from orchestrator.report.figures.catalogue import Spec
from orchestrator.report.palette import backend_label
from orchestrator.report.text import count_text
from runners.contract import STANDARD, Protocol, decode

_NAMED = 4
_REASON = 110
_KINDS = {"cpu": "one call at a time", "cuda": "back-to-back calls"}


def small_print(spec: Spec, sides: Sequence[Gathered], wanted: Wanted, trials: Trials) -> list[str]:
    """Lines for the lower edge of a figure."""
    rows = [row for side in sides for row in side.rows]
    lines = [_source(spec, sides, rows)] if rows else []
    lines.append(completeness(spec, sides))
    lines += _failed(sides)
    if rows:
        lines += _reductions(rows, sides, wanted)
        lines.append(_campaigns(rows, trials.sweeps))
    others = list(dict.fromkeys(setting.machine for side in sides for setting in side.others))
    if others:
        drawn = {side.setting.machine for side in sides if side.setting}
        named = [
            machine if machine not in drawn else f"{machine} with another driver, software or number of threads"
            for machine in others
        ]
        lines.append(
            f"Also in the store and not drawn: {_listed(named)}; --where chooses, such as --where gpu=… or system=…."
        )
    return lines


def completeness(spec: Spec, sides: Sequence[Gathered]) -> str:
    """How many of a figure's points there are, and which sweep has the others."""
    counts = {state: sum(side.count(state) for side in sides) for state in State}
    whole = sum(counts.values())
    text = f"{counts[State.MEASURED]} of {count_text(whole, 'point', 'points')} of the paper's sweep measured"
    parts = [
        f"{counts[state]} {state.value}" for state in (State.FAILED, State.ABSENT, State.IMPOSSIBLE) if counts[state]
    ]
    text += f"; {', '.join(parts)}" if parts else ""
    if not whole:
        return ""
    if counts[State.ABSENT] or counts[State.IMPOSSIBLE]:
        reasons = dict.fromkeys(
            point.reason for side in sides for point in side.points.values() if point.state is State.IMPOSSIBLE
        )
        why = f" ({'; '.join(reason for reason in reasons if reason)})" if reasons else ""
        where = " on a GPU" if any(side.device == "cpu" for side in sides) else ""
        text += f"{why}. What is missing is measured by {sweep_names(spec)}{where}"
    return text + "."


def sweep_names(spec: Spec) -> str:
    """The files of the sweeps of a figure."""
    return " and ".join(f"sweeps/paper/{name}.yaml" for name in spec.sweeps)


def processes_of(sides: Sequence[Gathered]) -> tuple[int, int]:
    """The fewest and the most processes of a point."""
    estimates = [point.estimate(side.latency) for side in sides for point in side.points.values()]
    counts = [estimate.processes for estimate in estimates if estimate is not None]
    return min(counts, default=0), max(counts, default=0)


def _source(spec: Spec, sides: Sequence[Gathered], rows: Sequence[Mapping[str, Any]]) -> str:
    settings = [side.setting for side in sides if side.setting]
    hosts = sorted({str(row["host"]) for row in rows})
    least, most = processes_of(sides)
    n = f"n = {least}" if least == most else f"n = {least} to {most}"
    kinds = {_KINDS[setting.device] for setting in settings}
    software = list(dict.fromkeys(_software(setting, rows) for setting in settings))
    machines = dict.fromkeys(
        f"CPU: {setting.cpu}, no GPU used" if setting.device == "cpu" else f"{setting.gpu} with {setting.cpu}"
        for setting in settings
    )
    text = "; ".join(machines) + ", " + "; ".join(software)
    bars = "brackets" if spec.is_table else "bars"
    return (
        f"{text}. Host{'s' if len(hosts) > 1 else ''} {_listed(hosts)}. Latency of {' or '.join(sorted(kinds))}, the "
        f"median over {n} processes per point; {bars} are 95 % intervals over processes"
        + (", and none where n = 1." if least == 1 else ".")
    )


def _software(setting: Setting, rows: Sequence[Mapping[str, Any]]) -> str:
    of_it = [row for row in rows if row["system_id"] == setting.system]
    versions = {(row["torch_version"], row["onnxruntime_version"], row["driver_version"]) for row in of_it}
    torch, onnxruntime, driver = sorted(versions, key=str)[0] if versions else (None, None, None)
    software = [f"torch {torch}" if torch else "", f"ONNX Runtime {onnxruntime}" if onnxruntime else ""]
    software += [f"driver {driver}" if driver else "", setting.isolation, f"{setting.threads} threads"]
    return f"environment {setting.environment} ({', '.join(part for part in software if part)})"


def _failed(sides: Sequence[Gathered]) -> list[str]:
    failed = [point for side in sides for point in side.points.values() if point.state is State.FAILED]
    lines = []
    for reason, points in sorted(grouped(failed, lambda point: (point.reason or "")[:_REASON]).items()):
        named = grouped((point.configuration for point in points), _name)
        batches = {name: sorted({what.batch for what in some}) for name, some in named.items()}
        told = [f"{name} batch {', '.join(map(str, some))}" for name, some in batches.items()]
        lines.append(f"Failed: {_listed(told)}: {reason}.")
    return lines


def _name(what: Work) -> str:
    special = options_text(what.workload, json.dumps(dict(what.options)))
    options = "" if special == DEFAULTS else special
    return " ".join(filter(None, (what.workload, options, backend_label(what.backend), what.dtype)))


def _reductions(rows: Sequence[Mapping[str, Any]], sides: Sequence[Gathered], wanted: Wanted) -> list[str]:
    least, most = processes_of(sides)
    found = []
    if least < wanted.rounds:
        several = f"{least}" if least == most else f"{least} to {most}"
        found.append(f"{several} processes per point instead of {wanted.rounds}")
    budgets = {_series_ms(row) for row in rows} - {None}
    if budgets and min(budget for budget in budgets if budget is not None) < wanted.series_ms:
        shortest = min(budget for budget in budgets if budget is not None)
        found.append(f"{shortest / 1000:g} s per series of latencies instead of {wanted.series_ms / 1000:g} s")
    if any(side.device == "cpu" for side in sides) and wanted.in_float32_on_a_cpu:
        found.append("float32 in place of the paper's float16")
    return [f"REDUCED against the paper's sweep: {'; '.join(found)}."] if found else []


def _series_ms(row: Mapping[str, Any]) -> int | None:
    protocol = decode(Protocol, json.loads(row["protocol"] or '{"procedure": "legacy"}'))
    return series_ms(protocol) if protocol.procedure == STANDARD else None


def _campaigns(rows: Sequence[Mapping[str, Any]], sweeps: Mapping[str, str]) -> str:
    campaigns = sorted({str(row["campaign_id"]) for row in rows})
    named = [f"{campaign} (sweep {sweeps[campaign]})" if campaign in sweeps else campaign for campaign in campaigns]
    return f"Campaigns: {_listed(named)}."


def _listed(texts: Sequence[str]) -> str:
    texts = list(dict.fromkeys(texts))
    more = f" and {len(texts) - _NAMED} more" if len(texts) > _NAMED else ""
    return ", ".join(texts[:_NAMED]) + more

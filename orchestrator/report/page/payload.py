"""A page as the data of its script: columns of numbers, compressed. `data.js` reads exactly this."""

import base64
import gzip
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from typing import Any, Final

from orchestrator.analysis import Pairing, Ratio
from orchestrator.analysis.statistics import Estimate
from orchestrator.analysis.tax import Regime
from orchestrator.analysis.verdict import Verdict
from orchestrator.report.page.model import Choice, Mode, Page, PageCell, Series, Shape
from orchestrator.report.page.queries import queries
from orchestrator.report.page.roofs import Ceiling
from orchestrator.report.page.samples import SampleBook
from orchestrator.report.verdicts import cpu_text

_DIGITS: Final = 5
"""Significant ones of every number on the page."""
VERDICTS: Final = tuple(Verdict)
PAIRINGS: Final = tuple(Pairing)
REGIMES: Final = tuple(Regime)
MODES: Final = tuple(Mode)

Columns = dict[str, list[Any]]


def payload(page: Page, samples: SampleBook) -> dict[str, Any]:
    """The document that the script reads; all that is text on the page already is left out."""
    return {
        "title": page.title,
        "store": page.store,
        "mode": page.mode.value,
        "modes": [mode.value for mode in MODES],
        "verdicts": [one.value for one in VERDICTS],
        "pairings": [one.value for one in PAIRINGS],
        "regimes": [one.value for one in REGIMES],
        "sql": page.sql,
        "sql_of_all": page.sql_of_all,
        "queries": queries(page),
        "commands": dict(page.commands),
        "campaigns": [one.campaign_id for one in page.campaigns],
        "hosts": list(samples.hosts),
        "systems": [{"label": one.label, "id": one.system_id, "hosts": list(one.hosts)} for one in page.systems],
        "places": [{**_choice(one.choice), "system": one.system, "device": one.device} for one in page.places],
        "shapes": [_shape(one, page) for one in page.shapes],
        "backends": [_choice(one) for one in page.backends],
        "axes": {
            name: [{"value": value, **_choice(one)} for value, one in choices.items()]
            for name, choices in page.axes.items()
        },
        "baselines": {"backend": page.baselines.backend, "system": page.baselines.system},
        "cells": _cells(page.cells, samples),
        "series": _series(page.series),
        "roofs": _roofs(page),
        "samples": {
            "kept": samples.kept,
            "total": samples.total,
            "per_series": samples.per_series,
            "series": samples.series,
            "series_total": samples.series_total,
        },
    }


def packed(document: dict[str, Any]) -> str:
    """A document as text that may stand in HTML: JSON, gzip, base64."""
    text = json.dumps(document, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return base64.b64encode(gzip.compress(text.encode(), 9, mtime=0)).decode()


def _choice(one: Choice) -> dict[str, Any]:
    return {"label": one.label, "sql": one.sql}


def _shape(one: Shape, page: Page) -> dict[str, Any]:
    axes = {name: value for name, value in one.values.items() if name in page.axes}
    return {**_choice(one.choice), "workload": one.values["workload"], "axes": axes}


def _roofs(page: Page) -> list[dict[str, Any]]:
    """By system and dtype, with the positions of the shapes that are below them."""
    numbers = {one.system_id: number for number, one in enumerate(page.systems)}
    found: list[dict[str, Any]] = []
    for one in page.roofs:
        below = [number for number, shape in enumerate(page.shapes) if one.is_over(shape.values)]
        for dtype in sorted({str(page.shapes[number].values["dtype"]) for number in below}):
            shapes = [number for number in below if page.shapes[number].values["dtype"] == dtype]
            where = {"system": numbers[one.system_id], "shapes": shapes, "dtype": dtype, "threads": one.threads}
            parts = {"arithmetic": one.arithmetic.get(dtype), "bandwidth": one.bandwidth}
            found.append(where | {name: _ceiling(part) for name, part in parts.items()})
    return found


def _ceiling(one: Ceiling | None) -> dict[str, Any] | None:
    return None if one is None else {**asdict(one), "rate": _short(one.rate)}


def _cells(cells: Sequence[PageCell], samples: SampleBook) -> Columns:
    found: Columns = {name: [getattr(one, name) for one in cells] for name in ("place", "shape", "backend", "batch")}
    for mode in MODES:
        timings = [one.timings[mode] for one in cells]
        found |= _estimates(f"{mode.value}", (one.latency for one in timings))
        found[f"{mode.value}_n"] = [one.latency.processes if one.latency else 0 for one in timings]
        found[f"{mode.value}_samples"] = [one.latency.samples if one.latency else 0 for one in timings]
        found |= _ratios(f"{mode.value}_backend", [one.against_backend for one in timings])
        found |= _ratios(f"{mode.value}_system", [one.against_system for one in timings])
    for name in ("overhead", "busy", "dispatch", "fraction"):
        found |= _estimates(name, (getattr(one.parts, name) for one in cells))
    found["device"] = [one.device for one in cells]
    found["regime"] = [None if one.parts.regime is None else REGIMES.index(one.parts.regime) for one in cells]
    found["lower_bound"] = [int(one.parts.is_by_lower_bound) for one in cells]
    found |= _estimates("execution", (None if one.execution is None else one.execution.seconds for one in cells))
    found["execution_share"] = [one.execution and _short(one.execution.share) for one in cells]
    found["execution_floors"] = [one.execution and _short(one.execution.by_floors_s) for one in cells]
    found["execution_best"] = [one.execution and one.execution.best for one in cells]
    found["decided"] = [int(one.parts.is_decided) for one in cells]
    for name in ("flops", "weight_bytes"):
        found[name] = [_short(getattr(one, name)) for one in cells]
    found["statuses"] = [_statuses(one) for one in cells]
    found["reason"] = [one.reason for one in cells]
    found["flagged"] = [one.flagged for one in cells]
    found["unsteady"] = [one.unsteady for one in cells]
    found["taken"] = [None if one is None else list(one) for one in samples.index]
    return found


def _statuses(cell: PageCell) -> str:
    counts = sorted(cell.statuses.items(), key=lambda item: item[0].value != "ok")
    return ", ".join(f"{count} {status.value}" for status, count in counts)


def _estimates(name: str, values: Iterable[Estimate | None]) -> Columns:
    found = list(values)
    parts: dict[str, Callable[[Estimate], float | None]] = {
        name: lambda one: one.value,
        f"{name}_low": lambda one: one.low,
        f"{name}_high": lambda one: one.high,
    }
    return {column: [None if one is None else _short(read(one)) for one in found] for column, read in parts.items()}


def _ratios(name: str, ratios: Sequence[Ratio | None]) -> Columns:
    return {
        **_estimates(name, (None if one is None else one.estimate for one in ratios)),
        f"{name}_verdict": [None if one is None else VERDICTS.index(one.verdict) for one in ratios],
        f"{name}_pairing": [None if one is None else PAIRINGS.index(one.pairing) for one in ratios],
        f"{name}_n": [None if one is None else one.estimate.processes for one in ratios],
        f"{name}_least": [None if one is None else _short(one.judgement.least) for one in ratios],
        f"{name}_more": [None if one is None else one.sessions for one in ratios],
        f"{name}_cpu": [None if one is None else cpu_text(one) for one in ratios],
    }


def _series(series: Sequence[Series]) -> list[dict[str, Any]]:
    found = []
    for one in series:
        change, free = one.transition, one.free
        found.append(
            {
                "place": one.place,
                "shape": one.shape,
                "backend": one.backend,
                "transition": change
                and {
                    "side": change.side.value,
                    "is_lower_bound": one.is_lower_bound,
                    "batch": _short(change.batch),
                    "low": change.interval and _short(change.interval.low),
                    "high": change.interval and _short(change.interval.high),
                    "has_interval": change.interval is not None,
                    "first": change.batches[0],
                    "last": change.batches[-1],
                },
                "free": free
                and {
                    "base": free.base,
                    "batch": free.batch,
                    "cost": _short(free.cost.value),
                    "next": free.next_batch,
                    "next_cost": free.next_cost and _short(free.next_cost.value),
                    "is_decided": free.is_decided,
                },
            }
        )
    return found


def _short(value: float | None) -> float | None:
    if value is None:
        return None
    found = float(f"{value:.{_DIGITS}g}")
    return int(found) if found.is_integer() and abs(found) < 10**15 else found

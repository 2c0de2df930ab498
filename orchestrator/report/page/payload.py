"""A page as the data of its script: columns of numbers, compressed. `data.js` reads exactly this."""

import base64
import gzip
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any, Final

from orchestrator.analysis import Pairing, Ratio
from orchestrator.analysis.axes import columns_of
from orchestrator.analysis.statistics import Estimate
from orchestrator.analysis.tax import Regime
from orchestrator.analysis.verdict import Verdict
from orchestrator.report.page.build import Page
from orchestrator.report.page.cells import Against, Mode, PageCell, Series
from orchestrator.report.page.places import KEY, PageShape
from orchestrator.report.page.samples import SampleBook
from orchestrator.report.page.sql import queries
from orchestrator.report.text import cpu_text, statuses_text

_DIGITS: Final = 5
"""Significant ones of every number on the page."""
VERDICTS: Final = tuple(Verdict)
PAIRINGS: Final = tuple(Pairing)
REGIMES: Final = tuple(Regime)
MODES: Final = tuple(Mode)

Columns = dict[str, list[Any]]


def payload(page: Page, samples: SampleBook) -> dict[str, Any]:
    """The document that the script reads; all that is text on the page already is left out."""
    at = page.at
    return {
        "title": page.title,
        "store": page.store,
        "mode": page.mode.value,
        "modes": [mode.value for mode in MODES],
        "verdicts": [verdict.value for verdict in VERDICTS],
        "pairings": [pairing.value for pairing in PAIRINGS],
        "regimes": [regime.value for regime in REGIMES],
        "sql": page.sql,
        "sql_of_all": page.sql_of_all,
        "queries": queries(columns_of(KEY), without_flagged=page.without_flagged),
        "commands": dict(page.commands),
        "campaigns": [campaign["campaign_id"] for campaign in page.campaigns],
        "hosts": list(samples.hosts),
        "systems": [
            {"label": system.label, "id": system.system_id, "hosts": list(system.hosts)} for system in at.systems
        ],
        "places": [asdict(place) for place in at.places],
        "shapes": [_shape(shape, page) for shape in at.shapes],
        "backends": [asdict(backend) for backend in at.backends],
        "axes": {
            name: [{"value": value, **asdict(choice)} for value, choice in choices.items()]
            for name, choices in at.axes.items()
        },
        "baselines": {kind.value: position for kind, position in page.baselines.items()},
        "cells": _cells(page.cells, samples),
        "series": [_series(series) for series in page.series],
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


def _shape(shape: PageShape, page: Page) -> dict[str, Any]:
    axes = {name: value for name, value in shape.values.items() if name in page.at.axes}
    return {"label": shape.label, "sql": shape.sql, "workload": shape.values["workload"], "axes": axes}


def _roofs(page: Page) -> list[dict[str, Any]]:
    """By system and dtype, with the positions of the shapes that are below them."""
    numbers = {system.system_id: number for number, system in enumerate(page.at.systems)}
    dtypes = [str(shape.values["dtype"]) for shape in page.at.shapes]
    found: list[dict[str, Any]] = []
    for roof in page.roofs:
        below = [number for number, shape in enumerate(page.at.shapes) if roof.is_over(shape.values)]
        for dtype in sorted({dtypes[number] for number in below}):
            shapes = [number for number in below if dtypes[number] == dtype]
            where: dict[str, Any] = {
                "system": numbers[roof.system_id],
                "shapes": shapes,
                "dtype": dtype,
                "threads": roof.threads,
            }
            for name, part in (("arithmetic", roof.arithmetic.get(dtype)), ("bandwidth", roof.bandwidth)):
                where[name] = part and {**asdict(part), "rate": _short(part.rate)}
            found.append(where)
    return found


def _cells(cells: Sequence[PageCell], samples: SampleBook) -> Columns:
    found: Columns = {name: [getattr(cell, name) for cell in cells] for name in ("place", "shape", "backend", "batch")}
    for mode in MODES:
        latencies = [cell.of[mode].estimate for cell in cells]
        found |= _estimates(mode.value, latencies)
        found[f"{mode.value}_n"] = [latency.processes if latency else 0 for latency in latencies]
        found[f"{mode.value}_samples"] = [latency.samples if latency else 0 for latency in latencies]
        for against in Against:
            found |= _ratios(f"{mode.value}_{against.value}", [cell.ratios.get((against, mode)) for cell in cells])
    found |= _estimates("overhead", [_overhead(cell) for cell in cells])
    for name, part in (("busy", "busy_s"), ("dispatch", "dispatch_s"), ("fraction", "framework_fraction")):
        found |= _estimates(name, [cell.tax.parts.get(part) for cell in cells])
    loads = [cell.tax.load for cell in cells]
    taxes = [cell.execution for cell in cells]
    return {
        **found,
        "device": [cell.device for cell in cells],
        "regime": [load and REGIMES.index(load.regime) for load in loads],
        "lower_bound": [int(load is not None and load.is_by_lower_bound) for load in loads],
        **_estimates("execution", [None if tax is None else tax.seconds for tax in taxes]),
        "execution_share": [tax and _short(tax.share) for tax in taxes],
        "execution_floors": [tax and _short(tax.by_floors_s) for tax in taxes],
        "execution_best": [tax and tax.best for tax in taxes],
        "decided": [int(load is not None and load.is_decided) for load in loads],
        "flops": [_short(cell.first("flops")) for cell in cells],
        "weight_bytes": [_short(cell.first("weight_bytes")) for cell in cells],
        "statuses": [statuses_text(cell.trials.statuses) for cell in cells],
        "reason": [next(iter(cell.trials.reasons), None) for cell in cells],
        "flagged": [sum(bool(row["guard_flags"]) for row in cell.ok) for cell in cells],
        "unsteady": [sum(row["steady"] is False for row in cell.ok) for cell in cells],
        "taken": [None if place is None else list(place) for place in samples.index],
    }


def _overhead(cell: PageCell) -> Estimate | None:
    """GPU: pipelined latency less busy time; CPU: the dispatch floor, if it is proven, which is a lower bound."""
    parts = cell.tax.parts
    if cell.device != "cpu":
        return parts.get("exposed_overhead_s")
    return parts.get("dispatch_floor_s") if "framework_fraction" in parts else None


def _estimates(name: str, values: Iterable[Estimate | None]) -> Columns:
    ends = [(None, None, None) if value is None else (value.value, value.low, value.high) for value in values]
    return {
        f"{name}{end}": [_short(triple[number]) for triple in ends] for number, end in enumerate(("", "_low", "_high"))
    }


def _ratios(name: str, ratios: Sequence[Ratio | None]) -> Columns:
    return {
        **_estimates(name, [None if ratio is None else ratio.estimate for ratio in ratios]),
        f"{name}_verdict": [ratio and VERDICTS.index(ratio.verdict) for ratio in ratios],
        f"{name}_pairing": [ratio and PAIRINGS.index(ratio.pairing) for ratio in ratios],
        f"{name}_n": [ratio and ratio.estimate.processes for ratio in ratios],
        f"{name}_least": [ratio and _short(ratio.judgement.least) for ratio in ratios],
        f"{name}_more": [ratio and ratio.sessions for ratio in ratios],
        f"{name}_cpu": [ratio and cpu_text(ratio) for ratio in ratios],
    }


def _series(series: Series) -> dict[str, Any]:
    change, free = series.transition, series.free
    return {
        "place": series.place,
        "shape": series.shape,
        "backend": series.backend,
        "transition": change
        and {
            "side": change.side.value,
            "is_lower_bound": series.is_lower_bound,
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


def _short(value: float | None) -> float | None:
    if value is None:
        return None
    found = float(f"{value:.{_DIGITS}g}")
    return int(found) if found.is_integer() and abs(found) < 10**15 else found

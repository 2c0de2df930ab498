"""An explanation for the terminal, within 80 columns, and as a JSON document for programs.

What one call costs, why, and what would make it cost less.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.text import Text

from orchestrator.analysis import Estimate
from orchestrator.analysis.explanation import FREE, Alternative, Direction, Explanation, Lack
from orchestrator.analysis.phases import TimeSpent
from orchestrator.analysis.tax import Regime, Tax
from orchestrator.analysis.transition import Interval
from orchestrator.report.terminal import ruled_table
from orchestrator.report.text import (
    TOO_WIDE,
    count_text,
    duration_text,
    estimate_text,
    indented,
    interval_text,
    is_useless,
    ratio_text,
    shape_name,
    transition_text,
)
from runners.contract import Status

_GPU_LINES: Final = (
    ("latency_pipelined_median_s", "back-to-back calls", "the paper's latency"),
    ("latency_sync_median_s", "one call at a time", "of a lone request"),
    ("dispatch_s", "dispatch", "host, until a call returns"),
    ("busy_s", "kernels", "device at work"),
    ("graph_s", "the same as a CUDA graph", "next to no host's work"),
    ("exposed_overhead_s", "exposed overhead, the tax", "latency less kernels"),
)
_CPU_LINES: Final = (
    ("latency_sync_median_s", "one call at a time", "framework plus arithmetic"),
    ("latency_pipelined_median_s", "back-to-back calls", ""),
    ("dispatch_floor_s", "floor: the tax, at least", "no arithmetic, one thread"),
    ("parallel_region_tax_s", "tax of parallel regions", "the twin on all threads, less on one"),
)
_REGIMES: Final = {
    Regime.FRAMEWORK_BOUND: "the latency follows the framework, and more arithmetic costs nothing yet",
    Regime.COMPUTE_BOUND: "the latency follows the arithmetic and the memory, and a faster framework changes little",
    Regime.MIXED: "framework and arithmetic take about equally long, or the rounds do not tell them apart",
}
_LACKS: Final = {
    Lack.ROUNDS: "intervals need at least three rounds",
    Lack.TAX: "nothing tells framework and arithmetic apart: the pass that does was not run, or was not valid",
    Lack.BATCHES: "the free batch and the transition need other batches",
    Lack.LARGER_BATCHES: "the end of what is free lies beyond the largest batch that was measured",
    Lack.BACKENDS: "no other backend was measured on this work and system",
    Lack.VARIANTS: "no wider or deeper model was measured with this backend on this system",
}
_FREE: Final = {True: "yes", False: "no", None: "not decided"}


def render_explanation(found: Explanation, commands: Mapping[Lack, str]) -> RenderableType:
    parts: list[RenderableType] = [*_head(found), *_tax(found.tax, found.row["device"]), *_execution(found)]
    parts += [Text(), *_batches(found)]
    parts += [*_variants(found), *_alternatives(found), *_missing(found, commands)]
    return Group(*parts)


def render_time(spent: TimeSpent) -> RenderableType:
    """Where the time of trials went, and that of their campaigns, the most first."""
    told = {**spent.by_phase, **({"between trials": spent.between_s} if spent.between_s else {})}
    trials = count_text(spent.trials, "trial", "trials")
    drawn = [*_shares(f"{trials} took {spent.total_s:.0f} s of their machines.", "phase", told)]
    if spent.stages:
        whole_s = sum(spent.stages.values())
        drawn += [Text(), *_shares(f"Their campaigns took {whole_s:.0f} s from command to end.", "stage", spent.stages)]
    return Group(*drawn)


def _shares(title: str, of: str, seconds: Mapping[str, float]) -> Iterator[RenderableType]:
    table = ruled_table(of, "s", "share")
    for name, some in sorted(seconds.items(), key=lambda item: -item[1]):
        table.add_row(name, f"{some:.1f}", f"{some / sum(seconds.values()):.1%}")
    yield from (Text(title, style="bold"), Text(), table)


def time_document(spent: TimeSpent) -> dict[str, Any]:
    phases = {**spent.by_phase, "between_s": spent.between_s}
    return {"trials": spent.trials, "total_s": spent.total_s, **phases, "campaigns": dict(spent.stages)}


def _transition_of(found: Explanation) -> str:
    """Where the regime changes, in a line."""
    if found.transition is None:
        return "unknown: the load of at least two batches is needed"
    return transition_text(found.transition, is_bound=found.row["device"] == "cpu")


def _head(found: Explanation) -> Iterator[RenderableType]:
    row = found.row
    yield Text(f"{shape_name(found.shape)}, batch {found.batch}, {found.backend}", style="bold")
    hardware = [str(model) for model in (row["gpu_name"], row["cpu_model"]) if model]
    hardware += [f"driver {row['driver_version']}"] if row["driver_version"] else []
    yield Text(f"On {', '.join(found.hosts) or 'an unknown host'}: {', '.join(hardware) or 'unknown hardware'}")
    yield Text(
        f"Environment {row['environment']}, isolation {row['isolation'] or 'unknown'}; trial key {row['trial_key']}"
    )
    processes = count_text(found.tax.processes, "process", "processes")
    campaigns = found.campaigns[0] if len(found.campaigns) == 1 else f"{len(found.campaigns)} campaigns"
    yield Text(f"{processes} in {campaigns}; medians over them with 95 % intervals")
    for failed in found.failed:
        reason = f": {failed.reason}" if failed.reason else ""
        yield Text(f"{count_text(failed.count, 'trial', 'trials')} {failed.status.value}{reason}", style="red")
    if found.tax.unsteady:
        yield Text(
            f"{count_text(found.tax.unsteady, 'warm-up', 'warm-ups')} ended by the cap, not steady", style="yellow"
        )


def _tax(tax: Tax, device: str) -> Iterator[RenderableType]:
    if not tax.parts:
        yield Text("\nNo trial of it ended ok, so nothing can be said about its latency.", style="yellow")
        return
    table = ruled_table("", "per call", "")
    whole = max((part.value for column, part in tax.parts.items() if column.startswith("latency")), default=math.inf)
    for column, name, meaning in _CPU_LINES if device == "cpu" else _GPU_LINES:
        if column in tax.parts:
            told = duration_text(tax.parts[column], math.inf if column.startswith("latency") else whole)
            table.add_row(name, told, Text(meaning, style="dim"))
    share = tax.parts.get("framework_fraction")
    if share is not None:
        table.add_row(
            "the framework's share", _percent(share), Text("at least" if device == "cpu" else "", style="dim")
        )
    if device == "cpu" and tax.load is not None:
        table.add_row(
            "latency over floor", _plain(tax.load.estimate.scaled(2)), Text("at most; transition at 2", style="dim")
        )
    boundedness = tax.parts.get("boundedness")
    if boundedness is not None:
        table.add_row("boundedness", _plain(boundedness), Text("dispatch over kernels", style="dim"))
    yield Text()
    yield table
    yield Text()
    yield Text.assemble(("Regime: ", "bold"), _regime_text(tax))
    if tax.floor_problem is not None:
        yield Text(f"The floor proves nothing here: {tax.floor_problem}", style="yellow")
    if tax.estimates_disagree:
        count = count_text(tax.estimates_disagree, "process", "processes")
        yield Text(f"Profiler and CUDA graph disagree on the overhead in {count}.", style="yellow")


def _regime_text(tax: Tax) -> str:
    load = tax.load
    if load is None:
        return "unknown"
    doubt = "" if load.is_decided else " (one process: no interval)"
    if load.is_by_lower_bound:
        return (
            f"{load.regime.value} by the floor{doubt}: the framework takes at least that, "
            "and may take more of the rest."
        )
    return f"{load.regime.value}{doubt}: {_REGIMES[load.regime]}."


def _execution(found: Explanation) -> Iterator[RenderableType]:
    tax = found.execution
    if tax is None:
        return
    if not tax.share:
        yield Text.assemble(("Execution tax: ", "bold"), "none seen; no backend that was measured is faster")
        return
    if is_useless(tax.seconds, tax.seconds.value / tax.share):
        yield Text.assemble(("Execution tax: ", "bold"), f"{TOO_WIDE}, over {tax.best}")
        return
    share = _percent(Estimate(tax.share, None, None, 1, 1))
    parts = [f"at least {duration_text(tax.seconds)}, {share} of the latency, which {tax.best} does without"]
    if tax.by_floors_s is not None and tax.unexplained_s is not None:
        floors, rest = (
            duration_text(Estimate(part, None, None, 1, 1)) for part in (tax.by_floors_s, tax.unexplained_s)
        )
        parts.append(f"the floors differ by {floors}, which leaves {rest} unexplained")
    yield Text.assemble(("Execution tax: ", "bold"), "; ".join(parts))


def _batches(found: Explanation) -> Iterator[RenderableType]:
    meaning = (
        "floor is half of the latency" if found.row["device"] == "cpu" else "dispatch and kernels take equally long"
    )
    yield Text.assemble(("Transition batch: ", "bold"), f"{_transition_of(found)} ({meaning})")
    free = found.free
    if free is None:
        return
    more = f"{FREE - 1:.0%}"
    costs = f"{free.batch} costs {ratio_text(free.cost)} of batch {free.base}"
    head = costs if free.batch > free.base else "none" if free.is_decided else "none shown"
    if free.next_cost is None:
        tail = "the largest that was measured"
    else:
        doubt = "" if free.is_decided else ", which does not decide"
        tail = f"batch {free.next_batch} costs {ratio_text(free.next_cost)}{doubt}"
        tail = f"what batch {free.next_batch} costs is {TOO_WIDE}" if is_useless(free.next_cost) else tail
    yield Text.assemble(("Free batch ", "bold"), f"(at most {more} above batch {free.base}): {head}; {tail}")


def _variants(found: Explanation) -> Iterator[RenderableType]:
    for direction, name in ((Direction.WIDTH, "Wider"), (Direction.DEPTH, "Deeper")):
        chosen = [variant for variant in found.variants if variant.direction is direction]
        if not chosen:
            continue
        table = ruled_table(direction.value, "latency, of this", "arithmetic, of this", "free")
        for variant in chosen:
            work = "-" if variant.work is None else f"x{variant.work:.3g}"
            free = _FREE[variant.is_free] if (variant.work or 0) > 1 else ""
            table.add_row(str(variant.size), ratio_text(variant.cost), work, free)
        yield Text(
            f"\n{name} or {'narrower' if direction is Direction.WIDTH else 'shallower'}, at this batch:", style="bold"
        )
        yield table


def _alternatives(found: Explanation) -> Iterator[RenderableType]:
    if not found.alternatives:
        return
    removed = "floor" if found.row["device"] == "cpu" else "tax"
    table = ruled_table("backend", "times as fast", f"of the {removed} it removes")
    for other in found.alternatives:
        table.add_row(other.backend, *_outcome(other))
    yield Text("\nOther backends on the same work:", style="bold")
    yield table
    if any(_is_unpaired(other) for other in found.alternatives):
        yield Text("* too few sessions or rounds in common: the interval is unpaired")


def _outcome(other: Alternative) -> tuple[str, str]:
    if other.speedup is None:
        reason = f": {other.reason}" if other.reason else ""
        return (f"{other.status.value}{reason}" if other.status is not Status.OK else "no latency"), ""
    star = " *" if _is_unpaired(other) else ""
    removed = "unknown" if other.removed_share is None else _percent(other.removed_share)
    return ratio_text(other.speedup) + star, removed


def _is_unpaired(other: Alternative) -> bool:
    """Whether its interval is; that of a single process is none."""
    return other.speedup is not None and other.speedup.low is not None and not other.is_paired


def _missing(found: Explanation, commands: Mapping[Lack, str]) -> Iterator[RenderableType]:
    if not found.lacks:
        return
    yield Text("\nTo say more:", style="bold")
    for lack in found.lacks:
        yield Text(f"  {_LACKS[lack]}")
        if lack in commands:
            yield indented(Text(commands[lack], style="cyan"), 4)


def _percent(estimate: Estimate) -> str:
    if is_useless(estimate, 1.0):
        return TOO_WIDE
    value = f"{estimate.value:.1%}" if abs(estimate.value) < 0.1 else f"{estimate.value:.0%}"
    return value + interval_text(estimate, "{:.0%}".format)


def _plain(estimate: Estimate) -> str:
    return estimate_text(estimate, "{:.3g}".format)


def explanation_document(found: Explanation, commands: Mapping[Lack, str]) -> dict[str, Any]:
    """The same for programs: durations are seconds, an interval is null where there is none."""
    row, tax, load, change = found.row, found.tax, found.tax.load, found.transition
    named = (
        *("workload", "sequence_length", "image_size", "dtype", "device", "threads", "trial_key", "environment"),
        *("isolation", "method_version", "system_id", "cpu_model", "gpu_name", "driver_version"),
    )
    return {
        "configuration": {
            **{name: row[name] for name in named},
            "options": found.shape.options,
            "batch": found.batch,
            "backend": found.backend,
            "hosts": found.hosts,
            "campaigns": found.campaigns,
        },
        "processes": tax.processes,
        "unsteady": tax.unsteady,
        "failed": _document(found.failed),
        "parts": _document(tax.parts),
        "load": _document(load and load.estimate),
        "regime": load and load.regime.value,
        "regime_is_by_lower_bound": load is not None and load.is_by_lower_bound,
        "regime_has_interval": load is not None and load.is_decided,
        "floor_problem": tax.floor_problem,
        "execution_tax": _document(found.execution),
        "transition": change and {**_document(change), "text": _transition_of(found)},
        "free_batch": _document(found.free),
        "variants": _document(found.variants),
        "backends": _document(found.alternatives),
        "lacks": [{"what": lack.value, "command": commands.get(lack)} for lack in found.lacks],
    }


def _document(value: Any) -> Any:
    """A value as JSON: dataclasses with their properties; of an estimate value, interval and number of processes."""
    if isinstance(value, Estimate):
        return {name: getattr(value, name) for name in ("value", "low", "high", "processes")}
    if isinstance(value, Interval):
        return [value.low, value.high]
    if isinstance(value, Enum):
        return value.value
    if is_dataclass(value):
        derived = (name for name, member in vars(type(value)).items() if isinstance(member, property))
        return {name: _document(getattr(value, name)) for name in (*(part.name for part in fields(value)), *derived)}
    if isinstance(value, Mapping):
        return {name: _document(part) for name, part in value.items()}
    return [_document(part) for part in value] if isinstance(value, tuple) else value

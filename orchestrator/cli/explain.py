"""`taxmeter explain`: the tax of one configuration, and what would change it."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import click

from orchestrator.analysis.axes import AXES, Axis, values_of
from orchestrator.analysis.conditions import Condition, parse_conditions
from orchestrator.analysis.explanation import Explanation, Lack, explain, explain_columns, measuring
from orchestrator.analysis.phases import phase_columns, time_spent
from orchestrator.analysis.snapshot import Snapshot
from orchestrator.cli.options import format_option
from orchestrator.cli.stores import place_option, require_store
from orchestrator.cli.tables import wide_console
from orchestrator.config import Sweep, load_sweep
from orchestrator.errors import ConfigurationError, some_of
from orchestrator.report.explain import explanation_document, render_explanation, render_time, time_document
from orchestrator.store.query.selection import begins, equals

_SWEEPS: Final = Path("sweeps")
_VALUES_SHOWN: Final = 6
_ID_SHOWN: Final = 12
_TELLING: Final = ("campaign", "sweep", "host", "hw")
"""Axes that make no configuration: one is pooled over them."""


@click.command("explain")
@click.argument("trial", nargs=-1, required=True)
@place_option
@format_option("text", "json")
def explain_command(trial: tuple[str, ...], place: str | Path, form: str) -> None:
    """Explains one configuration: its tax, its regime, where that changes, and what would remove it.

    TRIAL is the id of a trial, the beginning of one that no other shares, or conditions that leave one configuration:

    \b
      taxmeter explain 3f9a1c
      taxmeter explain workload=bert-base backend=eager batch=1 gpu=A100
      taxmeter explain campaign=newest

    All rounds of the configuration on its system count, and all campaigns in which it ran there alike. Conditions on
    campaign, sweep, host and hw alone ask where the time of those trials went.
    """
    snapshot = Snapshot.of(require_store(place))
    conditions = () if _is_id(trial) else parse_conditions(trial)
    if conditions and {condition.axis.name for condition in conditions} <= {*_TELLING}:
        spent = time_spent(snapshot.rows(phase_columns(), snapshot.condition(conditions)), snapshot.campaigns)
        if form == "json":
            click.echo(json.dumps(time_document(spent), indent=2))
        else:
            wide_console().print(render_time(spent))
        return
    target = _by_axes(snapshot, conditions) if conditions else _by_id(snapshot, trial[0], place)
    rows = snapshot.rows(explain_columns(), equals("system_id", target["system_id"]))
    found = explain(rows, target)
    commands = {lack: command for lack in found.lacks if (command := _command(found, lack)) is not None}
    if form == "json":
        click.echo(json.dumps(explanation_document(found, commands), indent=2))
        return
    wide_console().print(render_explanation(found, commands))


def _is_id(trial: tuple[str, ...]) -> bool:
    return len(trial) == 1 and not any(sign in trial[0] for sign in "=<>~")


def _by_id(snapshot: Snapshot, name: str, place: str | Path) -> dict[str, Any]:
    rows = snapshot.rows(explain_columns(), begins("trial_id", name))
    exact = [row for row in rows if row["trial_id"] == name] or rows
    if not exact:
        how = "`taxmeter results sql` finds the ids, or give axes such as workload=bert-base batch=1"
        raise ConfigurationError(f"{place}: no trial {name}; {how}")
    if len(exact) > 1:
        shown = ", ".join(some_of([row["trial_id"][:_ID_SHOWN] for row in exact], _VALUES_SHOWN))
        raise ConfigurationError(f"{place}: {name} may be {shown}; write more of the id")
    return exact[0]


def _by_axes(snapshot: Snapshot, conditions: Sequence[Condition]) -> dict[str, Any]:
    columns = [*explain_columns(), *(name for axis in AXES.values() for name in axis.columns)]
    rows = snapshot.rows(columns, snapshot.condition(conditions))
    if not rows:
        raise ConfigurationError(
            f"no trial meets {' '.join(condition.text for condition in conditions)}, taken together"
        )
    differing = [axis for axis in _configuration_axes() if len({axis.read(row) for row in rows}) > 1]
    if differing:
        first, *others = differing
        more = f" (they differ in {', '.join(axis.name for axis in others)}, too)" if others else ""
        raise ConfigurationError(
            f"several configurations: {first.name} is one of {_listed(first, rows)}; "
            f"add a condition such as '{first.name}={first.brief(first.read(rows[0]))}'{more}"
        )
    # A trial that ended well knows more of what all of them share.
    return min(rows, key=lambda row: row["status"] != "ok")


def _configuration_axes() -> tuple[Axis, ...]:
    return tuple(axis for axis in AXES.values() if axis.name not in _TELLING)


def _listed(axis: Axis, rows: Sequence[dict[str, Any]]) -> str:
    values = sorted({values_of(row, [axis])[0] for row in rows}, key=lambda value: (isinstance(value, str), value or 0))
    return ", ".join(some_of([axis.brief(value) for value in values], _VALUES_SHOWN))


def _command(found: Explanation, lack: Lack) -> str | None:
    """What a user types to measure what is lacking; null if no sweep here measures it."""
    if lack is Lack.ROUNDS:
        return f"taxmeter reproduce {found.row['trial_id']} --rounds 5"
    name = measuring(found, lack, _sweeps())
    return None if name is None else f"make cluster-sweep SWEEP={name}"


def _sweeps() -> dict[Path, Sweep]:
    """The sweeps of the current directory; none outside of a checkout."""
    return {path: load_sweep(path) for path in sorted(_SWEEPS.glob("**/*.yaml"))} if _SWEEPS.is_dir() else {}

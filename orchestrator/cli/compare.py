"""`taxmeter compare`: a table by named axes, or two selections side by side; `taxmeter gate`: fails on a slow-down."""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import Any

import click

from orchestrator.analysis.comparison import MAX_SLOWDOWN, Policy, compare, compare_selections, gate
from orchestrator.analysis.metrics import metric
from orchestrator.analysis.pooling import Pool, pools
from orchestrator.analysis.verdict import MARGIN
from orchestrator.cli.stores import place_option, require_store
from orchestrator.cli.tables import (
    chosen_form,
    force_option,
    print_rows,
    rows_format_option,
    rows_output_option,
    wide_console,
    write_text,
)
from orchestrator.errors import ConfigurationError, ExitCode
from orchestrator.report.comparison import render_comparison
from orchestrator.store.query.tabular import appearing, write_rows


class Percent(click.ParamType[float]):
    """A share, as `5%` or `0.05`; whoever writes 5 means 5 %, not 500 %."""

    name = "percent"

    def convert(self, value: Any, param: click.Parameter | None, _ctx: click.Context | None) -> float:
        """From the text to a share: 0.05."""
        if isinstance(value, float):
            return value
        found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(%?)\s*", str(value))
        option = param.opts[0] if param is not None else None
        if found is None:
            raise ConfigurationError(f"is {value!r}, expected a share such as 5% or 0.05", key=option)
        share = float(found[1]) / 100 if found[2] else float(found[1])
        if share >= 1 and not found[2]:
            raise ConfigurationError(f"is {value}, which is {100 * share:g} %; write {value}%", key=option)
        return share


class Names(click.ParamType[tuple[str, ...]]):
    """Names with commas between them."""

    name = "names"

    def convert(self, value: Any, _param: click.Parameter | None, _ctx: click.Context | None) -> tuple[str, ...]:
        """From the text to the names."""
        return (
            value if isinstance(value, tuple) else tuple(name.strip() for name in str(value).split(",") if name.strip())
        )


where_option = click.option(
    "--where",
    multiple=True,
    metavar="CONDITION",
    help="Trials to take, such as batch=1, gpu~*A100* or 'batch>=8'; all conditions hold.",
)
_match = click.option(
    "--match",
    type=Names(),
    metavar="AXIS,…",
    help="Axes on which cells correspond; by default all that makes a configuration.",
)
_metric = click.option(
    "--metric",
    "metric_name",
    metavar="NAME",
    help="By default latency_sync on CPUs and latency_pipelined on GPUs; docs/comparing.md lists all.",
)
_pool = click.option(
    "--pool",
    type=Names(),
    default=(),
    metavar="NAME,…",
    help=f"What trials of one cell may differ in: {', '.join(pool.value for pool in Pool)}.",
)
_latest = click.option("--latest", is_flag=True, help="Of each cell only the newest campaign.")
_flagged = click.option(
    "--without-flagged", is_flag=True, help="Leave out trials whose guards found that something disturbed them."
)


def selecting(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options that say which trials are compared, and how: `where`, `match`, and a `Policy`."""

    @wraps(command)
    def selected(
        metric_name: str | None,
        pool: tuple[str, ...],
        latest: bool,
        without_flagged: bool,
        **options: Any,
    ) -> Any:
        chosen = None if metric_name is None else metric(metric_name)
        policy = Policy(chosen, pools(pool, "--pool"), latest, without_flagged)
        return command(policy=policy, **options)

    for option in (_flagged, _latest, _pool, _metric, _match, where_option):
        selected = option(selected)
    return selected


@click.command("compare")
@click.argument("selections", nargs=-1, metavar="[SELECTION SELECTION]")
@click.option("--rows", type=Names(), default=(), metavar="AXIS,…", help="Axes of the rows, such as gpu,workload.")
@click.option("--cols", type=Names(), default=(), metavar="AXIS,…", help="Axes of the columns, such as backend.")
@click.option("--baseline", multiple=True, metavar="AXIS=VALUE", help="What all else is compared with: backend=eager.")
@selecting
@click.option(
    "--margin",
    type=Percent(),
    default=MARGIN,
    metavar="PERCENT",
    show_default="3%",
    help="Within which two things are equivalent.",
)
@place_option
@rows_format_option
@rows_output_option
@force_option
def compare_command(
    selections: tuple[str, ...],
    rows: tuple[str, ...],
    cols: tuple[str, ...],
    baseline: tuple[str, ...],
    where: tuple[str, ...],
    match: tuple[str, ...] | None,
    policy: Policy,
    margin: float,
    place: str | Path,
    form: str | None,
    output: Path | None,
    force: bool,
) -> None:
    """Compares what was measured, with intervals, verdicts and all that else differs.

    By axes:  taxmeter compare --rows gpu,workload --cols backend --baseline backend=eager --where batch=1

    Side by side:  taxmeter compare gpu=A100 gpu=H200 --match workload,batch,backend,environment

    A ratio above 1 always means better. Trials that differ in what is no axis are not pooled, unless --pool says so.
    """
    form = chosen_form(form, output)
    if not margin > 0:
        raise ConfigurationError(f"is {margin:g}, expected more than 0, such as 3%", key="--margin")
    policy = replace(policy, margin=margin)
    if selections:
        left, right = _two(selections, rows or cols or baseline)
        table = compare_selections(require_store(place), left, right, match, where, policy)
    else:
        if match is not None:
            raise ConfigurationError("is for two selections; by axes, --rows and --cols say it", key="--match")
        table = compare(require_store(place), rows, cols, baseline, where, policy)
    if output is not None:
        with appearing(output, force=force) as temporary:
            count = write_rows(table.arrow().to_reader(), temporary, form)
        click.echo(f"{output}: {count} rows", err=True)
    elif form == "table":
        console = wide_console()
        console.print(render_comparison(table, console.width))
    else:
        print_rows(table.arrow(), form)


@click.command("gate")
@click.option("--baseline", multiple=True, required=True, metavar="SELECTION", help="Such as campaign=previous.")
@click.option(
    "--candidate",
    multiple=True,
    default=("campaign=newest",),
    metavar="SELECTION",
    show_default="campaign=newest",
    help="What must not be slower.",
)
@click.option(
    "--max-slowdown",
    type=Percent(),
    default=MAX_SLOWDOWN,
    metavar="PERCENT",
    show_default="5%",
    help="What is allowed.",
)
@selecting
@click.option("--require-all", is_flag=True, help="Fail, too, if the candidate lacks what the baseline has.")
@click.option("--junit", type=click.Path(path_type=Path, dir_okay=False), help="A file for the cells as JUnit's XML.")
@click.option(
    "--markdown",
    type=click.Path(path_type=Path, dir_okay=False),
    help='A file that a page is added to, such as "$GITHUB_STEP_SUMMARY".',
)
@place_option
def gate_command(
    baseline: tuple[str, ...],
    candidate: tuple[str, ...],
    max_slowdown: float,
    where: tuple[str, ...],
    match: tuple[str, ...] | None,
    policy: Policy,
    require_all: bool,
    junit: Path | None,
    markdown: Path | None,
    place: str | Path,
) -> ExitCode:
    """Says whether anything became slower by more than is allowed, beyond doubt.

    Exit code 0: nothing did, or it is not proven. 1: something did. 2: there is nothing to compare, or the options are
    wrong.
    """
    from orchestrator.report.gate import gate_junit, gate_markdown, render_gate  # who compares does not wait for XML

    found = gate(require_store(place), baseline, candidate, max_slowdown, match, where, policy, require_all=require_all)
    wide_console().print(render_gate(found))
    if junit is not None:
        write_text(junit, gate_junit(found))
    if markdown is not None:
        write_text(markdown, gate_markdown(found), append=True)
    return ExitCode.OK if found.passed else ExitCode.TRIALS_FAILED


def _two(selections: Sequence[str], others: object) -> Sequence[str]:
    if others:
        raise ConfigurationError("give either two selections, or --rows, --cols and --baseline")
    if len(selections) != 2:
        raise ConfigurationError(
            f"expected two selections, found {len(selections)}: write each as one argument, "
            "such as 'gpu=A100 dtype=float16' 'gpu=H200 dtype=float16'"
        )
    return selections

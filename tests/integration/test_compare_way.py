"""The way of one comparison: the command calls what docs/architecture.md lists, and of analysis only `CALLED` besides."""

import re
import sys
from pathlib import Path, PurePosixPath
from types import FrameType
from typing import NamedTuple

from click.testing import CliRunner

from orchestrator.cli.compare import compare_command
from tests.comparing import rounds, store_of
from tests.conftest import PROJECT

ANALYSIS = "orchestrator/analysis/"
PAGE = PROJECT / "docs" / "architecture.md"
CALLED = {"conditions.py", "metrics.py", "pooling.py", "statistics.py", "tax.py", "comparison/table.py"}


class Station(NamedTuple):
    """A function on the way."""

    path: str
    name: str


def stations() -> list[Station]:
    """As the page lists them."""
    return [Station(*names) for names in re.findall(r"^\d+\. `(\S+\.py) (\S+)`", PAGE.read_text(), re.MULTILINE)]


def called(directory: Path) -> list[Station]:
    """All functions of ours that the command calls, in the order of their calls."""
    calls: list[Station] = []

    def hear(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and f"/{ANALYSIS.split('/')[0]}/" in frame.f_code.co_filename:
            path = frame.f_code.co_filename
            calls.append(Station(path[path.rfind("/orchestrator/") + 1 :], frame.f_code.co_qualname))

    options = ["--rows", "workload", "--cols", "backend", "--baseline", "backend=eager", "--results", str(directory)]
    before = sys.getprofile()
    sys.setprofile(hear)
    try:
        done = CliRunner().invoke(compare_command, options, catch_exceptions=False)
    finally:
        sys.setprofile(before)
    assert "onnxruntime" in done.output
    return calls


def test_the_way_is_short() -> None:
    way = stations()
    assert 12 <= len(way) <= 18
    assert len({station.path for station in way}) <= 12


def test_a_comparison_passes_the_stations_in_their_order(tmp_path: Path) -> None:
    eager, fast = [0.100, 0.110, 0.090], [0.050, 0.056, 0.044]
    store_of(tmp_path, *rounds(eager), *rounds(fast, backend="onnxruntime"))
    calls = called(tmp_path)
    at = 0
    for number, station in enumerate(stations(), 1):
        assert station in calls[at:], f"station {number}, {station}, is not called after the one before"
        at = calls.index(station, at) + 1
    named = {station.path for station in stations()} | {ANALYSIS + name for name in CALLED}
    entered = {station.path for station in calls if PurePosixPath(station.path).is_relative_to(ANALYSIS)}
    assert entered <= named

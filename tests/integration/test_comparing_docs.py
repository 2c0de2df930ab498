"""What docs/comparing.md says is so."""

import re
from pathlib import Path

from orchestrator.analysis.axes import AXES
from orchestrator.analysis.comparison import COLUMNS, Pool
from orchestrator.analysis.metrics import METRICS
from tests.conftest import Captured, Patch
from tests.systems import World, make_systems

TEXT = (Path(__file__).parents[2] / "docs" / "comparing.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    return TEXT.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def test_all_axes_metrics_and_columns_are_described() -> None:
    assert set(re.findall(r"`(\w+)`", section("Axes"))) >= AXES.keys()
    assert set(re.findall(r"`(\w+)`", section("Metrics"))) >= METRICS.keys()
    assert set(re.findall(r"`(\w+)`", section("Rows for programs"))) | AXES.keys() >= set(COLUMNS.names)
    assert all(one.value in section("What is pooled") for one in Pool)


def test_the_example_in_python_runs(tmp_path: Path, monkeypatch: Patch, capsys: Captured) -> None:
    make_systems(tmp_path / "results", World(rounds=3, updated=()))
    monkeypatch.chdir(tmp_path)
    [example] = re.findall(r"```python\n(.*?)```", section("From Python"), re.DOTALL)
    names: dict[str, object] = {}
    exec(compile(example, "docs/comparing.md", "exec"), names)
    shown = capsys.readouterr().out
    assert re.search(r"workload=bert-base sequence_length=128 backend=onnxruntime \d+\.\d\d \w+ rounds", shown)
    assert shown.rstrip().endswith("True")

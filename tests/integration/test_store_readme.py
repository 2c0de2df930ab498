"""What the README of the results says is tried out."""

import re
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from orchestrator.store import CAMPAIGNS, ENVIRONMENTS, SYSTEMS, TRIALS, Store, system_row

README = Path(__file__).parents[2] / "results" / "README.md"
TEXT = README.read_text(encoding="utf-8")
SNIPPETS = re.findall(r"^```python\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store with 5 trials, 4 of them ok, in the `results` of the working directory."""
    shared = {
        "trial_key": "k", "campaign_id": "c", "round": 1, "order": 1, "replicate": 0, "attempt": 1,
        "workload": "bert_base", "batch": 1, "backend": "eager", "backend_options": "{}", "dtype": "float32",
        "device": "cpu", "threads": 2, "seed": 0, "protocol": "{}", "method_version": 1, "contract_version": 1,
        "environment": "cpu", "system_id": "s1", "isolation": "process", "cpu_model": "EPYC",
    }  # fmt: skip
    with Store.open(tmp_path / "results").writer() as writer:
        writer.put_system(system_row("s1", "h1", {"cpu_model": "EPYC"}, {"cpu": {"model": "EPYC 9R14"}}))
        for number in range(5):
            changes = {
                "trial_id": f"t{number}",
                "status": "ok" if number else "oom",
                "started_at": datetime(2026, 11 + number % 2, 20, tzinfo=UTC),
                "latency_sync_median_s": 0.0125 if number else None,
                "samples_sync_s": [0.0125, 0.03125] if number else None,
            }
            writer.append([{**shared, **changes}])
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("library", "expected"),
    [
        ("pyarrow.dataset", ["4\n", "b'unit': b's'"]),
        ("SELECT workload", ["bert_base", "12.5", "EPYC"]),
        ("pandas", ["bert_base", "0.0125"]),
        ("polars", ["shape: (8, 2)", "0.03125"]),
        ("import json", ['"model": "EPYC 9R14"', "s1"]),
    ],
)
@pytest.mark.usefixtures("results")
def test_a_snippet_works(library: str, expected: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    (snippet,) = (one for one in SNIPPETS if library in one)
    exec(compile(snippet, str(README), "exec"), {})
    printed = capsys.readouterr().out
    assert [text for text in expected if text not in printed] == []


def test_every_snippet_is_tried() -> None:
    assert len(SNIPPETS) == 5


@pytest.mark.usefixtures("results")
def test_the_line_for_the_shell_counts_every_row() -> None:
    (line,) = re.findall(r"^```sh\n(python .*)\n```", TEXT, re.MULTILINE)
    command = [sys.executable, *shlex.split(line)[1:]]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert done.stdout == "5\n"


def test_every_column_is_listed_with_its_unit() -> None:
    listed = dict(re.findall(r"^\| `(\w+)` \| [^|]+ \| ([^|]*) \| [^|]*\|$", TEXT, re.MULTILINE))
    units = {}
    for field in TRIALS:
        metadata = {key.decode(): value.decode() for key, value in (field.metadata or {}).items()}
        better = f", {metadata['better']} is better" if "better" in metadata else ""
        units[field.name] = metadata.get("unit", "") + better
    assert {name: unit.strip() for name, unit in listed.items()} == units


def test_the_columns_of_the_small_tables_are_listed() -> None:
    for schema in (SYSTEMS, ENVIRONMENTS, CAMPAIGNS):
        for name in schema.names:
            assert f"`{name}`" in TEXT


def test_a_column_with_a_unit_in_its_name_says_so_in_its_metadata() -> None:
    for field in TRIALS:
        unit = (field.metadata or {}).get(b"unit", b"").decode()
        if field.name.endswith("_per_s"):
            assert unit.endswith("s/s")
        elif field.name.endswith("_s"):
            assert unit == "s"
        elif field.name.endswith("_bytes"):
            assert unit == "bytes"

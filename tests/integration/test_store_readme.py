"""What the README of the results says is tried out."""

import re
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from orchestrator.store import (
    CAMPAIGNS,
    ENVIRONMENTS,
    SYSTEMS,
    TRIALS,
    Store,
    campaign_row,
    environment_row,
    system_row,
)

README = Path(__file__).parents[2] / "results" / "README.md"
TEXT = README.read_text(encoding="utf-8")
SNIPPETS = re.findall(r"^```python\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)


SHARED = {
    "trial_key": "k", "campaign_id": "c", "round": 1, "order": 1, "replicate": 0, "attempt": 1,
    "workload": "bert_base", "batch": 1, "backend": "eager", "backend_options": "{}", "dtype": "float32",
    "device": "cpu", "threads": 2, "seed": 0, "protocol": "{}", "method_version": 1, "contract_version": 1,
    "environment": "cpu", "system_id": "s1", "isolation": "process", "cpu_model": "EPYC",
}  # fmt: skip


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store with 5 trials, 4 of them ok, in the `results` of the working directory."""
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
            writer.append([{**SHARED, **changes}])
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def eras(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A campaign of `eras`, in which one trial of round 3 failed, beside one of another sweep."""
    versions = {
        "cpu-2022": {"python": "3.9.2", "torch": "1.12.1", "transformers": "4.25.1", "onnxruntime": "1.7.0"},
        "cpu": {"python": "3.11.2", "torch": "2.13.0+cpu", "transformers": "5.23.0", "onnxruntime": "1.31.1"},
    }
    rounds = {"cpu-2022": [0.3, 0.4, 0.5], "cpu": [0.2, 0.1, None]}
    number = 0
    with Store.open(tmp_path / "results").writer() as writer:
        for campaign, sweep in (("c1", "eras"), ("c2", "other")):
            texts = {"sweep_document": "", "inventory_document": "", "plan_digest": "p", "taxmeter_version": "1"}
            started = datetime(2026, 11, 20, tzinfo=UTC)
            writer.put_campaign(campaign_row(campaign, started, sweep, planned_trials=6, git_commit=None, **texts))
            for environment, latencies in rounds.items():
                id_ = f"e-{environment}"
                row = environment_row(id_, environment, versions[environment], {}, image_digest=None, lock_sha256=None)
                writer.put_environment(row)
                for round_, latency in enumerate(latencies, 1):
                    number += 1
                    changes = {
                        "trial_id": f"t{number}",
                        "campaign_id": campaign,
                        "round": round_,
                        "environment": environment,
                        "environment_id": id_,
                        "started_at": started,
                        "status": "oom" if latency is None else "ok",
                        "latency_sync_median_s": latency,
                    }
                    writer.append([{**SHARED, **changes}])
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("library", "expected"),
    [
        ("pyarrow.dataset", ["4\n", "b'unit': b's'"]),
        ("isolation, cpu_model", ["bert_base", "12.5", "EPYC"]),
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


@pytest.mark.usefixtures("eras")
def test_the_eras_are_told_by_their_versions_and_compared_within_rounds(capsys: pytest.CaptureFixture[str]) -> None:
    (snippet,) = (one for one in SNIPPETS if "'eras'" in one)
    names: dict[str, Any] = {}
    exec(compile(snippet, str(README), "exec"), names)
    printed = capsys.readouterr().out
    for shown in ("cpu-2022", "1.12.1", "2.13.0+cpu", "times_as_fast"):
        assert shown in printed
    assert names["versions"].fetchall() == [
        ("bert_base", "eager", "cpu", "3.11.2", "2.13.0+cpu", "5.23.0", "1.31.1", 2),
        ("bert_base", "eager", "cpu-2022", "3.9.2", "1.12.1", "4.25.1", "1.7.0", 3),
    ]
    [row] = names["change"].fetchall()
    # of the pairs 0.3/0.2 and 0.4/0.1; round 3 has no partner
    assert row == ("bert_base", 1, "eager", 2, "process", "s1", 2, *map(pytest.approx, (350, 150, 2.75)))


def test_every_snippet_is_tried() -> None:
    assert len(SNIPPETS) == 6


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

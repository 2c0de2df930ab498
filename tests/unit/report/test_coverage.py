"""The page of workloads by backends, from a small store."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from orchestrator.cli import run
from orchestrator.errors import ExitCode
from orchestrator.report.coverage import coverage_columns, coverage_page
from orchestrator.store import Row, Store, environment_row
from runners.contract import Status, digest
from tests.storing import campaign, row

CAMPAIGN = "coverage-1"
MACHINE = {
    "cpu_model": "EPYC 7B13", "cpu_cores": 2, "memory_bytes": 24 * 2**30, "kernel": "6.8", "virtualisation": "kvm",
}  # fmt: skip


def outcome(
    workload: str,
    backend: str,
    status: Status = Status.OK,
    reason: str | None = None,
    ms: float = 12.34,
    **more: object,
) -> Row:
    """A row of the first round, unless it is said otherwise."""
    size = {"image_size": 224} if workload == "resnet50" else {"sequence_length": 128}
    latency = {"latency_sync_median_s": ms / 1e3, "latency_sync_samples": 3} if status is Status.OK else {}
    values: dict[str, Any] = {
        "campaign_id": CAMPAIGN, "workload": workload, "backend": backend, "status": status.value, "reason": reason,
        "workload_options": "{}", "backend_options": "{}", "batch": 1, "round": 1, "host": "lab1",
        "isolation": "docker", "environment_id": "e1", "image_digest": "sha256:0123456789abcdef",
        **MACHINE, **size, **latency, **more,
    }  # fmt: skip
    key = digest([values[name] for name in ("workload", "backend", "workload_options", "backend_options", "batch")])
    return row(f"{key}-{values['round']}-{values['host']}", **{**values, "trial_key": key})


def stored(directory: Path, *rows: Row, planned: int | None = None) -> Store:
    store = Store.open(directory)
    count = sum(row["status"] != "skipped" for row in rows) if planned is None else planned
    known = {"sweep": "coverage", "started_at": datetime(2026, 11, 21, 10, 30, tzinfo=UTC), "git_commit": "abc"}
    versions = {"python": "3.11.7", "torch": "2.13.0", "transformers": "5.23.0", "idna": "3.1"}
    with store.writer() as writer:
        writer.put_campaign(campaign(CAMPAIGN, planned_trials=count, **known))
        writer.put("environments", [environment_row("e1", "cpu", versions, {}, image_digest=None, lock_sha256=None)])
        writer.append(rows)
    return store


def page(directory: Path, *rows: Row, planned: int | None = None) -> str:
    store = stored(directory, *rows, planned=planned)
    return coverage_page(store.campaigns().to_pylist(), [store.trials(coverage_columns())], store.environments())


def test_the_head_says_when_where_and_with_what(tmp_path: Path) -> None:
    text = page(tmp_path, outcome("bert-base", "eager"))
    for expected in (
        "- Campaign `coverage-1` of 2026-11-21, sweep `coverage`, taxmeter 0.1.0, commit abc",
        "- Trials: 1 ok",
        "- Made by `taxmeter results coverage coverage-1`",
        "## Environment `cpu`",
        "- Isolation: docker, image `sha256:0123456789ab`",
        "- Machine: EPYC 7B13, 2 cores, 24 GiB of memory, kernel 6.8, virtualised (kvm)",
        "- Versions: python 3.11.7, torch 2.13.0, transformers 5.23.0",
        "- All trials: batch 1, float32, cpu, 2 threads",
    ):
        assert expected in text.splitlines()


def test_cells_have_the_median_or_the_status_with_a_reason_that_they_share_and_counts_leave_out_what_was_skipped(
    tmp_path: Path,
) -> None:
    lines = page(
        tmp_path,
        outcome("bert-base", "eager"),
        outcome("bert-base", "onnxruntime", Status.WRONG_OUTPUT, "cosine is 0.5, below 0.999"),
        outcome("bert-base", "sdpa_nested", Status.SKIPPED, "backend sdpa_nested cannot run workload bert-base; a"),
        outcome("resnet50", "eager", ms=150),
        outcome("resnet50", "sdpa_nested", Status.SKIPPED, "backend sdpa_nested cannot run workload resnet50; a"),
        outcome("gpt2", "eager", Status.TIMEOUT, "the trial took longer than 60 s"),
    ).splitlines()
    for expected in (
        "- Trials: 2 ok, 1 wrong_output, 1 timeout, 2 skipped",
        "| family | eager | onnxruntime | sdpa_nested |",
        "| language | 1/2 | 0/1 | – |",
        "| vision | 1/1 | – | – |",
        "| `bert-base` | 128 tokens | ok 12.3 ms | wrong_output (1) | skipped (2) |",
        "| `gpt2` | 128 tokens | timeout (3) | – | – |",
        "| `resnet50` | 224x224 pixels | ok 150 ms | – | skipped (2) |",
        "1. wrong_output: `cosine is 0.5, below 0.999`",
        "2. skipped: `backend sdpa_nested cannot run workload WORKLOAD; a`",
        "3. timeout: `the trial took longer than 60 s`",
    ):
        assert lines.count(expected) == 1
    assert lines.index("### language") < lines.index("### vision") < lines.index("### Reasons")


def test_the_page_names_no_host_and_no_path(tmp_path: Path) -> None:
    reason = "3 threads on 2 cores of lab1; see /var/tmp/x-1/trace.log, `a|b` and https://example.org/a/b"
    text = page(tmp_path, outcome("bert-base", "eager", Status.CRASHED, reason))
    assert "lab1" not in text
    assert "/var" not in text
    assert "1. crashed: `` 3 threads on 2 cores of HOST; see …/trace.log, `a|b` and https://example.org/a/b ``" in text


def test_rounds_of_one_trial_are_one_cell_and_only_the_last_attempt_counts(tmp_path: Path) -> None:
    text = page(
        tmp_path,
        outcome("bert-base", "eager", ms=1, attempt=2),
        outcome("bert-base", "eager", Status.INFRASTRUCTURE_ERROR, "the engine went away"),
        outcome("bert-base", "eager", ms=2, round=2),
        outcome("bert-base", "eager", ms=9, round=3),
        outcome("bert-base", "torchscript", ms=0.0123),
        outcome("bert-base", "torchscript", Status.OOM, "killed", round=2),
    )
    assert "| `bert-base` | 128 tokens | ok 2.00 ms | 1 of 2 ok 12.3 us oom (1) |" in text
    assert "| language | 1/1 | 0/1 |" in text
    assert "went away" not in text


def test_what_differs_between_trials_stands_in_the_line(tmp_path: Path) -> None:
    text = page(
        tmp_path,
        outcome("bert-base", "eager", batch=16),
        outcome("bert-base", "eager", batch=2),
        outcome("bert-base", "eager", batch=2, workload_options='{"mask":"ptb"}'),
        outcome("bert-base", "torchscript", backend_options='{"freeze":false}', batch=2),
    )
    lines = text.splitlines()
    assert {"| workload | input | eager | torchscript(freeze=False) |", "- All trials: float32, cpu, 2 threads"} <= {
        *lines
    }
    inputs = [line.split(" | ")[1] for line in lines if line.startswith("| `bert-base`")]
    assert inputs == ["128 tokens, batch 2", "128 tokens, batch 16", "128 tokens, mask=ptb, batch 2"]


def test_environments_and_hosts_are_sections_of_their_own(tmp_path: Path) -> None:
    other: dict[str, Any] = {"environment": "cpu-2022", "environment_id": "e2", "host": "lab3"}
    second: dict[str, Any] = {**dict.fromkeys(MACHINE), "cpu_model": "Xeon", "host": "lab2"}
    text = page(
        tmp_path,
        outcome("bert-base", "eager"),
        outcome("bert-base", "eager", Status.UNSUPPORTED, "too old", **other),
        outcome("bert-base", "eager", ms=50, **second),
    )
    titles = [line for line in text.splitlines() if line.startswith("## ")]
    assert titles == ["## Environment `cpu`", "## Environment `cpu`", "## Environment `cpu-2022`"]
    assert text.count("- Machine: ") == 3
    assert "- Machine: Xeon" in text.splitlines()


def test_trials_without_a_row_are_counted(tmp_path: Path) -> None:
    rows = (outcome("bert-base", "eager"), outcome("bert-base", "python", Status.SKIPPED, "cannot"))
    assert "- Trials: 1 ok, 1 skipped; 4 of those planned have no row yet" in page(tmp_path / "a", *rows, planned=5)
    assert "no row yet" not in page(tmp_path / "b", *rows, planned=1)


def test_the_page_does_not_depend_on_the_order_of_the_rows(tmp_path: Path) -> None:
    ends = {"eager": Status.OK, "openvino": Status.TIMEOUT, "torchscript": Status.CRASHED}
    rows = [
        outcome(workload, backend, status, None if status is Status.OK else f"{workload}: {status.value}")
        for workload in ("bert-base", "distilbert", "resnet50")
        for backend, status in ends.items()
    ]
    assert page(tmp_path / "a", *rows) == page(tmp_path / "b", *reversed(rows))


def test_of_several_campaigns_the_last_has_the_last_word(tmp_path: Path) -> None:
    crashed = outcome("bert-base", "eager", Status.CRASHED, "a mistake")
    earlier = stored(tmp_path / "a", crashed, outcome("gpt2", "eager"))
    later = stored(tmp_path / "b", outcome("bert-base", "eager"))
    campaigns = [row for store in (earlier, later) for row in store.campaigns().to_pylist()]
    trials = [store.trials(coverage_columns()) for store in (earlier, later)]
    text = coverage_page(campaigns, trials, earlier.environments())
    assert "- Trials: 2 ok\n" in text
    assert coverage_page(campaigns[::-1], trials[::-1], earlier.environments()).count("crashed (1)") == 1


def test_the_command_prints_or_writes_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = stored(tmp_path / "results", outcome("bert-base", "eager"))
    expected = coverage_page(store.campaigns().to_pylist(), [store.trials(coverage_columns())], store.environments())
    command = ["results", "coverage", "--results", str(tmp_path / "results")]
    assert run(command) == ExitCode.OK
    assert capsys.readouterr().out == expected
    assert run([*command, CAMPAIGN, "--output", str(tmp_path / "page.md")]) == ExitCode.OK
    assert (tmp_path / "page.md").read_text() == expected
    assert str(tmp_path) not in expected
    assert run([*command, "--output", str(tmp_path / "missing" / "page.md")]) == ExitCode.USAGE
    assert "page.md: cannot be written: No such file" in capsys.readouterr().err

"""The page of workloads by backends, from a small store."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from orchestrator.cli import run
from orchestrator.errors import ExitCode
from orchestrator.report import coverage_columns, coverage_page
from orchestrator.store import RowContext, Store, campaign_row, environment_row, trial_row
from runners.contract import (
    BackendSpec,
    Phases,
    Protocol,
    Series,
    Status,
    Trial,
    TrialRecord,
    TrialSpec,
    WorkloadSpec,
    digest,
)
from runners.contract.catalogue import resolve_options, resolve_workload_options
from runners.contract.spec import OptionValue

CAMPAIGN = "coverage-1"
CONTEXT = RowContext(
    campaign_id=CAMPAIGN,
    task_id="t",
    host="lab1",
    isolation="docker",
    executor_reason="a Docker engine answers",
    environment="cpu",
    environment_id="e1",
    image_digest="sha256:0123456789abcdef",
    image_id="sha256:0123456789abcdef",
    lock_sha256="f0",
    runner_sha256="f1",
    versions={"python": "3.11.7", "torch": "2.13.0"},
    hw_id="h1",
    system_id="s1",
    hot={
        "cpu_model": "EPYC 7B13",
        "cpu_cores": 2,
        "memory_bytes": 24 * 2**30,
        "kernel": "6.8",
        "virtualisation": "kvm",
    },
)


def outcome(
    workload: str,
    backend: str,
    status: Status = Status.OK,
    reason: str | None = None,
    *,
    latency_ms: float = 12.34,
    number: int = 1,
    attempt: int = 1,
    batch: int = 1,
    workload_options: Mapping[str, OptionValue] | None = None,
    backend_options: Mapping[str, OptionValue] | None = None,
    context: RowContext = CONTEXT,
) -> dict[str, object]:
    """One row of a trial's round `number`."""
    length = None if workload == "resnet50" else 128
    size = 224 if workload == "resnet50" else None
    one = WorkloadSpec(workload, batch, length, size, dict(workload_options or {}))
    one = replace(one, options=resolve_workload_options(one))
    how = BackendSpec(backend, dict(backend_options or {}))
    how = replace(how, options=resolve_options(how))
    key = digest([workload, backend, dict(workload_options or {}), dict(backend_options or {}), batch])
    identity = f"{key}-{number}-{context.host}"
    trial = Trial(identity, key, number, 0, 0, attempt, 60, TrialSpec(one, how, "float32", "cpu", 2, 0, Protocol()))
    series = (Series("sync", 1, (round(latency_ms * 1e6),) * 3, (1,) * 3),) if status is Status.OK else ()
    record = TrialRecord(identity, attempt, status, reason, 10**18, 10**18 + 1, Phases(), series)
    return dict(trial_row(context, trial, record))


def stored(directory: Path, *rows: dict[str, object], planned: int | None = None) -> Store:
    store = Store.open(directory)
    campaign = campaign_row(
        CAMPAIGN,
        datetime(2026, 11, 21, 10, 30, tzinfo=UTC),
        "coverage",
        sweep_document="",
        inventory_document="",
        plan_digest="d",
        planned_trials=sum(row["status"] != "skipped" for row in rows) if planned is None else planned,
        taxmeter_version="0.1.0",
        git_commit="abc",
    )
    versions = {"python": "3.11.7", "torch": "2.13.0", "transformers": "5.23.0", "idna": "3.1"}
    with store.writer() as writer:
        writer.put_campaign(campaign)
        writer.put("environments", [environment_row("e1", "cpu", versions, {}, image_digest=None, lock_sha256=None)])
        writer.append(rows)
    return store


def page(directory: Path, *rows: dict[str, object], planned: int | None = None) -> str:
    store = stored(directory, *rows, planned=planned)
    (campaign,) = store.campaigns().to_pylist()
    return coverage_page([campaign], [store.trials(coverage_columns())], store.environments())


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


def test_cells_have_the_median_or_the_status_with_its_reason(tmp_path: Path) -> None:
    text = page(
        tmp_path,
        outcome("bert-base", "eager"),
        outcome("bert-base", "onnxruntime", Status.WRONG_OUTPUT, "cosine is 0.5, below 0.999"),
        outcome("resnet50", "eager", latency_ms=150),
        outcome("resnet50", "sdpa_nested", Status.SKIPPED, "backend sdpa_nested cannot run workload resnet50; a"),
        outcome("gpt2", "eager", Status.TIMEOUT, "the trial took longer than 60 s"),
    )
    lines = text.splitlines()
    assert "| `bert-base` | 128 tokens | ok 12.3 ms | wrong_output (1) | – |" in lines
    assert "| `gpt2` | 128 tokens | timeout (2) | – | – |" in lines
    assert "| `resnet50` | 224x224 pixels | ok 150 ms | – | skipped (3) |" in lines
    assert "1. wrong_output: `cosine is 0.5, below 0.999`" in lines
    assert "2. timeout: `the trial took longer than 60 s`" in lines
    assert "3. skipped: `backend sdpa_nested cannot run workload WORKLOAD; a`" in lines
    assert lines.index("### language") < lines.index("### vision") < lines.index("### Reasons")


def test_counts_leave_out_what_was_skipped(tmp_path: Path) -> None:
    text = page(
        tmp_path,
        outcome("bert-base", "eager"),
        outcome("distilbert", "eager"),
        outcome("bert-base", "openvino", Status.UNSUPPORTED, "openvino is not installed"),
        outcome("distilbert", "openvino"),
        outcome("resnet50", "eager"),
        outcome("resnet50", "openvino", Status.SKIPPED, "not asked for"),
    )
    lines = text.splitlines()
    assert "| family | eager | openvino |" in lines
    assert "| language | 2/2 | 1/2 |" in lines
    assert "| vision | 1/1 | – |" in lines
    assert "- Trials: 4 ok, 1 unsupported, 1 skipped" in lines


def test_a_reason_that_several_trials_share_stands_once(tmp_path: Path) -> None:
    reason = "backend openvino cannot run workload {}"
    text = page(
        tmp_path,
        outcome("bert-base", "openvino", Status.SKIPPED, reason.format("bert-base")),
        outcome("bert-large", "openvino", Status.SKIPPED, reason.format("bert-large")),
    )
    assert text.count("skipped (1)") == 2
    assert text.count("cannot run workload WORKLOAD") == 1


def test_the_page_names_no_host_and_no_path(tmp_path: Path) -> None:
    reason = "3 threads on 2 cores of lab1; see /var/tmp/x-1/trace.log, `a|b` and https://example.org/a/b"
    text = page(tmp_path, outcome("bert-base", "eager", Status.CRASHED, reason))
    assert "lab1" not in text
    assert "/var" not in text
    assert "1. crashed: `` 3 threads on 2 cores of HOST; see …/trace.log, `a|b` and https://example.org/a/b ``" in text


def test_rounds_of_one_trial_are_one_cell(tmp_path: Path) -> None:
    text = page(
        tmp_path,
        outcome("bert-base", "eager", latency_ms=1),
        outcome("bert-base", "eager", latency_ms=2, number=2),
        outcome("bert-base", "eager", latency_ms=9, number=3),
        outcome("bert-base", "torchscript", latency_ms=0.0123),
        outcome("bert-base", "torchscript", Status.OOM, "killed", number=2),
    )
    assert "| `bert-base` | 128 tokens | ok 2.00 ms | 1 of 2 ok 12.3 us oom (1) |" in text
    assert "| language | 1/1 | 0/1 |" in text


def test_only_the_last_attempt_counts(tmp_path: Path) -> None:
    failed = outcome("bert-base", "eager", Status.INFRASTRUCTURE_ERROR, "the engine went away")
    text = page(tmp_path, outcome("bert-base", "eager", attempt=2), failed)
    assert "| `bert-base` | 128 tokens | ok 12.3 ms |" in text
    assert "went away" not in text


def test_what_differs_between_trials_stands_in_the_line(tmp_path: Path) -> None:
    text = page(
        tmp_path,
        outcome("bert-base", "eager", batch=16),
        outcome("bert-base", "eager", batch=2),
        outcome("bert-base", "eager", batch=2, workload_options={"mask": "ptb"}),
        outcome("bert-base", "torchscript", backend_options={"freeze": False}, batch=2),
    )
    lines = text.splitlines()
    assert "| workload | input | eager | torchscript(freeze=False) |" in lines
    rows = [line for line in lines if line.startswith("| `bert-base`")]
    assert [row.split(" | ")[1] for row in rows] == [
        "128 tokens, batch 2",
        "128 tokens, batch 16",
        "128 tokens, mask=ptb, batch 2",
    ]
    assert "- All trials: float32, cpu, 2 threads" in lines


def test_environments_and_hosts_are_sections_of_their_own(tmp_path: Path) -> None:
    other = replace(CONTEXT, environment="cpu-2022", environment_id="e2")
    second = replace(CONTEXT, host="lab2", hot={"cpu_model": "Xeon"})
    text = page(
        tmp_path,
        outcome("bert-base", "eager"),
        outcome("bert-base", "eager", Status.UNSUPPORTED, "too old", context=replace(other, host="lab3")),
        outcome("bert-base", "eager", latency_ms=50, context=second),
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
    rows = [
        outcome(workload, backend, *result)
        for workload in ("bert-base", "distilbert", "resnet50")
        for backend, result in (
            ("eager", ()),
            ("openvino", (Status.TIMEOUT, f"{workload} took too long")),
            ("torchscript", (Status.CRASHED, f"{workload} was killed")),
        )
    ]
    assert page(tmp_path / "a", *rows) == page(tmp_path / "b", *reversed(rows))


def test_of_several_campaigns_the_last_has_the_last_word(tmp_path: Path) -> None:
    earlier = stored(
        tmp_path / "a", outcome("bert-base", "eager", Status.CRASHED, "a mistake"), outcome("gpt2", "eager")
    )
    later = stored(tmp_path / "b", outcome("bert-base", "eager"))
    campaigns = [row for store in (earlier, later) for row in store.campaigns().to_pylist()]
    trials = [store.trials(coverage_columns()) for store in (earlier, later)]
    text = coverage_page(campaigns, trials, earlier.environments())
    assert "- Trials: 2 ok\n" in text
    assert coverage_page(campaigns[::-1], trials[::-1], earlier.environments()).count("crashed (1)") == 1


def test_the_command_prints_or_writes_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = stored(tmp_path / "results", outcome("bert-base", "eager"))
    (campaign,) = store.campaigns().to_pylist()
    expected = coverage_page([campaign], [store.trials(coverage_columns())], store.environments())
    command = ["results", "coverage", "--results", str(tmp_path / "results")]
    assert run(command) == ExitCode.OK
    assert capsys.readouterr().out == expected
    assert run([*command, CAMPAIGN, "--output", str(tmp_path / "page.md")]) == ExitCode.OK
    assert (tmp_path / "page.md").read_text() == expected
    assert str(tmp_path) not in expected


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["no-such"], "no campaign no-such; `taxmeter results ls` lists them"),
        (["--output", "{}/missing/page.md"], "missing/page.md: cannot be written: No such file or directory"),
    ],
)
def test_a_wrong_argument_gives_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], expected: str
) -> None:
    stored(tmp_path, outcome("bert-base", "eager"))
    given = [argument.format(tmp_path) for argument in arguments]
    assert run(["results", "coverage", "--results", str(tmp_path), *given]) == ExitCode.USAGE
    error = capsys.readouterr().err
    assert expected in error
    assert error.count("\n") == 1

"""Ratios of sessions: of what, which processes pair, and that all views say the same of them."""

import math
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from orchestrator.analysis import Pairing, Ratio, Verdict
from orchestrator.analysis.comparison import ComparisonTable, Policy, compare
from orchestrator.analysis.metrics import METRICS
from orchestrator.analysis.statistics import mean_ratio
from orchestrator.analysis.summary import columns, summarise
from orchestrator.report.comparison import render_comparison
from orchestrator.report.page import make_report
from orchestrator.report.page.cells import Against, Mode
from orchestrator.report.page.payload import payload
from orchestrator.report.terminal import render
from orchestrator.store import Results, Row
from runners.statistics.moderation import BETWEEN_CAMPAIGNS, Spread, fitted_prior
from tests.comparing import measured, store_of
from tests.printing import printed

START = datetime(2026, 11, 20, tzinfo=UTC)
CYCLES = 10


def session_row(backend: str, session: int, turns_s: np.ndarray, cpu_s: np.ndarray, **more: object) -> Row:
    """A trial whose turns have these medians, with the mean of these CPU times per call."""
    samples = np.concatenate([[0.99 * turn, turn, 1.5 * turn] for turn in turns_s])
    start = START + timedelta(minutes=session)
    values = {
        "samples_sync_s": samples.tolist(), "turn_samples": [3] * len(turns_s), "interleaving": "turns",
        "latency_sync_samples": len(samples), "latency_sync_p10_s": float(np.quantile(samples, 0.1)),
        "cpu_time_per_call_s": float(cpu_s.mean()),
        "session_id": f"s{session}-{more.get('batch', 1)}", "started_at": start,
        "finished_at": start + timedelta(seconds=20),
    }  # fmt: skip
    return measured(float(np.median(samples)), session, backend=backend, **{**values, **more})


def sessions(
    random: np.random.Generator, factors: dict[str, float], batch: int = 1, count: int = 4, own: float = 0.01
) -> list[Row]:
    """Sessions on a machine that drifts: what lasts for a cycle hits all processes alike."""
    rows = []
    for session in range(count):
        drift = np.exp(np.cumsum(random.normal(0, 0.2, CYCLES)))
        for backend, factor in [*factors.items(), ("eager", factors["eager"])]:
            replicate = sum(row["backend"] == backend and row["round"] == session for row in rows)
            turns = 0.01 * factor * drift * np.exp(random.normal(0, own, CYCLES) + random.normal(0, own))
            cpu = 0.02 * factor * np.exp(random.normal(0, own / 4, CYCLES))
            rows.append(session_row(backend, session, turns, cpu, batch=batch, replicate=replicate))
    return rows


FACTORS = {"eager": 1.0, "onnxruntime": 0.8, "openvino": 0.7, "torchscript": 1.1}


def table_of(results: Results) -> ComparisonTable:
    return compare(results, ["batch"], ["backend"], "backend=eager")


def ratio_in(table: ComparisonTable, backend: str) -> Ratio:
    ratio = table.entry(backend=backend).ratio
    assert ratio is not None
    return ratio


def test_of_a_campaign_it_is_the_mean_over_sessions_with_the_campaigns_own_prior(tmp_path: Path) -> None:
    rows = sessions(np.random.default_rng(1), FACTORS)
    table = table_of(store_of(tmp_path, *rows))
    logs = {
        side: np.array([_log(rows, "eager", 0, session) - _log(rows, *side, session) for session in range(4)])
        for side in (("onnxruntime", 0), ("openvino", 0), ("torchscript", 0), ("eager", 1))
    }
    prior = fitted_prior([Spread(float(one.var(ddof=1)), 3) for one in logs.values()])
    assert prior is not None
    for backend in ("onnxruntime", "openvino", "torchscript"):
        ratio = ratio_in(table, backend)
        expected = mean_ratio(logs[backend, 0], 120, prior, BETWEEN_CAMPAIGNS)
        assert (ratio.pairing, ratio.session_s) == (Pairing.TURNS, 20.0)
        assert (ratio.estimate.value, ratio.estimate.low) == pytest.approx((expected.value, expected.low))
        assert (ratio.estimate.processes, ratio.estimate.degrees) == (4, expected.degrees)
    [twin] = table.twins
    assert twin.ratio.estimate.value == pytest.approx(math.exp(logs["eager", 1].mean()))


def _log(rows: list[Row], backend: str, replicate: int, session: int) -> float:
    """Of the 10th percentile of all calls of a process."""
    [row] = [row for row in rows if (row["backend"], row["replicate"], row["round"]) == (backend, replicate, session)]
    return math.log(np.quantile(row["samples_sync_s"], 0.1))


def test_one_session_of_many_rounds_does_not_stand_for_all(tmp_path: Path) -> None:
    rows = sessions(np.random.default_rng(5), {"eager": 1.0, "onnxruntime": 0.8}, count=6)
    for row in rows:
        if row["backend"] == "onnxruntime" and row["round"]:
            row |= {"interleaving": "alone", "session_id": f"alone{row['round']}"}
    ratio = ratio_in(table_of(store_of(tmp_path, *rows)), "onnxruntime")
    assert (ratio.pairing, ratio.estimate.processes) == (Pairing.ROUNDS, 6)


def test_a_ratio_of_latencies_is_that_of_their_10th_percentiles(tmp_path: Path) -> None:
    rows = sessions(np.random.default_rng(3), {"eager": 1.0, "onnxruntime": 0.8})
    disturbed = [{**row, "latency_sync_median_s": 1.0} if row["backend"] == "eager" else row for row in rows]
    results = store_of(tmp_path, *disturbed)
    usual, by_name = (
        ratio_in(compare(results, ["backend"], baseline="backend=eager", policy=Policy(METRICS[name])), "onnxruntime")
        for name in ("latency_sync", "latency_sync_p10")
    )
    assert usual.estimate.value == by_name.estimate.value == pytest.approx(1.25, rel=0.05)
    assert (usual.cpu is None, by_name.cpu is None) == (False, True)


def test_cpu_time_is_a_witness_that_may_say_otherwise_or_nothing(tmp_path: Path) -> None:
    rows = sessions(np.random.default_rng(4), {"eager": 1.0, "onnxruntime": 0.8, "openvino": 1.0, "torchscript": 1.1})
    # Of OpenVINO the clock stood still
    factors = {"onnxruntime": 1 / 0.8, "openvino": 0.0}
    stolen = [
        {**row, "cpu_time_per_call_s": float(str(row["cpu_time_per_call_s"])) * factors.get(str(row["backend"]), 1.0)}
        for row in rows
    ]
    fair, doubtful = (table_of(store_of(tmp_path / str(n), *some)) for n, some in enumerate((rows, stolen)))
    assert [ratio_in(table, "openvino").cpu is None for table in (fair, doubtful)] == [False, True]
    for table, direction, contradicted in ((fair, 1, False), (doubtful, 0, True)):
        ratio = ratio_in(table, "onnxruntime")
        assert ratio.cpu is not None
        assert ratio.verdict is Verdict.FASTER
        assert (ratio.cpu.verdict.direction, ratio.is_contradicted) == (direction, contradicted)
    shown = printed(render_comparison(doubtful, 120))
    assert "backend=onnxruntime: CPU time says x1.0" in " ".join(shown.split())


def test_the_same_rows_give_the_same_words_in_summary_table_and_page(tmp_path: Path) -> None:
    random = np.random.default_rng(5)
    factors = {"eager": 1.0, "onnxruntime": 0.8, "openvino": 0.985, "tensorrt": 1.0, "torchscript": 1.1}
    noisy = {"eager": 1.0, "onnxruntime": 0.9, "openvino": 1.04}
    rows = [
        *(row for batch in (1, 8) for row in sessions(random, factors, batch, own=0.003)),
        *sessions(random, noisy, 64, own=0.08),
    ]
    results = store_of(tmp_path, *rows)
    table = table_of(results)
    found = summarise(results.trials(columns=columns()).arrow())
    summary = {
        (cell.batch, cell.backend): cell.ratio for one in found.settings for cell in one.cells if cell.ratio is not None
    }
    report = make_report(results)
    page = {
        (cell.batch, report.page.at.backends[cell.backend].label): cell.ratios[Against.BACKEND, Mode.SYNC]
        for cell in report.page.cells
        if (Against.BACKEND, Mode.SYNC) in cell.ratios
    }
    compared = {(entry.key[0], entry.key[1]): entry.ratio for entry in table.ratios}
    assert summary == page == compared
    assert len(compared) == 10
    verdicts = [ratio.verdict for ratio in compared.values() if ratio]
    assert set(verdicts) >= {Verdict.FASTER, Verdict.SLOWER, Verdict.EQUIVALENT, Verdict.UNDECIDED}
    assert [one.ratio for one in found.settings[0].twins] == [one.ratio for one in table.twins]
    assert [one.ratio for one in table.twins] == [one.ratio for one in report.page.twins[Mode.SYNC]]

    terminal, compare_text = (
        " ".join(printed(part).split()) for part in (render(found), render_comparison(table, 200))
    )
    document = payload(report.page, report.samples)
    words = [document["verdicts"][one] for one in document["cells"]["latency_sync_backend_verdict"] if one is not None]
    assert sorted(words) == sorted(verdict.value for verdict in verdicts)
    for line in (
        "Verdicts: ",
        "Smallest difference that could have been found: ",
        "undecided: a decision takes about ",
        "A/A, the same trial twice: 0 of 3 pairs called different.",
    ):
        said = [text[text.index(line) :].split(".")[0].split(", over")[0] for text in (terminal, compare_text)]
        assert said[0] == said[1]
    assert re.search(r"could have been found: \d+(\.\d+)? % in the middle, ", terminal)

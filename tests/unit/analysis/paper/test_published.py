"""What the paper prints, as data: complete, strict, and nowhere a second time with another value."""

import re
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from orchestrator.analysis.claims import load_claims
from orchestrator.analysis.paper import PUBLISHED, Published, load_published, names_model
from orchestrator.config import load_sweep
from orchestrator.errors import ConfigurationError
from orchestrator.report.figures.catalogue import FIGURES, chosen
from tests.conftest import PROJECT
from tests.refusals import refusal, replaced


@pytest.fixture(scope="module")
def published() -> Published:
    return load_published(PROJECT / PUBLISHED)


def test_the_tables_are_the_papers(published: Published) -> None:
    assert [row.latency_s for row in published.table_1.rows] == [0.0136, 0.0134, 0.0134, 0.0134]
    for row in published.table_1.rows:
        assert row.per_example_s == pytest.approx(row.latency_s / row.batch, abs=5e-5)
    gpus = ["1080 Ti", "V100", "2080 Ti", "RTX 8000", "3090", "A6000", "A100"]
    assert [row.gpu for row in published.table_2.rows] == gpus
    assert [(row.backend, row.latency_s) for row in published.table_3.rows] == [
        ("eager", 0.01054),
        ("torchscript", 0.00614),
        ("cuda_graphs", 0.00282),
        ("onnxruntime", 0.00256),
        ("onnxruntime(cuda_graph=True)", 0.00211),
    ]
    sweep = load_sweep(PROJECT / "sweeps" / "paper" / "table_3.yaml")
    names = [axis.name + ("(cuda_graph=True)" if axis.options else "") for axis in sweep.backends]
    assert sorted(names) == sorted(row.backend for row in published.table_3.rows)


def test_claims_say_the_same_numbers(published: Published) -> None:
    claims = load_claims([PROJECT / "claims" / "paper"])
    for statement in published.statements:
        claim = claims[statement.claim]
        said = str(claim.paraphrase)
        number = f"{statement.value:g}" if statement.kind == "times" else f"{100 * statement.value:g}"
        assert re.search(rf"(?<![\d.]){re.escape(number)}(?![\d.])", said), (statement.claim, said)
        assert number in statement.text
        assert set(statement.figures) <= set(FIGURES)
        if statement.kind == "less":
            assert claim.published == pytest.approx(statement.factor, abs=5e-3)
    known = {f"{row.latency_s * 1e3:.1f}" for row in published.table_1.rows}
    known |= {f"{row.latency_s * 1e3:.2f}" for row in published.table_3.rows}
    numbers = {ms for claim in claims.values() for ms in re.findall(r"([\d.]+) ms", claim.paraphrase or "")}
    assert numbers
    assert numbers <= known


MISTAKES = (
    ("latency_s: 0.01054", "latency: 0.01054"),
    ("value: 0.3416", "value: 34.16"),
    ("id: funnel-macs", "id: fnet-and-onnxruntime"),
    ("sm_active_share: 0.026", "sm_active_share: 2.6"),
)


def test_a_mistake_is_one_line_with_its_place(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    path, text = tmp_path / "published.yaml", (PROJECT / PUBLISHED).read_text()
    assert {new: refusal(load_published, path, replaced(text, old, new)) for old, new in MISTAKES} == snapshot


@pytest.mark.parametrize("name", ["4", "figure-4", "Figure_4", " 4"])
def test_a_figure_may_be_named_in_several_ways_and_comes_in_the_papers_order(name: str) -> None:
    assert [figure.name for figure in chosen(("table-1", "10", name))] == ["4", "10", "table-1"]
    assert list(FIGURES) == ["1", *map(str, range(3, 14)), "table-1", "table-2", "table-3"]


@pytest.mark.parametrize(("name", "problem"), [("tabel-1", "did you mean table-1"), ("2", "figure 2 is a drawing")])
def test_an_unknown_figure_is_one_clear_error(name: str, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        chosen((name,))


NAMED = (
    *(("A100", "NVIDIA A100-PCIE-40GB"), ("2080 Ti", "NVIDIA GeForce RTX 2080 Ti")),
    *(("3090", "NVIDIA GeForce RTX 3090 Ti"), ("RTX 8000", "Quadro RTX 8000")),
)
OTHERS = (("A100", "NVIDIA A1000"), ("2080 Ti", "NVIDIA GeForce RTX 2080"))


@pytest.mark.parametrize(("word", "model"), [*NAMED, *OTHERS])
def test_a_word_names_a_model(word: str, model: str) -> None:
    assert names_model(word, model) is ((word, model) in NAMED)

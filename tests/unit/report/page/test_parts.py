"""The parts of a page: names, conditions in SQL, thinning and packing of samples, pieces of HTML."""

import zlib
from collections.abc import Mapping

import numpy as np
import pytest

from orchestrator.report.page.cells import Mode
from orchestrator.report.page.html import Markup, element, table, text
from orchestrator.report.page.places import short_model
from orchestrator.report.page.samples import HEADER, Taken, _limits, _packed, _taken
from orchestrator.report.page.sql import sql_values


@pytest.mark.parametrize(
    ("model", "short"),
    [
        ("NVIDIA A100-PCIE-40GB", "A100-PCIE-40GB"),
        ("NVIDIA GeForce RTX 3090", "RTX 3090"),
        ("Tesla V100-PCIE-32GB", "V100-PCIE-32GB"),
        ("Intel(R) Xeon(R) Gold 6242 CPU @ 2.80GHz", "Xeon Gold 6242"),
        ("AMD EPYC 7763 64-Core Processor", "EPYC 7763"),
        ("AMD", "AMD"),
    ],
)
def test_models_have_short_names(model: str, short: str) -> None:
    assert short_model(model) == short


@pytest.mark.parametrize(
    ("columns", "values", "sql"),
    [
        (["batch"], {(1,)}, "batch = 1"),
        (["batch"], {(1,), (8,)}, "batch IN (1, 8)"),
        (["gpu_name"], {(None,)}, "gpu_name IS NULL"),
        (["gpu_name"], {(None,), ("A",)}, "(gpu_name = 'A' OR gpu_name IS NULL)"),
        (["host"], {("o'brien",)}, "host = 'o''brien'"),
        (["backend", "backend_options"], {("eager", "{}")}, "backend = 'eager'\n  AND backend_options = '{}'"),
        (["a", "b"], {(1, 2), (1, None)}, "((a = 1 AND b = 2) OR (a = 1 AND b IS NULL))"),
    ],
)
def test_values_as_sql(columns: list[str], values: set[tuple[object, ...]], sql: str) -> None:
    assert sql_values(columns, values) == sql


def test_samples_beyond_a_number_are_cut_evenly_and_as_little_as_possible_and_of_too_many_series_some_left_out() -> (
    None
):
    assert _limits([], 10)[1] == 1
    assert _limits([10, 500], 510) == (500, 1)
    assert _limits([100] * 10_000, 10_000) == (4, 4)
    lengths = [10] * 50 + [1000] * 50
    cap, every = _limits(lengths, 10_000)
    assert every == 1
    assert sum(min(length, cap) for length in lengths) <= 10_000 < sum(min(length, cap + 1) for length in lengths)


def test_a_thinned_series_keeps_its_order_and_tells_of_all() -> None:
    values = np.arange(100.0)[::-1] + 1
    taken = _taken({}, Mode.SYNC, values, 10)
    assert taken.values.tolist() == values[::10].tolist()
    assert (taken.count, taken.summary) == (100, (1.0, 50.5, 100.0))


def visited(host: str, number: int) -> Mapping[str, object]:
    return {"campaign_id": "c", "host": host, "round": number, "guard_flags": ["load"] if number == 7 else None}


def test_what_is_packed_comes_out_again() -> None:
    random = np.random.default_rng(1)
    series = [random.lognormal(-6, 0.1, 20) for _ in range(3)]
    same = np.full(4, 2e-3)
    by_cell = {
        0: [
            Taken(visited("a", number), Mode.PIPELINED, 40, (one.min(), float(np.median(one)), one.max()), one)
            for number, one in enumerate(series)
        ],
        2: [Taken(visited("b", 7), Mode.SYNC, 4, (2e-3, 2e-3, 2e-3), same)],
    }
    blocks, index = _packed(by_cell, 3, {"c": 0}, {"a": 0, "b": 1})
    assert index[1] is None
    for cell, expected in ((0, series), (2, [same])):
        place = index[cell]
        assert place is not None
        block, offset, count = place
        data = zlib.decompress(blocks[block], wbits=-zlib.MAX_WBITS)
        heads = np.frombuffer(data, HEADER, count, offset)
        assert heads["flagged"].tolist() == [int(cell == 2)] * count
        values = np.frombuffer(data, "<u2", heads["kept"].sum(), offset + heads.nbytes)
        for head, found, original in zip(heads, np.split(values, np.cumsum(heads["kept"])[:-1]), expected, strict=True):
            seconds = head["least"] + found / 65535 * (head["largest"] - head["least"])
            np.testing.assert_allclose(seconds, original, rtol=2e-5)
    assert list(Mode)[np.frombuffer(zlib.decompress(blocks[0], wbits=-15), HEADER, 1)["mode"][0]] is Mode.PIPELINED


def test_text_is_escaped_and_markup_is_not_and_tables_have_headings() -> None:
    assert text('<b>"&') == "&lt;b&gt;&quot;&amp;"
    assert text(Markup("<b>")) == "<b>"
    assert text(None) == ""
    assert element("a", "<", title='"', class_="x", hidden=True, id=None).html == (
        '<a title="&quot;" class="x" hidden>&lt;</a>'
    )
    found = table("Caption", ["a", "b"], [["x", element("td", "y", class_="z")]]).html
    assert '<th scope="col">a</th>' in found
    assert '<tr><th scope="row">x</th><td class="z">y</td></tr>' in found

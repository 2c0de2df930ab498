"""The paper's figures from a made-up lab: the marks, labels and gaps that they must have, read off matplotlib's artists."""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from matplotlib.axes import Axes
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.text import Text

from orchestrator.analysis.paper import PUBLISHED, State, Trials, load_published, read_trials
from orchestrator.analysis.tax import Regime
from orchestrator.report.figures.canvas import FORMATS, drawing
from orchestrator.report.figures.catalogue import FIGURES, Kind
from orchestrator.report.figures.compose import Drawn, Material, Sheet, compose
from orchestrator.report.figures.write import write_paper
from orchestrator.report.palette import backend_colour
from orchestrator.store import open_store
from runners.contract import TrialSpec
from tests.machines import A100, CPU_ONLY, RTX_2080_TI, RTX_8000, System
from tests.paper_world import SWEEPS, add_models, paper_design
from tests.results import known
from tests.systems import Made, World, make_systems

PROJECT = Path(__file__).parents[2]
FEW = ("bert-base", "resnet50", "distilbert")


def some(system: System) -> Sequence[TrialSpec]:
    """All of it on the paper's own GPU, a part elsewhere."""
    whole = paper_design(system)
    if system is RTX_8000:
        return whole
    return [one for one in whole if one.workload.name in FEW and one.backend.name in ("eager", "fastpath")]


def little(system: System) -> Sequence[TrialSpec]:
    return [one for one in paper_design(system) if one.workload.name == "bert-base" and one.workload.batch == 1][:3]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Made:
    add_models()
    world = World(systems=(RTX_8000, RTX_2080_TI, A100, CPU_ONLY), rounds=2, design=some, effects=(), updated=())
    return make_systems(tmp_path_factory.mktemp("paper") / "lab", world)


@pytest.fixture(scope="module")
def poor(tmp_path_factory: pytest.TempPathFactory) -> Trials:
    """A lab that has measured next to nothing."""
    world = World(systems=(RTX_8000,), rounds=1, design=little, effects=(), updated=())
    made = make_systems(tmp_path_factory.mktemp("paper") / "poor", world)
    return read_trials(open_store(made.directory))


@pytest.fixture(scope="module")
def trials(lab: Made) -> Trials:
    return read_trials(open_store(lab.directory))


def drawn(trials: Trials, name: str) -> Sheet:
    material = Material(trials, load_published(PROJECT / PUBLISHED), SWEEPS, {"funnel-has-fewer-macs": "holds, x1.72"})
    with drawing():
        return compose(FIGURES[name], material)


def with_gid(axes: Axes, gid: str) -> list[object]:
    return [one for one in axes.get_children() if one.get_gid() == gid]


def points(axes: Axes, gid: str) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for one in with_gid(axes, gid) for x, y in zip(*one.get_data(), strict=True)]  # type: ignore[attr-defined]


def texts(figure: Figure) -> str:
    written = [one.get_text() for axes in figure.axes for one in axes.texts]
    legend = [one.get_text() for legend in figure.legends for one in legend.get_texts()]
    return "\n".join([one.get_text() for one in figure.texts] + written + legend)


def titled(figure: Figure, title: str) -> Axes:
    (found,) = [axes for axes in figure.axes if axes.get_title(loc="left") == title]
    return found


@pytest.mark.parametrize("name", [name for name, spec in FIGURES.items() if spec.kind in (Kind.LINES, Kind.PAIRS)])
def test_each_panel_has_a_mark_for_each_point_that_was_measured(trials: Trials, name: str) -> None:
    sheet = drawn(trials, name)
    assert sheet.state is Drawn.WHOLE
    (gathered,) = sheet.sides
    spec = sheet.spec
    for axes, panel in zip(sheet.figure.axes, spec.panels, strict=True):
        measured = [one for one in gathered.select(panel.where) if one.state is State.MEASURED]
        if panel.y.name == "RATIO":
            measured = [one for one in measured if one.configuration.workload != spec.baseline]
        assert len(points(axes, "mark")) == len(measured), panel.title
        assert measured or with_gid(axes, "missing")


def test_a_mark_is_the_median_over_processes_with_its_interval(trials: Trials) -> None:
    sheet = drawn(trials, "4")
    (gathered,) = sheet.sides
    axes = titled(sheet.figure, "ResNet-50, float16")
    where = {"workload": "resnet50", "dtype": "float16", "backend": "onnxruntime"}
    expected = {
        float(one.configuration.batch): estimate
        for one in gathered.select(where)
        if (estimate := one.estimate("latency_pipelined_median_s"))
    }
    (line,) = [one for one in axes.lines if one.get_label() == "ONNX Runtime"]
    assert line.get_color() == backend_colour("onnxruntime")
    assert dict(zip(*line.get_data(), strict=True)) == pytest.approx(
        {x: 1e3 * one.value for x, one in expected.items()}
    )
    bars = [
        segment
        for container in axes.containers
        if isinstance(container, ErrorbarContainer) and container.lines[2][0].get_color()[0][1] > 0.6
        for segment in container.lines[2][0].get_segments()
    ]
    found = {x: (low, high) for (x, low), (_, high) in bars}
    assert len(found) == 8
    for x, one in expected.items():
        assert found[x] == pytest.approx((1e3 * one.low, 1e3 * one.high))  # type: ignore[operator]


def test_a_mark_whose_regime_nobody_knows_looks_like_neither(trials: Trials) -> None:
    def without_regime(row: Mapping[str, Any]) -> dict[str, Any]:
        return {**row, "boundedness": None} if row["batch"] == 4 else {**row}

    settings = {
        setting: {key: tuple(map(without_regime, rows)) for key, rows in cells.items()}
        for setting, cells in trials.settings.items()
    }
    sheet = drawn(replace(trials, settings=settings), "4")
    (gathered,) = sheet.sides
    axes = titled(sheet.figure, "ResNet-50, float16")
    where = {"workload": "resnet50", "dtype": "float16", "backend": "eager"}
    regimes = {float(one.configuration.batch): one.regime for one in gathered.select(where)}
    assert {Regime.FRAMEWORK_BOUND, Regime.COMPUTE_BOUND, None} <= set(regimes.values())
    eager = backend_colour("eager")
    faces = {
        float(one.get_xdata()[0]): one.get_markerfacecolor()
        for one in with_gid(axes, "mark")
        if one.get_color() == eager
    }  # type: ignore[attr-defined]
    expected = {Regime.FRAMEWORK_BOUND: eager, None: "#c4c4c4"}
    assert faces == {batch: expected.get(regime, "white") for batch, regime in regimes.items()}
    assert {"filled: framework-bound", "hollow: not framework-bound", "grey: not known which"} <= set(
        texts(sheet.figure).splitlines()
    )


def test_the_papers_own_latencies_stand_beside_the_measured_ones(trials: Trials) -> None:
    figure = drawn(trials, "4").figure
    batches, lengths = (figure.axes[number] for number in (0, 2))
    assert points(batches, "published") == [(1.0, 13.6), (4.0, 13.4)]
    assert points(lengths, "published") == [(128.0, 13.6), (512.0, 13.4)]
    assert points(titled(figure, "ResNet-50, float16"), "published") == []
    assert "the paper's table 1 (RTX 8000)" in texts(figure)
    assert "TorchScript takes 34.16 % less time" in texts(figure)
    assert "42 % fewer MACs than BERT-Base, and is slower (x1.72). Here: holds, x1.72." in texts(
        drawn(trials, "7").figure
    )


def test_what_failed_is_marked_where_it_would_be_and_told_in_the_small_print(trials: Trials) -> None:
    sheet = drawn(trials, "8")
    axes = sheet.figure.axes[2]
    assert [x for x, _ in points(axes, "failed")] == [8.0]
    assert "Failed: mobilebert ONNX Runtime float16 batch 8" in "\n".join(sheet.small_print)
    assert "wrong_output: relative L2 error 0.031" in "\n".join(sheet.small_print)
    assert "failed" in texts(sheet.figure)


def test_a_series_that_cannot_run_at_all_is_named_in_its_panel(trials: Trials) -> None:
    figure = drawn(trials, "7").figure
    (note,) = with_gid(figure.axes[1], "missing")
    assert note.get_text() == "Funnel (small): failed"  # type: ignore[attr-defined]
    empty = figure.axes[4]
    assert not points(empty, "mark")
    (note,) = with_gid(empty, "missing")
    assert "unsupported: torchscript: the trace of" in note.get_text().replace("\n", " ")  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", [name for name in FIGURES if name not in ("table-2",)])
def test_what_is_missing_is_drawn_as_missing(poor: Trials, name: str) -> None:
    sheet = drawn(poor, name)
    assert sheet.state is not Drawn.WHOLE
    assert "sweeps/paper/" in texts(sheet.figure)
    if sheet.state is Drawn.MISSING:
        assert "NOT MEASURED" in texts(sheet.figure)
        assert "0 of " in sheet.completeness
    if sheet.table is not None:
        assert any("–" in row for row in sheet.table.rows)


def test_a_panel_without_any_point_says_which_sweep_measures_it(poor: Trials) -> None:
    sheet = drawn(poor, "4")
    axes = titled(sheet.figure, "ResNet-50, float16")
    (note,) = with_gid(axes, "missing")
    assert note.get_text().replace("\n", " ") == "not measured; sweeps/paper/figure_4.yaml measures it"  # type: ignore[attr-defined]
    assert not points(axes, "mark")
    assert sheet.completeness.startswith("2 of 132 points of the paper's sweep measured; 130 not measured.")


def test_the_small_print_says_where_the_numbers_come_from(trials: Trials) -> None:
    sheet = drawn(trials, "13")
    text = texts(sheet.figure)
    machine = ("Quadro RTX 8000", "Xeon(R) CPU E5-2630", "rtx8000-01", "environment cuda126")
    for part in (*machine, "n = 2", "95 % intervals"):
        assert part in text
    assert "paper-20261020T180000Z-aaaaaa (sweep paper)" in text
    assert "REDUCED against the paper's sweep: 2 processes per point instead of 5" in text


def test_the_papers_gpu_is_drawn_unless_another_is_chosen_and_the_others_are_named(lab: Made, trials: Trials) -> None:
    chosen = drawn(read_trials(open_store(lab.directory), ["gpu=A100"]), "3")
    assert known(chosen.sides[0].setting).gpu == "NVIDIA A100-PCIE-40GB"
    sheet = drawn(trials, "3")
    assert known(sheet.sides[0].setting).gpu == "Quadro RTX 8000"
    (others,) = [line for line in sheet.small_print if line.startswith("Also in the store")]
    assert "NVIDIA A100-PCIE-40GB" in others


def test_the_split_shows_kernels_and_overhead_of_each_batch(trials: Trials) -> None:
    figure = drawn(trials, "3").figure
    shares = titled(figure, "BERT-Base, float16: shares")
    rest = [one.get_height() for one in shares.patches if one.get_gid() == "rest"]
    kernels = [one.get_height() for one in shares.patches if one.get_gid() == "kernels"]
    assert [up + down for up, down in zip(rest, kernels, strict=True)] == pytest.approx([1.0] * 9)
    # as the made-up lab is: 46 us of the host per operator against 6 us on the device at least
    assert rest[0] > 0.7
    assert rest[-1] < 0.1


def test_generations_have_a_line_per_gpu_and_the_papers_missing_ones_in_the_legend(trials: Trials) -> None:
    figure = drawn(trials, "9").figure
    axes = titled(figure, "BERT-Base, float16")
    assert {line.get_label() for line in axes.lines} >= {"2080 Ti", "RTX 8000", "A100"}
    assert len(points(axes, "mark")) == 3 * 8
    (legend,) = figure.legends
    labels = [one.get_text() for one in legend.get_texts()]
    assert {"1080 Ti (not measured)", "V100 (not measured)", "3090 (not measured)", "A6000 (not measured)"} <= set(
        labels
    )


def test_each_model_of_figure_1_has_its_name_and_no_two_names_meet(lab: Made) -> None:
    figure = drawn(read_trials(open_store(lab.directory), ["gpu~*8000*"]), "1").figure
    axes = titled(figure, "batch 1")
    names = [one for one in axes.texts if one.get_gid() == "name"]
    assert len(names) == len(points(axes, "mark")) == 17
    figure.draw_without_rendering()
    boxes = [Text.get_window_extent(one) for one in names]
    meeting = [
        (a, b) for i, a in enumerate(boxes) for b in boxes[i + 1 :] if a.shrunk(0.9, 0.7).overlaps(b.shrunk(0.9, 0.7))
    ]
    assert meeting == []


def test_on_a_cpu_figures_say_so_and_float32_stands_in_where_the_paper_has_float16_alone(lab: Made) -> None:
    on_cpu = read_trials(open_store(lab.directory), ["device=cpu"])
    padded = drawn(on_cpu, "5")
    assert {one.dtype for one in padded.sides[0].points} == {"float32"}
    assert "ON A CPU, float32 for float16" in texts(padded.figure)
    assert "float32 in place of the paper's float16" in texts(padded.figure)
    assert "CUDA graphs (impossible here)" in texts(padded.figure)
    both = drawn(on_cpu, "4")
    assert with_gid(both.figure.axes[0], "missing")
    assert len(points(both.figure.axes[1], "mark")) == 4
    assert "latency_sync_median_s" in {side.latency for side in both.sides}


def test_table_3_has_the_papers_numbers_beside_the_measured_ones(trials: Trials, tmp_path: Path) -> None:
    sheet = drawn(trials, "table-3")
    by_name = {row[0]: row for row in known(sheet.table).rows}
    assert by_name["PyTorch"][3:6] == ("10.54", "2.6 %", "0.9 %")
    assert by_name["ONNX Runtime, CUDA graphs"][3:6] == ("2.11", "59.0 %", "20.3 %")
    assert by_name["PyTorch"][6].startswith("13.")
    cells = [one.get_text() for one in sheet.figure.axes[0].texts]
    assert "10.54" in cells
    assert by_name["CUDA graphs"][6] in cells


def test_table_2_puts_the_machines_of_the_store_beside_their_like(trials: Trials) -> None:
    sheet = drawn(trials, "table-2")
    rows = known(sheet.table).rows
    by_gpu = {row[1]: row for row in rows}
    assert by_gpu["A100"][9:11] == ("Intel Xeon Platinum 8339HC", "NVIDIA A100-PCIE-40GB")
    assert by_gpu["V100"][9:] == ("–",) * 5
    assert rows[-1][9:11] == ("AMD EPYC 7763 64-Core Processor", "no GPU")


def test_each_figure_is_written_in_three_formats_and_listed_and_equal_numbers_give_equal_files(
    trials: Trials, tmp_path: Path
) -> None:
    told = []
    specs = [FIGURES[name] for name in ("13", "table-1")]
    index, again = (
        write_paper(directory, specs, trials, load_published(PROJECT / PUBLISHED), SWEEPS, [], FORMATS, told.append)
        for directory in (tmp_path / "new" / "paper", tmp_path / "again")
    )
    written, rewritten = (
        {path.name: path.read_bytes() for path in page.parent.glob("*.*") if page != path} for page in (index, again)
    )
    assert written == rewritten
    assert {path.name for path in index.parent.iterdir()} == {
        *(f"{stem}.{form}" for stem in ("figure-13", "table-1") for form in FORMATS),
        *("table-1.md", "table-1.csv", "index.md"),
    }
    assert (index.parent / "figure-13.png").read_bytes().startswith(b"\x89PNG")
    assert (index.parent / "figure-13.pdf").read_bytes().startswith(b"%PDF")
    assert "Figure 13. WavLM on 2 s of sound" in (index.parent / "figure-13.svg").read_text()
    page = index.read_text()
    assert "| Figure 13 | drawn | WavLM on 2 s of sound | 24 of 24 points" in page
    assert "takes 34.16 % less time than PyTorch" in page
    with (index.parent / "table-1.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert [row["paper, RTX 8000, ms: latency"] for row in rows] == ["13.6", "13.4", "13.4", "13.4"]
    assert [page.sheet.spec.name for page in told] == ["13", "table-1"] * 2


@pytest.mark.slow
def test_files_are_small_enough_to_be_sent(trials: Trials, tmp_path: Path) -> None:
    published = load_published(PROJECT / PUBLISHED)
    write_paper(tmp_path, [FIGURES["8"], FIGURES["9"]], trials, published, SWEEPS, [], FORMATS, lambda _: None)
    sizes = {path.name: path.stat().st_size for path in tmp_path.iterdir()}
    assert len(sizes) == 7
    assert {name: size for name, size in sizes.items() if size > 1e6} == {}


@pytest.mark.parametrize("name", ["7", "8"])
def test_marks_and_names_along_the_edges_cover_no_point(trials: Trials, name: str) -> None:
    figure = drawn(trials, name).figure
    figure.draw_without_rendering()
    seen = set()
    for axes in figure.axes:
        shown = [axes.transData.transform(one)[1] for one in points(axes, "mark")]
        gaps = [axes.transAxes.transform(one)[1] for gid in ("failed", "absent") for one in points(axes, gid)]
        names = [Text.get_window_extent(one).y0 for one in with_gid(axes, "missing")]  # type: ignore[arg-type]
        assert not shown or max(gaps, default=0) < min(shown) <= max(shown) < min(names, default=max(shown) + 1)
        seen |= {kind for kind, found in (("gaps", gaps), ("names", names)) if shown and found}
    assert seen == ({"gaps", "names"} if name == "7" else {"gaps"})


@pytest.mark.parametrize("name", list(FIGURES))
def test_nothing_runs_off_the_page(trials: Trials, poor: Trials, name: str) -> None:
    for one in (trials, poor):
        figure = drawn(one, name).figure
        figure.draw_without_rendering()
        page = figure.bbox
        shown = [*figure.texts, *figure.legends, *(text for axes in figure.axes for text in axes.texts)]
        boxes = [each.get_window_extent() for each in shown]
        assert max(box.x1 for box in boxes) <= page.x1 + 1
        assert min(box.x0 for box in boxes) >= page.x0 - 1
        assert min(box.y0 for box in boxes) >= page.y0 - 1

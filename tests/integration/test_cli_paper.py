"""`taxmeter paper`: what it draws, what it measures first, and what it says of what is wrong."""

import sys
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

from orchestrator.cli import paper
from orchestrator.cli.paper import chosen_sweeps, measure
from orchestrator.config import load_sweep
from orchestrator.errors import ConfigurationError, ExitCode
from orchestrator.planning import EnvironmentPin, Isolation, PlanningHost, plan
from runners.system import Topology
from tests.conftest import Captured, Patch
from tests.machines import CPU_ONLY, RTX_8000
from tests.paper_world import SWEEPS, add_models, paper_design
from tests.results import refused, taxmeter
from tests.systems import World, make_systems

PROJECT = Path(__file__).parents[2]
TWO_CORES = PlanningHost("h1", {}, (0, 1), {"cpu": EnvironmentPin("cpu", Isolation.PROCESS, "for a test", "lock")})


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    add_models()
    world = World(
        systems=(RTX_8000, CPU_ONLY), rounds=2, effects=(), updated=(),
        design=lambda system: [one for one in paper_design(system) if one.workload.name == "bert-base"],
    )  # fmt: skip
    return make_systems(tmp_path_factory.mktemp("paper") / "store", world).directory


@pytest.fixture(autouse=True)
def in_the_project(monkeypatch: Patch) -> None:
    monkeypatch.chdir(PROJECT)


def test_it_draws_and_says_what_is_there(store: Path, tmp_path: Path, capsys: Captured) -> None:
    output = tmp_path / "paper"
    assert taxmeter("paper", "--results", store, "--figures", "3,10,table-3", "--output", output) == ExitCode.OK
    told = capsys.readouterr().out.splitlines()
    assert told[0] == "Figure 3  drawn    18 of 18 points of the paper's sweep measured."
    assert told[1].startswith("Figure 10 missing  0 of 48 points of the paper's sweep measured; 48 not measured")
    assert all(len(line) <= 80 for line in told[:2])
    page = (output / "index.md").read_text()
    assert "| Figure 10 | **missing** |" in page
    assert "![Figure 3: BERT-Base in PyTorch: the time of kernels and the rest](figure-3.svg)" in page
    assert "| holds | CUDA graphs cut the latency of BERT-base at batch 1. |" in page
    assert "10.54" in (output / "table-3.md").read_text()


def test_conditions_choose_what_is_drawn(store: Path, tmp_path: Path, capsys: Captured) -> None:
    arguments = ("--figures", "3", "--formats", "svg", "--output", tmp_path, "--where", "device=cpu")
    assert taxmeter("paper", "--results", store, *arguments) == ExitCode.OK
    assert "4 of 18 points" in capsys.readouterr().out
    drawing = (tmp_path / "figure-3.svg").read_text()
    assert "ON A CPU" in drawing
    assert "AMD EPYC 7763" in drawing
    assert not (tmp_path / "figure-3.png").exists()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--figures", "44"), "taxmeter: --figures: the paper has no 44; did you mean 4? known: "),
        (("--formats", "jpg"), "taxmeter: --formats: jpg is no format; did you mean png? known: pdf, png, svg"),
        (("--where", "gpu=A100"), "taxmeter: --where: no trial has gpu=A100; there are: Quadro RTX 8000, no GPU"),
        (("--quick",), "taxmeter: --quick: shortens what is measured; add --measure"),
    ],
)
def test_what_is_wrong_is_one_line(
    store: Path, tmp_path: Path, capsys: Captured, arguments: tuple[str, ...], expected: str
) -> None:
    error = refused(capsys, "paper", "--results", store, "--output", tmp_path / "no", *arguments)
    assert error.startswith(expected)
    assert not (tmp_path / "no").exists()


def test_without_the_library_that_draws_it_says_how_to_get_it(
    store: Path, tmp_path: Path, capsys: Captured, monkeypatch: Patch
) -> None:
    for name in [name for name in sys.modules if name.startswith("orchestrator.report.figures.")]:
        if name != "orchestrator.report.figures.catalogue":
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    error = refused(capsys, "paper", "--results", store, "--output", tmp_path)
    assert "matplotlib is not installed, which draws; `make paper` installs it" in error


def test_a_place_that_cannot_be_written_is_one_line(store: Path, tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "file").write_text("")
    output = tmp_path / "file" / "paper"
    error = refused(capsys, "paper", "--results", store, "--figures", "13", "--output", output)
    assert f"{output}: cannot be written: Not a directory; name another with --output" in error


def test_the_quick_sweeps_of_a_processor_fit_into_20_minutes_with_drawing() -> None:
    sweeps = [load_sweep(path) for path in chosen_sweeps(SWEEPS, "cpu", quick=True)]
    seconds = sum(plan(sweep, [TWO_CORES], "c").estimate_s for sweep in sweeps)
    assert seconds < 18 * 60
    assert {sweep.device for sweep in sweeps} == {"cpu"}
    # an interval needs two
    assert min(sweep.rounds for sweep in sweeps) >= 2


@pytest.mark.parametrize(
    ("device", "quick", "names"),
    [
        ("cuda", False, ["figure_1.yaml", "table_3_legacy.yaml"]),
        ("cuda", True, ["frameworks.yaml", "models.yaml"]),
        ("cpu", False, ["images.yaml", "sound_and_text.yaml"]),
        ("cpu", True, ["pairs.yaml", "padded.yaml"]),
    ],
)
def test_sweeps_are_those_of_the_device(device: str, quick: bool, names: list[str]) -> None:
    found = chosen_sweeps(SWEEPS, device, quick=quick)
    assert set(names) <= {path.name for path in found}
    assert {load_sweep(path).device for path in found} == {device}


def measured(monkeypatch: Patch, *codes: int, device: str = "cpu") -> tuple[int, list[list[str]]]:
    """The exit code where sweeps end with these, the last for all further ones, and how each was run."""
    ran: list[list[str]] = []

    def run(arguments: list[str]) -> int:
        ran.append(arguments)
        return codes[min(len(ran), len(codes)) - 1]

    monkeypatch.setattr(paper, "_run", run)
    return measure(Path("hostinventory.yaml"), None, Path("r"), SWEEPS, quick=True, device=device, resume="auto"), ran


def test_each_sweep_is_run_and_what_is_finished_is_not_measured_again(monkeypatch: Patch) -> None:
    code, ran = measured(monkeypatch, ExitCode.TRIALS_FAILED, ExitCode.OK)
    assert code == ExitCode.TRIALS_FAILED
    sweeps = [Path(arguments[2]).name for arguments in ran]
    assert sweeps == [path.name for path in chosen_sweeps(SWEEPS, "cpu", quick=True)]
    assert all(arguments[arguments.index("--resume") + 1] == "always" for arguments in ran)


def test_an_interrupted_sweep_ends_it_and_says_how_to_go_on(monkeypatch: Patch, capsys: Captured) -> None:
    code, ran = measured(monkeypatch, ExitCode.INTERRUPTED)
    assert (code, len(ran)) == (ExitCode.INTERRUPTED, 1)
    assert "run the same command again to go on" in capsys.readouterr().err


def test_a_lab_without_a_gpu_is_measured_on_its_processors(monkeypatch: Patch, capsys: Captured) -> None:
    facts = SimpleNamespace(topology=Topology(("0", "1"), (), ()))

    def open_hosts(names: Iterable[str], *_: object) -> AbstractContextManager[SimpleNamespace]:
        return nullcontext(SimpleNamespace(look=lambda: (dict.fromkeys(names, facts), {})))

    monkeypatch.setattr(paper, "open_hosts", open_hosts)
    assert measured(monkeypatch, ExitCode.OK, device="auto")[0] == ExitCode.OK
    told = capsys.readouterr().out
    assert "the lab is measured on its processors, for it has no GPU" in told
    assert "sweeps/paper/quick/cpu/frameworks.yaml (1 of 5)" in told


def test_elsewhere_than_in_the_project_there_are_no_sweeps(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no sweeps there; run this in the root of the project"):
        chosen_sweeps(tmp_path, "cpu", quick=False)

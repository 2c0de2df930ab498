"""`taxmeter results sql | export` take nobody's place, and leave no trace of short names of hosts."""

from pathlib import Path

import pytest

from orchestrator.errors import ExitCode
from orchestrator.store import Store, campaign_row, open_store
from orchestrator.store.sharing.scrubbing import Scrubber
from tests.results import CAMPAIGNS, make_store, taxmeter, trial

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return make_store(tmp_path / "results", trial("a"))


def export(store: Store, output: Path, *more: str) -> int:
    return taxmeter("results", "export", "--results", store.layout.root, "--output", output, *more)


def test_the_description_beside_a_file_takes_nobodys_place(store: Store, tmp_path: Path, capsys: Captured) -> None:
    output, side = tmp_path / "x.csv", tmp_path / "x.csv.columns.json"
    side.write_text("mine")
    assert export(store, output, "--columns", "batch") == ExitCode.USAGE
    assert "x.csv.columns.json" in capsys.readouterr().err
    assert side.read_text() == "mine"
    assert not output.exists()
    assert export(store, output, "--columns", "batch", "--force") == ExitCode.OK
    assert "batch" in side.read_text()
    side.unlink()
    side.mkdir()
    assert export(store, output, "--columns", "batch", "--force") == ExitCode.USAGE
    assert "is a directory; name a file" in capsys.readouterr().err


def test_a_file_never_takes_the_place_of_a_directory(store: Store, tmp_path: Path, capsys: Captured) -> None:
    output = tmp_path / "export"
    assert export(store, output) == ExitCode.OK
    before = sorted(output.rglob("*"))
    query = ("results", "sql", "SELECT 1", "--results", store.layout.root, "--format", "csv")
    assert taxmeter(*query, "--output", output, "--force") == ExitCode.USAGE
    assert "is a directory; name a file" in capsys.readouterr().err
    assert sorted(output.rglob("*")) == before
    assert export(store, output, "--force") == ExitCode.OK


def test_nothing_is_written_into_a_store(store: Store, capsys: Captured) -> None:
    inside = store.layout.root / "trials" / "x.csv"
    query = ("results", "sql", "SELECT 1", "--results", store.layout.root)
    assert taxmeter(*query, "--output", inside) == ExitCode.USAGE
    assert f"within the result store {store.layout.root}" in capsys.readouterr().err
    assert export(store, store.layout.root / "export") == ExitCode.USAGE
    assert not inside.exists()
    assert not (store.layout.root / "export").exists()


@pytest.mark.parametrize("host", ["n1", "a", "10", "r2-n1"])
def test_short_names_of_hosts_leave_the_names_of_tasks(tmp_path: Path, host: str) -> None:
    task = f"{CAMPAIGNS[0]}-{host}-cpu-next-r1"
    store = make_store(tmp_path / "results", trial("a", host=host, task_id=task), trial("b", host="cpu"))
    named = campaign_row(
        "other", trial("a")["started_at"], "night",  # type: ignore[arg-type]
        sweep_document="", inventory_document="", plan_digest="p", planned_trials=1, taxmeter_version="1",
        git_commit=None, plan={"tasks": [{"host": host, "task_id": task}]},
    )  # fmt: skip
    with store.writer() as writer:
        writer.put_campaign(named)
    assert export(store, tmp_path / "out", "--anonymise") == ExitCode.OK
    rows = open_store(tmp_path / "out")
    exported = next(row for row in rows.trials().arrow().to_pylist() if row["trial_id"] == "a")
    expected = f"{CAMPAIGNS[0]}-{exported['host']}-cpu-next-r1"
    assert exported["host"].startswith("host-")
    assert exported["task_id"] == expected
    plans = [row["plan"] for row in rows.campaigns().arrow().to_pylist() if row["plan"]]
    assert [expected in plan for plan in plans] == [True]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("http_proxy=http://gate.phys:3128 set", "http_proxy=[removed] set"),
        ("dial http://gate:3128/x", "dial http://[host]:3128/x"),
        ("see https://pytorch.org/docs", "see https://pytorch.org/docs"),
        ("/tmp/wanda-run/model.onnx", "/tmp/[name]/model.onnx"),
        ("/tmp/torchinductor_wanda/ab", "/tmp/[name]/ab"),
        ("/tmp/tmpab12cd/model.onnx", "/tmp/tmpab12cd/model.onnx"),
        ("no room in /dev/shm/wanda", "no room in /dev/shm/[name]"),
        ("/dev/shm is full, /tmp too", "/dev/shm is full, /tmp too"),
        ("/var/lib/slurm/wanda: gone", "/var/lib/slurm/[name]: gone"),
    ],
)
def test_what_names_a_person_by_its_place_goes_and_other_text_stays(text: str, expected: str) -> None:
    assert Scrubber.of({}).text(text) == expected

"""`taxmeter results export`: what leaves the store, and what must not leave the lab."""

import csv
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from orchestrator.errors import ExitCode
from orchestrator.store import Store, campaign_row, environment_row, open_store, system_row
from orchestrator.store.export import Anonymiser
from orchestrator.store.schema import COLUMNS, SCHEMAS
from orchestrator.store.schema.columns import Column, Sharing
from runners.contract import encode
from runners.system import hot_columns, hw_id
from tests.conftest import Captured
from tests.results import CAMPAIGNS, ENVIRONMENT, FINGERPRINT, SYSTEM, refused, taxmeter, told, trial

SECRETS = (
    *("gpubox7", "gpubox7.phys.example.edu", "turing-node", "mlab-login", "10.20.30.41", "2001:db8:77::9", "wanda"),
    *("xaver", "wanda@phys.example.edu", "b8:ce:f6:01:02:03", "GPU-0fee1dea-dead-beef-cafe-000011112222"),
    *("1650522004242", "7b1c9a52-0000-4000-8000-1234567890ab", "kryptonite", "Rack B7", "/srv/groups/quantum"),
    "hunter2",
)
TEXT = (
    "wanda@gpubox7:~$ python /home/wanda/run.py\nHOSTNAME=turing-node\nconnect 10.20.30.41:22 or 2001:db8:77::9\n"
    "ether b8:ce:f6:01:02:03\nGPU-0fee1dea-dead-beef-cafe-000011112222 serial: 1650522004242\n"
    "from wanda@phys.example.edu, home of Xaver: /Users/xaver/lib.py, /srv/groups/quantum/model.onnx\n"
    "password=hunter2 on gpubox7.phys.example.edu\n"
)
OTHER = "gpubox7-20251205T000000Z-bbbbbb"
INVENTORY = """# Rack B7 belongs to wanda
version: 1
ray_address: turing-node:6379
faults: {silence_s: 7}
hosts:
  gpubox7: {connection: ssh, address: 10.20.30.41, user: wanda, labels: {place: Rack B7, code: kryptonite}}
  mlab-login:
    connection: local   # xaver's
"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A store that tells everything about its lab wherever it can."""
    known = {"operations": 7, "attn_implementation": "sdpa"}
    facts = json.dumps({"cache": "/home/wanda/.cache", "nic": {"serial": "1650522004242", "note": TEXT}, **known})
    loud = {
        "host": "gpubox7", "task_id": f"{CAMPAIGNS[0]}-gpubox7-cpu-r1", "reason": TEXT, "log_tail": TEXT, "facts": facts,
        "conditions_before": facts, "conditions_after": facts, "executor_reason": "gpubox7 answers",
        "dispatch_floor_problem": TEXT, "reproduction_differs": "host gpubox7, not mlab-login",
        "kernel": "6.1.0-wanda",
    }  # fmt: skip
    boot_id = "7b1c9a52-0000-4000-8000-1234567890ab"
    private = {"host_name": "turing-node", "boot_id": boot_id, "gpu_uuids": [SECRETS[10]]}
    fingerprint: dict[str, Any] = {**encode(FINGERPRINT), "private": private}
    fingerprint["kernel"] |= {"command_line": f"root=UUID={boot_id} ip=10.20.30.41 hostname=turing-node quiet"}
    with Store.open(tmp_path / "results").writer() as writer:
        writer.put("systems", [system_row(SYSTEM, hw_id(FINGERPRINT), hot_columns(FINGERPRINT), fingerprint)])
        inside = {"python": "3.11.2", "numpy": "1.2.3.4"}, {"config": TEXT}
        row = environment_row(ENVIRONMENT, "cpu", *inside, image_digest=None, lock_sha256=None)
        writer.put("environments", [row])
        for name in (CAMPAIGNS[0], OTHER):
            writer.put_campaign(
                campaign_row(
                    name, datetime(2025, 11, 20, tzinfo=UTC), "night-on-gpubox7",
                    sweep_document=f"version: 1  # {TEXT}", inventory_document=INVENTORY, plan_digest="p",
                    planned_trials=3, taxmeter_version="1", git_commit=None,
                    plan={"tasks": [{"host": "gpubox7", "note": TEXT}]}, versions={"python": "3.11.2"},
                )
            )  # fmt: skip
        writer.append([trial("a", **loud), trial("b", batch=8, host="mlab-login")])
        writer.append([trial("c", OTHER, month=12, host="gpubox7", reproduces=CAMPAIGNS[0])])
    return tmp_path / "results"


def order(directory: Path, output: Path, *more: object) -> list[object]:
    return ["results", "export", "--results", directory, "--output", output, *more]


def export(directory: Path, output: Path, *more: object) -> int:
    return taxmeter(*order(directory, output, *more))


def every_byte(output: Path) -> Iterator[str]:
    """All that an export says: names of files, bytes, and the values in Parquet, which are compressed."""
    for path in [output, *output.rglob("*")] if output.is_dir() else [output]:
        yield path.name
        if path.suffix == ".parquet" and path.is_file():
            yield str(pq.ParquetFile(path).read().to_pylist())
        if path.is_file():
            yield path.read_bytes().decode("utf-8", "replace")


def leaks(output: Path) -> set[str]:
    text = "\n".join(every_byte(output)).lower()
    return {secret for secret in SECRETS if secret.lower() in text}


@pytest.mark.parametrize("form", ["parquet", "csv", "json"])
def test_an_anonymised_export_holds_no_secret(directory: Path, tmp_path: Path, form: str) -> None:
    assert export(directory, tmp_path / "plain", "--format", form) == ExitCode.OK
    assert leaks(tmp_path / "plain") == set(SECRETS)
    where = "host = 'gpubox7' OR batch = 8"
    assert export(directory, tmp_path / "clean", "--format", form, "--anonymise", "--where", where) == ExitCode.OK
    assert leaks(tmp_path / "clean") == set()


@pytest.mark.parametrize("more", [["--samples"], ["--columns", "host,log_tail,facts,task_id"]])
def test_a_single_anonymised_file_holds_no_secret(directory: Path, tmp_path: Path, more: list[str]) -> None:
    for form in ("csv", "json", "parquet"):
        assert export(directory, tmp_path / f"clean.{form}", "--anonymise", *more) == ExitCode.OK
    assert leaks(tmp_path / "clean.csv") | leaks(tmp_path / "clean.json") | leaks(tmp_path / "clean.parquet") == set()
    assert leaks(tmp_path / "clean.csv.columns.json") == set()
    assert {row["host"] for row in pq.read_table(tmp_path / "clean.parquet").to_pylist()} == {"host-1", "host-2"}


def test_an_anonymised_store_is_a_sound_store_that_joins_as_before(
    directory: Path, tmp_path: Path, capsys: Captured
) -> None:
    clean = tmp_path / "clean"
    assert export(directory, clean, "--anonymise") == ExitCode.OK
    assert "1 systems are anonymised" in told(capsys, "results", "verify", "--results", clean)
    query = """
        SELECT trial_id, trial_key, hw_id, system_id, environment_id, workload, samples_sync_s, trials.started_at, status,
               trials.cpu_model, batch, environment, campaigns.planned_trials, systems.fingerprint ->> '$.cpu.vendor' AS vendor, environments.versions
        FROM trials JOIN systems USING (system_id, hw_id) JOIN campaigns USING (campaign_id)
        JOIN environments USING (environment_id, environment) ORDER BY trial_id
    """
    then, now = (open_store(place).sql(query).to_arrow_table().to_pylist() for place in (directory, clean))
    assert len(then) == 3
    assert now == then
    # One host has one name, wherever it stands.
    rows = open_store(clean).trials(columns=["trial_id", "host", "task_id", "campaign_id", "reproduces"]).arrow()
    by_name = {row["trial_id"]: row for row in rows.to_pylist()}
    assert by_name["a"]["host"] == by_name["c"]["host"] == "host-1"
    assert by_name["b"]["host"] == "host-2"
    assert by_name["c"]["reproduces"] == by_name["a"]["campaign_id"] != by_name["c"]["campaign_id"]
    assert by_name["a"]["campaign_id"].startswith("campaign-")
    assert by_name["a"]["task_id"].startswith("task-")
    campaigns = open_store(clean).campaigns().arrow().to_pylist()
    assert {row["sweep"] for row in campaigns} == {"sweep-1"}
    assert {row["inventory_document"] for row in campaigns} == {"[removed]"}
    [facts] = {row["facts"] for row in open_store(clean).trials("trial_id = 'a'", ["facts"]).arrow().to_pylist()}
    assert json.loads(facts)["operations"] == 7
    assert json.loads(facts)["attn_implementation"] == "sdpa"


def test_an_anonymised_store_is_merged_and_unsealed_rows_are_in_it(directory: Path, tmp_path: Path) -> None:
    with Store.open(directory).writer() as writer:
        writer.append([trial("d", host="gpubox7")])
        assert export(directory, tmp_path / "clean", "--anonymise") == ExitCode.OK
    assert taxmeter("results", "merge", tmp_path / "clean", "--results", tmp_path / "new") == ExitCode.OK
    assert sorted(open_store(tmp_path / "new").trials().arrow()["trial_id"].to_pylist()) == ["a", "b", "c", "d"]
    assert leaks(tmp_path / "new") == set()


def test_a_column_that_nobody_let_out_stays_in_the_lab() -> None:
    assert Column("of_tomorrow", pa.string()).sharing is Sharing.PRIVATE
    public = {column.name for columns in COLUMNS.values() for column in columns if column.sharing is Sharing.PUBLIC}
    private = {"host", "log_tail", "reason", "facts", "plan", "inventory_document", "gpu_uuid", "kernel"}
    assert private.isdisjoint(public)
    clean = Anonymiser({}).table("samples", pa.table({"of_tomorrow": ["wanda"], "duration_s": [0.25]}))
    assert clean.to_pylist() == [{"of_tomorrow": None, "duration_s": 0.25}]


def test_what_is_not_asked_to_be_anonymised_comes_out_as_it_is(directory: Path, tmp_path: Path) -> None:
    assert export(directory, tmp_path / "copy") == ExitCode.OK
    for table in SCHEMAS:
        then, now = (getattr(open_store(place), table)().arrow() for place in (directory, tmp_path / "copy"))
        expected = [row | ({"origin": "merged"} if table == "campaigns" else {}) for row in then.to_pylist()]
        assert sorted(map(str, now.to_pylist())) == sorted(map(str, expected))


def test_a_condition_takes_the_rows_and_what_they_refer_to(directory: Path, tmp_path: Path) -> None:
    assert export(directory, tmp_path / "some", "--where", "batch = 8") == ExitCode.OK
    some = open_store(tmp_path / "some")
    assert some.trials().arrow()["trial_id"].to_pylist() == ["b"]
    assert some.campaigns().arrow()["campaign_id"].to_pylist() == [CAMPAIGNS[0]]


def test_csv_and_json_say_their_units_beside(directory: Path, tmp_path: Path) -> None:
    assert export(directory, tmp_path / "tables", "--format", "csv") == ExitCode.OK
    with (tmp_path / "tables" / "trials.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [row["batch"] for row in sorted(rows, key=lambda row: row["trial_id"])] == ["1", "8", "1"]
    assert rows[0]["samples_sync_s"] == "[0.25, 0.5]"
    about = json.loads((tmp_path / "tables" / "EXPORT.json").read_text())
    units = {column["name"]: column.get("unit") for column in about["tables"]["trials"]}
    assert (units["latency_sync_median_s"], units["batch"], units["workload"]) == ("s", "examples", None)
    assert sorted(about["tables"]) == ["campaigns", "environments", "systems", "trials"]
    assert export(directory, tmp_path / "one.json", "--columns", "trial_id, latency_sync_median_s") == ExitCode.OK
    assert len((tmp_path / "one.json").read_text().splitlines()) == 3
    side = json.loads((tmp_path / "one.json.columns.json").read_text())
    assert side["tables"]["trials"][1] == {
        "name": "latency_sync_median_s", "type": "double", "better": "lower", "unit": "s",
    }  # fmt: skip
    assert export(directory, tmp_path / "samples.parquet", "--samples", "--where", "mode = 'sync'") == ExitCode.OK
    assert pq.read_schema(tmp_path / "samples.parquet").field("duration_s").metadata[b"unit"] == b"s"


def test_nothing_is_overwritten_unasked_and_no_foreign_directory_at_all(
    directory: Path, tmp_path: Path, capsys: Captured
) -> None:
    output = tmp_path / "out"
    for form in ("csv", "parquet"):
        assert export(directory, output, "--format", form, "--force") == ExitCode.OK
    assert "is there already" in refused(capsys, *order(directory, output))
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "me.jpg").write_text("x")
    assert "is no export" in refused(capsys, *order(directory, tmp_path / "photos", "--force"))
    assert (tmp_path / "photos" / "me.jpg").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "photos", "results"]


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        (["--where", "bach = 1"], "did you mean batch"),
        (
            ["--columns", "workload,latncy_sync_median_s"],
            "`trials` has no column latncy_sync_median_s; did you mean latency_sync_median_s",
        ),
        (["--columns", " , "], "--columns names no column"),
        (["--where", "CAST(workload AS INTEGER) = 1"], "Could not convert"),
        (["--samples", "--where", "reason = 'x'"], 'Referenced column "reason" not found'),
    ],
)
def test_a_wrong_wish_is_one_line_and_leaves_nothing(
    directory: Path, tmp_path: Path, capsys: Captured, more: list[str], expected: str
) -> None:
    for output in ("out", "out.csv"):
        assert expected in refused(capsys, *order(directory, tmp_path / output, *more))
    assert [path.name for path in tmp_path.iterdir()] == ["results"]
    said = refused(capsys, *order(directory, tmp_path / "out.csv", "--format", "json"))
    assert "does not fit the name of the file" in said

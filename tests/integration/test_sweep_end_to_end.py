"""The main job through the command line: real models, Ray, both isolations, once more, and what a user may do to it."""

import os
import re
import shlex
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import duckdb
import pytest

from orchestrator.cli import run
from orchestrator.environments import connect
from orchestrator.errors import ExitCode
from orchestrator.execution.docker import LABEL
from orchestrator.store import Store
from tests.conftest import PROJECT
from tests.project import Project, sleeps
from tests.recording import processes_naming

pytestmark = pytest.mark.cluster

NO_ENGINE = "unix:///nonexistent/docker.sock"
UNSTORED = ".taxmeter/campaigns/*/*/records.jsonl"

MODELS = """
version: 1
name: models
environments: [cpu]
workloads: [{name: tiny-bert, batch: [1, 2]}, {name: synthetic-wrong, batch: 1}]
backends: [eager, torchscript, onnxruntime, python]
rounds: 2
duplicate: {workload: tiny-bert, backend: eager, batch: 1}
protocol:
  {warmup_min_calls: 1, warmup_min_ms: 10, warmup_max_ms: 100, turn_ms: 20, cycles: 3, min_cycles: 2,
   floor_budget_ms: 0}
"""

LONG, ENGINE = pytest.mark.long, pytest.mark.engine


@pytest.fixture(
    scope="module",
    params=[
        # where containers are required the same in them is enough, but for one test that names both
        pytest.param("process", marks=LONG if os.environ.get("TAXMETER_REQUIRE_ENGINE") == "1" else ()),
        pytest.param("docker", marks=ENGINE),
    ],
)
def isolation(request: pytest.FixtureRequest) -> Iterator[str]:
    """The isolation that `executor: auto` takes, with its environment built."""
    kind = str(request.param)
    with pytest.MonkeyPatch.context() as patch:
        if kind == "docker":
            request.getfixturevalue("cpu_image")
        else:
            request.getfixturevalue("cpu_python")
            patch.setenv("DOCKER_HOST", NO_ENGINE)
        yield kind


@pytest.fixture(scope="module")
def swept(isolation: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Project, str]:
    """A project with a sweep of real models, and what that said."""
    project = Project.here(tmp_path_factory.mktemp("swept"))
    return project, project.taxmeter("sweep", "run", project.write(MODELS), code=ExitCode.TRIALS_FAILED).stdout


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    made = Project.here(tmp_path / "project")
    yield made
    made.end()


def test_a_sweep_of_real_models(isolation: str, swept: tuple[Project, str]) -> None:
    project, said = swept
    rows = [row for row in project.rows() if row["reproduces"] is None]
    assert Counter(row["status"] for row in rows) == {"ok": 2 * (2 * 3 + 1), "wrong_output": 2, "skipped": 5}
    files = f"'{project.results}/trials/**/*.parquet', hive_partitioning = true"
    counted = duckdb.sql(f"select count(*) from read_parquet({files}) where reproduces is null").fetchall()
    assert counted == [(len(rows),)]

    ran = [row for row in rows if row["status"] != "skipped"]
    assert {row["isolation"] for row in ran} == {isolation}
    digests = {row["image_digest"] for row in ran}
    assert digests == {None} if isolation == "process" else all(str(d).startswith("sha256:") for d in digests)
    systems = set(Store.open(project.results).systems()["system_id"].to_pylist())
    assert {row["system_id"] for row in ran} == systems
    for row in ran:
        if row["status"] == "ok":
            assert row["verified"]
            assert row["relative_l2"] < 1e-5
            assert len(row["samples_sync_s"]) >= 3
            assert row["latency_sync_median_s"] > 0
            assert row["torch_version"] == "2.13.0+cpu"
        else:
            assert row["latency_sync_median_s"] is None
            assert row["samples_sync_s"] is None

    assert "2 wrong_output" in said
    assert "backend python cannot run workload tiny-bert" in said
    assert f"isolation={isolation}" in said
    assert "tiny-bert, 16 tokens" in said


def test_the_commands_of_the_readme_run_on_this_store(swept: tuple[Project, str]) -> None:
    project, _ = swept
    section = (PROJECT / "README.md").read_text().partition("## Then ask the store")[2].partition("\n## ")[0]
    commands = [shlex.split(line, comments=True)[1:] for line in section.splitlines() if line.startswith("taxmeter ")]
    assert [command[0] for command in commands] == ["explain", "compare", "gate", "results", "report"]
    for command in commands:
        done = project.taxmeter(*command, code=ExitCode.OK)
        assert done.stdout or done.stderr.startswith("report.html: ")


def test_a_trial_and_its_campaign_run_again(
    isolation: str, swept: tuple[Project, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    project, _ = swept
    then = [row for row in project.rows() if row["reproduces"] is None]
    [campaign] = {row["campaign_id"] for row in then}
    first, *_ = [row for row in then if (row["backend"], row["batch"], row["round"]) == ("eager", 2, 1)]
    done = project.taxmeter("reproduce", first["trial_id"][:20], code=ExitCode.OK)
    now = [row for row in project.rows() if row["reproduces"] == campaign]
    assert len(now) == 3
    same = ("trial_key", "environment_id", "isolation", "trial_cores", "memory_limit_bytes", "seed", "timeout_s")
    same += ("protocol", "image_id", "lock_sha256", "runner_sha256", "system_id", "host")
    for row in now:
        assert {name: row[name] for name in same} == {name: first[name] for name in same}
        assert (row["status"], row["reproduction_differs"]) == ("ok", None)
        assert row["reproduces_trial_key"] == first["trial_key"]
    assert "environment cpu is identical to the stored one" in done.stdout
    assert "trial keys: 1 of 1 are those of the stored trials" in done.stdout
    assert "Verdicts: " in done.stdout
    assert first["trial_key"] in done.stdout

    done = project.taxmeter("reproduce", campaign, "--rounds", 1, code=ExitCode.OK)
    assert "trial keys: 6 of 6 are those of the stored trials" in done.stdout
    # One process on a side gives no interval. The reason stands in a cell, which is folded as the others are wide.
    assert "undecided" in done.stdout.split("Verdicts: ")[1].splitlines()[0]

    if isolation == "docker":
        monkeypatch.setenv("DOCKER_HOST", NO_ENGINE)
        refused = project.taxmeter("reproduce", campaign, code=ExitCode.NO_USABLE_HOST)
        assert "the trials ran in containers, but no Docker engine answers" in refused.stderr
        assert "start it, or add --allow-different-image" in refused.stderr
        assert refused.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("isolation", "number", "expected"),
    [
        ("process", signal.SIGINT, 130),
        pytest.param("docker", signal.SIGKILL, -signal.SIGKILL, marks=ENGINE),
        # each takes half a minute, and differs from those above in one thing
        pytest.param("docker", signal.SIGINT, 130, marks=[ENGINE, LONG]),
        pytest.param("process", signal.SIGKILL, -signal.SIGKILL, marks=LONG),
        # the same way out as an interrupt
        pytest.param("process", signal.SIGTERM, 130, marks=LONG),
        pytest.param("docker", signal.SIGTERM, 130, marks=[ENGINE, LONG]),
    ],
    indirect=["isolation"],
)
def test_an_ended_sweep_leaves_nothing_and_goes_on(
    isolation: str, project: Project, number: signal.Signals, expected: int, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    command = ("sweep", "run", project.write(sleeps(rounds=3, turn_ms=500, batches="[1, 2, 3, 4]")))
    driver = project.start(log, *command)
    acknowledged = project.wait_for_rows(5, driver, log)
    if number == signal.SIGKILL:
        driver.kill()
    else:
        os.killpg(driver.pid, number)  # as a terminal does: everyone in the group hears it
    assert driver.wait(60) == expected, log.read_text()

    [campaign] = Store.open(project.results).campaigns()["campaign_id"].to_pylist()
    assert wait_until_nothing_runs(campaign) == []
    before = project.stored()
    assert acknowledged <= before
    assert len(before) < 12

    waiting = sum(path.read_bytes().count(b'"type":"record"') for path in project.root.glob(UNSTORED))
    again = project.taxmeter(*command, code=ExitCode.OK)
    found = re.search(r"(\d+) are in the store already", again.stdout)
    assert found is not None, again.stdout
    # A killed driver's host may have measured on, and what it measured was waiting in its task's directory.
    late = int(found[1]) - len(before)
    assert 0 <= late <= (waiting if number == signal.SIGKILL else 0)
    rows = project.rows()
    assert Counter(row["status"] for row in rows) == {"ok": 12}
    assert len({row["trial_id"] for row in rows}) == 12
    assert before <= {row["trial_id"] for row in rows}

    assert not project.files.campaign(campaign).exists()


def wait_until_nothing_runs(campaign: str) -> list[str]:
    deadline = time.monotonic() + 30
    while (left := running(campaign)) and time.monotonic() < deadline:
        time.sleep(0.2)
    return left


def running(campaign: str) -> list[str]:
    """Containers of the campaign, and processes that name one of its task directories."""
    found = processes_naming(campaign)
    if os.environ.get("DOCKER_HOST") == NO_ENGINE:
        return found
    with closing(connect()) as client:
        containers = client.containers.list(all=True, filters={"label": f"{LABEL}={campaign}"}, ignore_removed=True)
        return found + [str(container.name) for container in containers]


TRIALS, PER_TASK = 12, 2


def test_a_campaign_is_watched_drained_killed_stopped_and_gone_on_with_from_another_process(
    cpu_python: Path,
    project: Project,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("DOCKER_HOST", NO_ENGINE)
    monkeypatch.chdir(project.root)
    log = tmp_path / "log"

    def taxmeter(*arguments: str) -> tuple[int, str]:
        """A command in this process, which is another than the driver's; its exit code and what it says."""
        capsys.readouterr()
        code = run(["sweep", *arguments])
        said = capsys.readouterr()
        return code, said.out + said.err

    def status() -> tuple[int, str]:
        code, said = taxmeter("status")
        assert max(map(len, said.splitlines())) <= 80
        return code, " ".join(said.split())

    driver = project.start(log, "sweep", "run", project.write(sleeps(rounds=6, turn_ms=1200)))
    project.wait_for(lambda: "synthetic-sleep python batch" in status()[1], driver, log)
    assert status()[0] == ExitCode.OK
    assert "is running on this machine" in status()[1]
    project.wait_for_rows(1, driver, log)

    # drained: what runs ends, and no more begins
    code, said = taxmeter("drain")
    assert (code, "to drain all hosts" in said) == (ExitCode.OK, True), said
    driver.wait(120)
    done = len(project.stored())
    assert done % PER_TASK == 0, log.read_text()
    assert 0 < done < TRIALS
    code, said = status()
    assert code == ExitCode.TRIALS_FAILED
    assert f"is not finished: {TRIALS - done} of {TRIALS} trials are left" in said

    # the store alone is enough from here on
    (project.root / "sweep.yaml").unlink()
    (project.root / "hostinventory.yaml").write_text("version: 1\nhosts: {other: {connection: local}}\n")
    driver = project.start(log, "sweep", "resume")
    project.wait_for_rows(done + 1, driver, log)
    driver.kill()
    driver.wait()
    code, said = status()
    assert (code, "died; its last sign of life came" in said) == (ExitCode.TRIALS_FAILED, True), said

    driver = project.start(log, "sweep", "resume")
    project.wait_for_rows(len(project.stored()) + 1, driver, log)
    code, said = taxmeter("stop")
    assert (code, "has ended:" in said) == (ExitCode.OK, True), said
    assert driver.wait(60) == ExitCode.INTERRUPTED, log.read_text()

    done_by_resume = project.taxmeter("sweep", "resume", code=ExitCode.OK)
    assert "of sweep sleeps, begun" in done_by_resume.stdout
    rows = project.rows()
    assert Counter((row["status"], row["host"]) for row in rows) == {("ok", "bench"): TRIALS}
    assert len({row["trial_id"] for row in rows}) == TRIALS
    assert len({row["campaign_id"] for row in rows}) == 1
    assert list(project.files.campaigns.glob("*")) == []
    code, said = status()
    assert (code, f"is finished: {TRIALS} trials" in said) == (ExitCode.OK, True), said
    assert taxmeter("resume") == (ExitCode.OK, "nothing is left of any campaign\n")

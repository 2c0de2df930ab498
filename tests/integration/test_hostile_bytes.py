"""Bytes of others, valid and spoilt in every way: parsed, or one line; never anything else, never long, never large.

TAXMETER_LONG=1 pytest -m long tests/integration/test_hostile_bytes.py     # 100,000 inputs
"""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.hostile import Files
from tests.hostile_worker import Worker, files_of, write
from tests.parsers import PARSERS
from tests.parsers_of_results import TEMPLATES

QUICK = 400
LONG = 100_000
"""Inputs of all parsers together."""
CORPUS = Path(__file__).resolve().parents[1] / "data" / "hostile"
KEPT = sorted(path for path in CORPUS.glob("*/*") if path.is_dir())


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    started = Worker()
    yield started
    started.close()
    for made in TEMPLATES:
        shutil.rmtree(made)


@pytest.mark.parametrize("case", KEPT, ids=lambda case: f"{case.parent.name}-{case.name}")
def test_what_once_was_a_defect_is_refused(worker: Worker, case: Path) -> None:
    verdict = worker.read(case.parent.name, files_of(case))
    assert verdict.defect is None
    assert verdict.lines


def test_each_case_is_of_a_parser_and_their_shares_are_all() -> None:
    assert KEPT
    assert sum(parser.share for parser in PARSERS.values()) == 100
    assert {case.parent.name for case in KEPT} <= PARSERS.keys()


@pytest.mark.parametrize("name", PARSERS)
def test_what_strangers_write_is_taken_or_refused_in_a_line(worker: Worker, name: str, tmp_path: Path) -> None:
    attack(worker, name, QUICK * PARSERS[name].share // 100 + 2, tmp_path)


@pytest.mark.long
@pytest.mark.timeout(7200)
# Some of the inputs are as large as a store
@pytest.mark.filterwarnings("ignore:Generating overly large repr")
@pytest.mark.parametrize("name", PARSERS)
def test_so_are_a_hundred_thousand(
    worker: Worker, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = attack(worker, name, LONG * PARSERS[name].share // 100, tmp_path)
    with capsys.disabled():
        print(f"\n{name:15} {told}")


def attack(worker: Worker, name: str, count: int, directory: Path) -> str:
    """Has a parser read so many inputs; what came of them."""
    taken = refused = 0
    longest_s, waited_s, most_bytes = 0.0, 0.0, 0

    @settings(max_examples=count)
    @given(st.deferred(PARSERS[name].inputs))
    def reads(files: Files) -> None:
        nonlocal taken, refused, longest_s, waited_s, most_bytes
        verdict = worker.read(name, files)
        if verdict.defect is not None:
            found = directory / "found"
            shutil.rmtree(found, ignore_errors=True)
            write(files, found)
            raise AssertionError(f"{found}: {verdict.defect}")
        taken, refused = taken + (not verdict.lines), refused + bool(verdict.lines)
        longest_s, waited_s = max(longest_s, verdict.cpu_s), max(waited_s, verdict.waited_s)
        most_bytes = max(most_bytes, verdict.peak_bytes)

    reads()
    return (
        f"{taken + refused} inputs: {taken} taken, {refused} refused; at most {longest_s:.2f} s, "
        f"{waited_s:.2f} s of waiting and {most_bytes / 1e6:.0f} MB"
    )

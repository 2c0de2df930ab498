"""`make audit` names the packages that a vulnerability database knows of, and never passes without one."""

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.sbom import FOUND, UNUSABLE, audit

BILL = {
    "bomFormat": "CycloneDX",
    "components": [
        {"name": "Some_Package", "version": "1.10", "licenses": [{"license": {"id": "MIT"}}]},
        {"name": "other", "version": "2.0"},
    ],
}


def advisory(name: str = "some-package", **changes: Any) -> dict[str, Any]:
    affected = {"package": {"ecosystem": "PyPI", "name": name}, **changes}
    return {"id": "GHSA-1", "aliases": ["CVE-1"], "summary": "It is bad.", "affected": [affected]}


def between(*events: dict[str, str]) -> list[dict[str, Any]]:
    return [{"type": "ECOSYSTEM", "events": list(events)}]


@pytest.fixture
def bills(tmp_path: Path) -> Path:
    place = tmp_path / "sbom"
    place.mkdir()
    (place / "venv.cdx.json").write_text(json.dumps(BILL))
    return place


@pytest.mark.parametrize(
    ("record", "is_found"),
    [
        (advisory(versions=["1.10"]), True),
        (advisory(versions=["1.1"]), False),
        (advisory(ranges=between({"introduced": "0"}, {"fixed": "1.11"})), True),
        (advisory(ranges=between({"introduced": "0"}, {"fixed": "1.9"})), False),
        (advisory(ranges=between({"introduced": "0"}, {"fixed": "1.2"}, {"introduced": "1.10"})), True),
        (advisory(ranges=between({"introduced": "0"}, {"last_affected": "1.10"})), True),
        (advisory(ranges=between({"introduced": "0"}, {"last_affected": "1.9"})), False),
        (advisory("other", versions=["1.10"]), False),
        ({**advisory(versions=["1.10"]), "withdrawn": "2026-01-01T00:00:00Z"}, False),
        (advisory(versions=["1.10"], package={"ecosystem": "npm", "name": "some-package"}), False),
    ],
)
def test_a_package_is_named_if_its_version_is_affected(
    bills: Path, tmp_path: Path, record: dict[str, Any], is_found: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    database = tmp_path / "osv.json"
    database.write_text(json.dumps([record]))
    assert audit(bills, database) == (FOUND if is_found else 0)
    told = capsys.readouterr().out
    assert ("venv: some-package 1.10: GHSA-1 CVE-1: It is bad." in told) == is_found
    assert f"2 packages of 1 bills, 1 records, {int(is_found)} matches" in told


def test_directories_and_archives_are_databases(bills: Path, tmp_path: Path) -> None:
    record = json.dumps(advisory(versions=["1.10"]))
    place = tmp_path / "osv"
    place.mkdir()
    (place / "GHSA-1.json").write_text(record)
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        archive.writestr("GHSA-1.json", record)
    assert [audit(bills, database) for database in (place, tmp_path / "all.zip")] == [FOUND, FOUND]


@pytest.mark.parametrize("content", [None, "", "[]", "[1]", "{}", "no"])
def test_without_a_database_or_bills_an_audit_does_not_pass(
    bills: Path, tmp_path: Path, content: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    database = tmp_path / "osv.json"
    if content is not None:
        database.write_text(content)
    assert audit(bills, database) == UNUSABLE
    assert capsys.readouterr().err.count("\n") == 1
    assert audit(tmp_path / "nothing", None) == UNUSABLE
    (bills / "venv.cdx.json").write_text("{}")
    database.write_text(json.dumps([advisory()]))
    assert audit(bills, database) == UNUSABLE

"""Files of claims: what is wrong in one is said with file, line and key; and the files that are shipped are right."""

import re
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from orchestrator.analysis.claims import Claim, load_claims
from orchestrator.analysis.claims.schema import STATISTICS
from orchestrator.errors import ConfigurationError
from tests.refusals import refusal

HEAD = """\
version: 1
claims:
  - id: one
    text: It is so.
    source: somebody
    paraphrase: it may be so
    measured_by: sweeps/quickstart.yaml
"""
BERT = "    where: workload=bert-base\n"


def test_a_claim_is_read_as_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "claims.yaml"
    path.write_text(HEAD + "    where: workload=bert batch<=8\n    level: {metric: floor, below: 0.001}\n")
    claim = load_claims([path])["one"]
    assert claim.measured_by == ("sweeps/quickstart.yaml",)
    assert [condition.text for condition in claim.conditions] == ["workload=bert", "batch<=8"]
    assert claim.statistic.threshold.text == "below 0.001"


MISTAKES = (
    "levle: {metric: floor, below: 1}",
    "level: {metrik: floor, below: 1}",
    "level: {metric: flor, below: 1}",
    "level: {metric: floor}",
    "level: {metric: floor, above: 2, below: 1}",
    "level: {metric: floor, below: small}",
    "ratio: {of: backend=a, against: backend=b, within: 0.9}",
    "ratio: {of: backend=a, against: backend=b, within: 2, above: 1}",
    "ratio: {of: bakend=a, against: backend=b, above: 1}",
    "ratio: {of: backend, against: backend=b, above: 1}",
    "ratio: {of: backend=a, against: backend=b, at: batch=1, above: 1}",
    "flat: {along: bach, within: 1.1}",
    "transition: {of: dtype=float16, above: 1}",
    "trend: {over: gpu, at_least: 2, above: 0}",
    "published: 1",
    "level: {metric: floor, below: 1}\n    growth: {along: batch, above: 0}",
    "regime: slow\n    level: {metric: floor, below: 1}",
    "published: [1, 2]\n    level: {metric: floor, below: 1}",
    "published: [1, 2]\n    ordering: {along: backend, order: [a, b, c]}",
    "quote: So it is.\n    level: {metric: floor, below: 1}",
)
OF_NO_WORKLOAD = (
    "level: {metric: floor, below: 1}",
    "where: workload~bert* device=cpu\n    level: {metric: floor, below: 1}",
    "ratio: {of: workload=bert, against: backend=eager, above: 1}",
    "where: workload=bert layers=many\n    level: {metric: floor, below: 1}",
)


def test_what_is_wrong_is_one_line_with_its_place(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    texts = {text: f"{HEAD}{BERT}    {text}\n" for text in MISTAKES}
    texts |= {text: f"{HEAD}    {text}\n" for text in OF_NO_WORKLOAD}
    path = tmp_path / "claims.yaml"
    assert {name: refusal(lambda path: load_claims([path]), path, text) for name, text in texts.items()} == snapshot


def test_an_id_stands_once_and_a_directory_has_claims(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no claims in"):
        load_claims([tmp_path])
    for name in ("a.yaml", "b.yaml"):
        (tmp_path / name).write_text(f"{HEAD}{BERT}    level: {{metric: floor, below: 1}}\n")
    with pytest.raises(ConfigurationError, match=r"b\.yaml:3: claims\.0\.id: one stands twice"):
        load_claims([tmp_path])


def test_the_claims_that_are_shipped_are_right_and_say_where_the_paper_says_so(project: Path) -> None:
    claims = load_claims([project / "claims"])
    assert len(claims) > 40
    for claim in claims.values():
        assert claim.text.endswith(".")
        for name in claim.measured_by:
            assert (project / name).is_file(), f"{claim.id}: {name}"
    for claim in load_claims([project / "claims" / "paper"]).values():
        assert re.match("arXiv 2302.06117v2, .*(section|figure|table)", claim.source), claim.id
        # Its wording is not at hand.
        assert claim.quote is None, claim.id


def test_the_documentation_has_every_key(project: Path) -> None:
    page = (project / "docs" / "claims.md").read_text(encoding="utf-8")
    for name in set(Claim.model_fields) - set(STATISTICS):
        assert f"`{name}`" in page, name
    for name in STATISTICS:
        fields = set(Claim.model_fields[name].annotation.__args__[0].model_fields)  # type: ignore[union-attr]
        rows = [line for line in page.splitlines() if line.startswith(f"| `{name}: {{")]
        assert rows, name
        for field in fields - {"above", "below", "within"}:
            assert any(field in line.partition("}")[0] for line in rows), f"{name}: {field}"

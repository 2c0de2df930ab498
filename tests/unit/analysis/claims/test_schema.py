"""Files of claims: what is wrong in one is said with file, line and key; and the files that are shipped are right."""

from pathlib import Path

import pytest

from orchestrator.analysis.claims import Claim, load_claims
from orchestrator.analysis.claims.schema import STATISTICS
from orchestrator.errors import ConfigurationError

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


def written(directory: Path, text: str, name: str = "claims.yaml") -> Path:
    path = directory / name
    path.write_text(text, encoding="utf-8")
    return path


def test_a_claim_is_read_as_it_is_written(tmp_path: Path) -> None:
    path = written(tmp_path, HEAD + "    where: workload=bert batch<=8\n    level: {metric: floor, below: 0.001}\n")
    claim = load_claims([path])["one"]
    assert claim.measured_by == ("sweeps/quickstart.yaml",)
    assert [condition.text for condition in claim.conditions] == ["workload=bert", "batch<=8"]
    assert claim.statistic.threshold.text == "below 0.001"


@pytest.mark.parametrize(
    ("lines", "line", "words"),
    [
        ("    levle: {metric: floor, below: 1}\n", 9, "did you mean level?"),
        ("    level: {metrik: floor, below: 1}\n", 9, "did you mean metric?"),
        ("    level: {metric: flor, below: 1}\n", 9, "did you mean floor"),
        ("    level: {metric: floor}\n", 9, "give a bound, above or below: there is none"),
        ("    level: {metric: floor, above: 2, below: 1}\n", 9, "nothing is above 2 and below 1"),
        ("    level: {metric: floor, below: small}\n", 9, 'it is "small"'),
        ("    ratio: {of: backend=a, against: backend=b, within: 0.9}\n", 9, "within is a factor above 1, and alone"),
        ("    ratio: {of: backend=a, against: backend=b, within: 2, above: 1}\n", 9, "and alone"),
        ("    ratio: {of: bakend=a, against: backend=b, above: 1}\n", 9, "did you mean backend"),
        ("    ratio: {of: backend, against: backend=b, above: 1}\n", 9, "write backend=VALUE"),
        ("    ratio: {of: backend=a, against: backend=b, at: batch=1, above: 1}\n", 9, "at and than go together"),
        ("    flat: {along: bach, within: 1.1}\n", 9, "did you mean batch"),
        ("    transition: {of: dtype=float16, above: 1}\n", 9, "of and against go together"),
        ("    trend: {over: gpu, at_least: 2, above: 0}\n", 9, "at_least"),
        ("    published: 1\n", 3, "give one statistic"),
        ("    level: {metric: floor, below: 1}\n    growth: {along: batch, above: 0}\n", 3, "not growth and level"),
        ("    regime: slow\n    level: {metric: floor, below: 1}\n", 9, "framework-bound"),
        ("    published: [1, 2]\n    level: {metric: floor, below: 1}\n", 3, "published is one number"),
        ("    published: [1, 2]\n    ordering: {along: backend, order: [a, b, c]}\n", 3, "has 2 values, the order 3"),
        (
            "    quote: So it is.\n    level: {metric: floor, below: 1}\n",
            3,
            "word for word as quote or else as paraphrase",
        ),
    ],
)
def test_what_is_wrong_is_said_with_its_line(tmp_path: Path, lines: str, line: int, words: str) -> None:
    path = written(tmp_path, HEAD + BERT + lines)
    with pytest.raises(ConfigurationError) as error:
        load_claims([path])
    assert str(error.value).startswith(f"{path}:{line}: ")
    assert words in str(error.value)


@pytest.mark.parametrize(
    "lines",
    [
        "    level: {metric: floor, below: 1}\n",
        "    where: workload~bert* device=cpu\n    level: {metric: floor, below: 1}\n",
        "    ratio: {of: workload=bert, against: backend=eager, above: 1}\n",
    ],
)
def test_a_claim_names_its_workloads(tmp_path: Path, lines: str) -> None:
    with pytest.raises(ConfigurationError, match="the answer would depend on what else is in the store"):
        load_claims([written(tmp_path, HEAD + lines)])


def test_a_value_that_is_none_of_an_axis_is_an_error(tmp_path: Path) -> None:
    path = written(tmp_path, HEAD + "    where: workload=bert layers=many\n    level: {metric: floor, below: 1}\n")
    with pytest.raises(ConfigurationError, match="claims.yaml:8: .*expected a whole number"):
        load_claims([path])


def test_an_id_stands_once(tmp_path: Path) -> None:
    text = HEAD + BERT + "    level: {metric: floor, below: 1}\n"
    written(tmp_path, text, "a.yaml")
    second = written(tmp_path, text, "b.yaml")
    with pytest.raises(ConfigurationError, match="one stands twice") as error:
        load_claims([tmp_path])
    assert str(error.value).startswith(f"{second}:3: claims.0.id: ")


def test_a_directory_without_claims_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no claims in"):
        load_claims([tmp_path])


def test_the_claims_that_are_shipped_are_right(project: Path) -> None:
    claims = load_claims([project / "claims"])
    assert len(claims) > 40
    for claim in claims.values():
        assert claim.text.endswith(".")
        for name in claim.measured_by:
            assert (project / name).is_file(), f"{claim.id}: {name}"


def test_claims_of_the_paper_say_where_it_says_so(project: Path) -> None:
    for claim in load_claims([project / "claims" / "paper"]).values():
        assert claim.source.startswith("arXiv 2302.06117v2, ")
        assert any(word in claim.source for word in ("section", "figure", "table")), claim.id
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

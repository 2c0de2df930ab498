"""Files of claims: what is wrong in one is said with file, line and key."""

from pathlib import Path

import pytest

from orchestrator.analysis.claiming import Claim, load_claims
from orchestrator.analysis.claiming.schema import STATISTICS
from orchestrator.errors import ConfigurationError

HEAD = """\
version: 1
claims:
  - id: one
    text: It is so.
    source: somebody
    measured_by: sweeps/quickstart.yaml
"""


def written(directory: Path, text: str, name: str = "claims.yaml") -> Path:
    path = directory / name
    path.write_text(text, encoding="utf-8")
    return path


def test_a_claim_is_read_as_it_is_written(tmp_path: Path) -> None:
    path = written(tmp_path, HEAD + "    where: device=cpu batch<=8\n    level: {metric: floor, below: 0.001}\n")
    claim = load_claims([path])["one"]
    assert claim.measured_by == ("sweeps/quickstart.yaml",)
    assert claim.conditions == ("device=cpu batch<=8",)
    assert claim.statistic.threshold.text == "below 0.001"


@pytest.mark.parametrize(
    ("lines", "line", "words"),
    [
        ("    levle: {metric: floor, below: 1}\n", 7, "did you mean level?"),
        ("    level: {metrik: floor, below: 1}\n", 7, "did you mean metric?"),
        ("    level: {metric: flor, below: 1}\n", 7, "did you mean floor"),
        ("    level: {metric: floor}\n", 7, "give one bound, above or below: there is none"),
        ("    level: {metric: floor, above: 1, below: 2}\n", 7, "not above and below"),
        ("    level: {metric: floor, below: small}\n", 7, 'it is "small"'),
        ("    ratio: {of: backend=a, against: backend=b, within: 0.9}\n", 7, "within is a factor above 1"),
        ("    ratio: {of: bakend=a, against: backend=b, above: 1}\n", 7, "did you mean backend"),
        ("    ratio: {of: backend, against: backend=b, above: 1}\n", 7, "write backend=VALUE"),
        ("    where: layers=many\n    level: {metric: floor, below: 1}\n", 7, "expected a whole number"),
        ("    flat: {along: bach, within: 1.1}\n", 7, "did you mean batch"),
        ("    transition: {of: dtype=float16, above: 1}\n", 7, "of and against go together"),
        ("    scaling: {of: latency_sync, by: peak_throughput, over: gpu, above: 0}\n", 7, "transition_batch"),
        ("    where: device=cpu\n", 3, "give one statistic"),
        (
            "    level: {metric: floor, below: 1}\n    growth: {along: batch, above: 0}\n",
            3,
            "not growth and level",
        ),
        ("    regime: slow\n    level: {metric: floor, below: 1}\n", 7, "framework-bound"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(tmp_path: Path, lines: str, line: int, words: str) -> None:
    path = written(tmp_path, HEAD + lines)
    with pytest.raises(ConfigurationError) as error:
        load_claims([path])
    assert str(error.value).startswith(f"{path}:{line}: ")
    assert words in str(error.value)


def test_an_id_stands_once(tmp_path: Path) -> None:
    text = HEAD + "    level: {metric: floor, below: 1}\n"
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
    assert len(claims) > 30
    for claim in claims.values():
        assert claim.text.endswith(".")
        for name in claim.measured_by:
            assert (project / name).is_file(), f"{claim.id}: {name}"


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

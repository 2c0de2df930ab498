"""What `taxmeter images list --verbose` shows."""

from pathlib import Path

import pytest

from orchestrator.cli import run
from orchestrator.environments import Catalogue, description
from orchestrator.errors import ExitCode

CATALOGUE = Path(__file__).parents[2] / "docker/images.yaml"


def test_what_was_verified_and_what_deviates_is_shown() -> None:
    lines = description(Catalogue.load(CATALOGUE).entry("cuda116-paper"))
    parts = [(label, text.strip()) for label, _, text in (line.partition(":") for line in lines)]
    told = dict(parts)
    assert told["base"].startswith("debian:bullseye-slim@sha256:")
    assert told["base verified"].endswith("not pulled")
    assert "never installed" in told["hashes verified"]
    assert (told["CUDA"], told["cuDNN"], told["minimum driver"]) == ("11.6", "8.3.2", "450.80.02")
    assert told["machine code for"].startswith("6.0, 7.0, 7.5, 8.0, 8.6;")
    recorded = [text for label, text in parts if label == "recorded"]
    assert [text.split(": ")[0] for text in recorded] == [
        "torch 1.12.1+cu116, confidence medium",
        "torchvision 0.13.1+cu116, confidence medium",
    ]
    assert len([label for label, _ in parts if label == "deviation"]) == 3


def test_an_environment_of_processors_has_no_line_about_gpus() -> None:
    lines = description(Catalogue.load(CATALOGUE).entry("cpu"))
    assert [line for line in lines if line.startswith(("CUDA", "cuDNN", "minimum", "machine"))] == []
    assert any(line.startswith("wheel index:") for line in lines)


@pytest.mark.parametrize("option", ["-v", "--verbose"])
def test_the_list_shows_it_when_asked(option: str, in_project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["images", "list"]) == ExitCode.OK
    short = capsys.readouterr().out
    assert run(["images", "list", option]) == ExitCode.OK
    long = capsys.readouterr().out
    assert "base verified:" not in short
    for name, entry in Catalogue.load(CATALOGUE).entries.items():
        section = long[long.index(f"\n{name} " if name != "cpu" else name) :]
        for line in description(entry):
            assert line in section
    assert long.count("no lock: torch-tensorrt 2.13.0 needs") == short.count("no lock: torch-tensorrt") == 1

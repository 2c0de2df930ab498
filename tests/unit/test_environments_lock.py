"""Reading locks, and what the committed ones promise."""

import re
from pathlib import Path

import pytest

from orchestrator.environments import read_lock
from orchestrator.errors import ConfigurationError

PROJECT = Path(__file__).parents[2]
A, B = "a" * 64, "b" * 64


def pins_of(name: str) -> set[str]:
    """Name, version and marker of each line that pins."""
    text = (PROJECT / "requirements" / name).read_text()
    return set(re.findall(r"^[A-Za-z0-9][^\s\\]*==[^\\\n]+?(?=\s*\\?$)", text, re.MULTILINE))


def test_pins_over_several_lines_with_comments(tmp_path: Path):
    lock = tmp_path / "x.lock"
    lock.write_text(
        f"# head\nMy_Pkg==1.0+cpu \\\n    --hash=sha256:{A} \\\n    --hash=sha256:{B}\n    # via x\nother==2 --hash=sha256:{A}\n"
    )
    pins = read_lock(lock)
    assert list(pins) == ["my-pkg", "other"]
    assert pins["my-pkg"].version == "1.0+cpu"
    assert pins["my-pkg"].sha256 == {A, B}
    assert pins["my-pkg"].requirement == f"my-pkg==1.0+cpu --hash=sha256:{A} --hash=sha256:{B}"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("other>=2", "expected name==version"),
        ("other==2", "no --hash"),
        (f"other==2 ; python_version > '3' --hash=sha256:{A}", "no markers"),
        ("other==2.*", "expected name==version"),
        ("-r base.in", "expected name==version"),
        (f"First==2 --hash=sha256:{A}", "pinned twice"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str, message: str):
    lock = tmp_path / "x.lock"
    lock.write_text(f"first==1 --hash=sha256:{A}\n{line}\n")
    with pytest.raises(ConfigurationError, match=rf"x\.lock:2: .*{message}"):
        read_lock(lock)


def test_each_lock_of_ours_holds_all_of_the_one_before():
    assert len(pins_of("base.lock")) > 10
    assert pins_of("base.lock") < pins_of("report.lock") < pins_of("dev.lock")


@pytest.mark.parametrize("environment", ["cpu", "cpu-2022", "cuda13", "cuda126", "cuda116-paper"])
def test_an_environments_lock_holds_what_was_asked_for(environment: str):
    directory = PROJECT / "docker/environments"
    text = (directory / f"{environment}.in").read_text()
    wanted = re.findall(r"^([\w.-]+)(?:\[[\w,]+\])?==(\S+)$", text, re.MULTILINE)
    pins = read_lock(directory / f"{environment}.lock")
    runtime = "onnxruntime-gpu" if environment.startswith("cuda") else "onnxruntime"
    assert {"torch", "torchvision", "timm", "transformers", "onnx", runtime, "nvidia-ml-py"} <= dict(wanted).keys()
    assert {name: pins[name].version for name, _ in wanted} == dict(wanted)


@pytest.mark.parametrize("environment", ["cpu", "cpu-2022"])
def test_a_lock_for_processors_brings_no_cuda_packages(environment: str):
    pins = read_lock(PROJECT / f"docker/environments/{environment}.lock")
    assert [name for name in pins if name.startswith(("nvidia", "triton", "cuda"))] == ["nvidia-ml-py"]

"""The catalogue of environments and the digests that identify one."""

from pathlib import Path

import pytest

from orchestrator.cli import run
from orchestrator.environments import Catalogue, description, lock_sha256, read_lock, recipe_sha256
from orchestrator.errors import ConfigurationError, ExitCode
from orchestrator.planning import Demands

PROJECT = Path(__file__).parents[2]
COMMITTED = PROJECT / "docker/images.yaml"
DIGEST = "a" * 64
ENTRY = f"""\
environments:
  tiny:
    purpose: a test
    released: 2026-10
    python: "3.11"
    platform: manylinux_2_28_x86_64
    base: python:3.11@sha256:{DIGEST}
    base_verified: by nobody
    debian_suite: bookworm
    lock: environments/tiny.lock
    hashes_verified: by nobody
"""
GPU = """\
    cuda: "12.6"
    cudnn: "9.5"
    minimum_driver: "525.60.13"
    compute_capabilities: ["7.0", "8.6"]
"""


@pytest.fixture
def catalogue(tmp_path: Path) -> Path:
    (tmp_path / "environments").mkdir()
    (tmp_path / "environments/tiny.lock").write_text(f"tiny==1.0 --hash=sha256:{DIGEST}\n")
    (tmp_path / "Dockerfile").write_text("FROM scratch\n")
    path = tmp_path / "images.yaml"
    path.write_text(ENTRY)
    return path


def test_the_committed_catalogue_is_sound():
    known = Catalogue.load(PROJECT / "docker/images.yaml")
    for entry in known.entries.values():
        assert entry.requirements_path.is_file()
        if entry.unresolved is not None:
            assert not entry.lock_path.exists()
            continue
        pins = read_lock(entry.lock_path)
        assert entry.wheel_index is None or set(entry.wheel_index.distributions) <= pins.keys()
        for name, wheel in entry.recorded.items():
            assert (pins[name].version, pins[name].sha256) == (wheel.version, {wheel.sha256})


def test_the_committed_locks_for_gpus_bring_the_cuda_that_the_catalogue_says():
    known = Catalogue.load(PROJECT / "docker/images.yaml").entries
    runtimes = {"cuda13": "nvidia-cuda-runtime", "cuda126": "nvidia-cuda-runtime-cu12"}
    cudnn = {"cuda13": "nvidia-cudnn-cu13", "cuda126": "nvidia-cudnn-cu12"}
    for name, runtime in runtimes.items():
        pins = read_lock(known[name].lock_path)
        assert pins[runtime].version.rpartition(".")[0] == known[name].cuda
        assert pins[cudnn[name]].version == known[name].cudnn
    assert read_lock(known["cuda116-paper"].lock_path)["torch"].version == "1.12.1+cu116"


def test_an_environment_without_a_lock_is_known_and_has_no_digest(catalogue: Path):
    catalogue.write_text(ENTRY + "    unresolved: its wheels are nowhere\n")
    (catalogue.parent / "environments/tiny.lock").unlink()
    entry = Catalogue.load(catalogue).entry("tiny")
    assert entry.demands.unresolved == "its wheels are nowhere"
    for digest_of in (lock_sha256, recipe_sha256):
        with pytest.raises(ConfigurationError, match="environment tiny has no lock: its wheels are nowhere"):
            digest_of(entry)


def test_what_an_environment_needs_of_a_host_is_read(catalogue: Path):
    catalogue.write_text(ENTRY + GPU)
    demands = Catalogue.load(catalogue).entry("tiny").demands
    assert demands == Demands("2026-10", "12.6", "525.60.13", ("7.0", "8.6"), architecture="x86_64")


def test_the_architecture_is_that_of_the_platform(catalogue: Path):
    catalogue.write_text(ENTRY.replace("manylinux_2_28_x86_64", "manylinux_2_34_aarch64"))
    assert Catalogue.load(catalogue).entry("tiny").demands.architecture == "aarch64"


def test_what_is_said_of_cuda_is_whole(catalogue: Path):
    catalogue.write_text(ENTRY + GPU.replace('    cudnn: "9.5"\n', ""))
    with pytest.raises(ConfigurationError, match=r"environments\.tiny: cuda, cudnn, .* stand together or not at all"):
        Catalogue.load(catalogue)


def test_a_recorded_wheel_belongs_to_the_wheel_index(catalogue: Path):
    recorded = f"{{version: 1.0+cu116, sha256: {DIGEST}, source: a text, confidence: medium}}"
    catalogue.write_text(ENTRY + f"    recorded:\n      tiny: {recorded}\n")
    with pytest.raises(ConfigurationError, match="recorded names tiny, which wheel_index does not"):
        Catalogue.load(catalogue)


def test_the_name_that_stands_for_any_environment_is_none(catalogue: Path):
    catalogue.write_text(ENTRY.replace("  tiny:", "  any-suitable:"))
    with pytest.raises(ConfigurationError, match=r":2: environments\.any-suitable: sweeps use this name"):
        Catalogue.load(catalogue)


def test_no_python_file_under_docker_shadows_the_sdk():
    assert list((PROJECT / "docker").rglob("*.py")) == []


def test_an_entry_knows_its_files(catalogue: Path):
    entry = Catalogue.load(catalogue).entry("tiny")
    assert entry.name == "tiny"
    assert entry.requirements_path == catalogue.parent / "environments/tiny.in"
    assert entry.lock_path == catalogue.parent / "environments/tiny.lock"
    assert entry.wheel_directory == catalogue.parent / "wheels"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "purpose: a test",
            "purpose: a test\n    purpos: b",
            ":4: environments.tiny.purpos: unknown key; did you mean purpose",
        ),
        ("2026-10", "2026-13", ":4: environments.tiny.released: "),
        ('"3.11"', "3.11", ":5: environments.tiny.python: "),
        (f"@sha256:{DIGEST}", "", ":7: environments.tiny.base: "),
        ("tiny.lock", "other.lock", ":10: environments.tiny.lock: no such file"),
        ("  tiny:", "  Tiny:", ":2: environments.Tiny"),
    ],
)
def test_an_error_names_file_line_and_key(catalogue: Path, old: str, new: str, message: str):
    catalogue.write_text(ENTRY.replace(old, new))
    with pytest.raises(ConfigurationError) as error:
        Catalogue.load(catalogue)
    assert f"{catalogue}{message}" in str(error.value)
    assert "\n" not in str(error.value)


def test_an_unknown_environment_is_a_user_error_with_a_hint(catalogue: Path):
    with pytest.raises(ConfigurationError, match="unknown environment tinny; did you mean tiny"):
        Catalogue.load(catalogue).entry("tinny")


def test_the_lock_digest_is_that_of_its_bytes(catalogue: Path):
    entry = Catalogue.load(catalogue).entry("tiny")
    before = lock_sha256(entry)
    entry.lock_path.write_text(entry.lock_path.read_text() + "# a comment\n")
    assert lock_sha256(entry) != before


@pytest.mark.parametrize("changed", ["Dockerfile", "environments/tiny.lock"])
def test_the_recipe_changes_with_each_file(catalogue: Path, changed: str):
    entry = Catalogue.load(catalogue).entry("tiny")
    before = recipe_sha256(entry)
    assert recipe_sha256(entry) == before
    (catalogue.parent / changed).write_text("other\n")
    assert recipe_sha256(entry) != before


def test_the_recipe_changes_with_the_base_but_not_with_words(catalogue: Path):
    before = recipe_sha256(Catalogue.load(catalogue).entry("tiny"))
    catalogue.write_text(ENTRY.replace("a test", "other words"))
    assert recipe_sha256(Catalogue.load(catalogue).entry("tiny")) == before
    catalogue.write_text(ENTRY.replace(DIGEST, "b" * 64))
    assert recipe_sha256(Catalogue.load(catalogue).entry("tiny")) != before


def test_what_was_verified_and_what_deviates_is_shown() -> None:
    lines = description(Catalogue.load(COMMITTED).entry("cuda116-paper"))
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
    lines = description(Catalogue.load(COMMITTED).entry("cpu"))
    assert [line for line in lines if line.startswith(("CUDA", "cuDNN", "minimum", "machine"))] == []
    assert any(line.startswith("wheel index:") for line in lines)


@pytest.mark.parametrize("option", ["-v", "--verbose"])
def test_the_list_shows_it_when_asked(option: str, in_project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["images", "list"]) == ExitCode.OK
    short = capsys.readouterr().out
    assert run(["images", "list", option]) == ExitCode.OK
    long = capsys.readouterr().out
    assert "base verified:" not in short
    for name, entry in Catalogue.load(COMMITTED).entries.items():
        section = long[long.index(f"\n{name} " if name != "cpu" else name) :]
        for line in description(entry):
            assert line in section
    assert long.count("no lock: torch-tensorrt 2.13.0 needs") == short.count("no lock: torch-tensorrt") == 1

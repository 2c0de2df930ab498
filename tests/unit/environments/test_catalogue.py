"""The catalogue of environments, the digests that identify one, and its locks."""

import re
from pathlib import Path

import pytest

from orchestrator.cli import run
from orchestrator.environments import Catalogue, description, lock_sha256, read_lock, recipe_sha256
from orchestrator.errors import ConfigurationError, ExitCode
from orchestrator.planning import Demands
from tests.conftest import PROJECT
from tests.refusals import refusal, replaced
from tests.scripted_engine import CATALOGUE, tiny_entry

COMMITTED = PROJECT / "docker/images.yaml"
DIGEST, OTHER = "a" * 64, "b" * 64
GPU = """\
    cuda: "12.6"
    cudnn: "9.5"
    minimum_driver: "525.60.13"
    compute_capabilities: ["7.0", "8.6"]
"""


@pytest.fixture
def catalogue(tmp_path: Path) -> Path:
    return tiny_entry(tmp_path).directory / "images.yaml"


def test_the_committed_catalogue_is_sound() -> None:
    known = Catalogue.load(COMMITTED).entries
    for name, entry in known.items():
        assert entry.requirements_path.is_file()
        if entry.unresolved is not None:
            assert not entry.lock_path.exists()
            continue
        pins = read_lock(entry.lock_path)
        assert entry.wheel_index is None or set(entry.wheel_index.distributions) <= pins.keys()
        for distribution, wheel in entry.recorded.items():
            assert (pins[distribution].version, pins[distribution].sha256) == (wheel.version, {wheel.sha256})
        text = entry.requirements_path.read_text()
        wanted = dict(re.findall(r"^([\w.-]+)(?:\[[\w,]+\])?==(\S+)$", text, re.MULTILINE))
        runtime = "onnxruntime-gpu" if name.startswith("cuda") else "onnxruntime"
        assert {"torch", "torchvision", "timm", "transformers", "nvidia-ml-py"} <= wanted.keys()
        assert entry.only_when_named or {"onnx", runtime} <= wanted.keys()
        assert {distribution: pins[distribution].version for distribution in wanted} == wanted
        if entry.cuda is None:
            assert [pin for pin in pins if pin.startswith(("nvidia", "triton", "cuda"))] == ["nvidia-ml-py"]


def test_the_committed_locks_for_gpus_bring_the_cuda_that_the_catalogue_says() -> None:
    known = Catalogue.load(COMMITTED).entries
    for name, runtime, cudnn in (("cuda13", "", "-cu13"), ("cuda126", "-cu12", "-cu12")):
        pins = read_lock(known[name].lock_path)
        assert pins[f"nvidia-cuda-runtime{runtime}"].version.rpartition(".")[0] == known[name].cuda
        assert pins[f"nvidia-cudnn{cudnn}"].version == known[name].cudnn
    assert read_lock(known["cuda116-paper"].lock_path)["torch"].version == "1.12.1+cu116"


def test_what_an_environment_needs_of_a_host_is_read_and_without_a_lock_it_has_no_digest(catalogue: Path) -> None:
    catalogue.write_text((CATALOGUE + GPU).replace("manylinux_2_28_x86_64", "manylinux_2_34_aarch64"))
    demands = Catalogue.load(catalogue).entry("tiny").demands
    assert demands == Demands("2026-01", "12.6", "525.60.13", ("7.0", "8.6"), architecture="aarch64")
    catalogue.write_text(CATALOGUE + "    unresolved: its wheels are nowhere\n")
    (catalogue.parent / "tiny.lock").unlink()
    entry = Catalogue.load(catalogue).entry("tiny")
    assert entry.demands.unresolved == "its wheels are nowhere"
    for digest_of in (lock_sha256, recipe_sha256):
        with pytest.raises(ConfigurationError, match="environment tiny has no lock: its wheels are nowhere"):
            digest_of(entry)


RECORDED = f"    recorded:\n      tiny: {{version: 1.0+cu116, sha256: {DIGEST}, source: a text, confidence: medium}}\n"


@pytest.mark.parametrize(
    ("text", "place", "told"),
    [
        (replaced(CATALOGUE, "purpose", "purpos"), "3: environments.tiny.purpos", "did you mean purpose?"),
        (replaced(CATALOGUE, "2026-01", "2026-13"), "4: environments.tiny.released", "2026-13"),
        (replaced(CATALOGUE, '"3.11"', "3.11"), "5: environments.tiny.python", "a valid string"),
        (replaced(CATALOGUE, "@sha256:" + "0" * 64, ""), "7: environments.tiny.base", "sha256:"),
        (
            replaced(CATALOGUE, "tiny.lock", "other.lock"),
            "10: environments.tiny.lock",
            "DIR/other.lock; `taxmeter images lock",
        ),
        (replaced(CATALOGUE, "  tiny:", "  Tiny:"), "2: environments.Tiny", "should match pattern"),
        (replaced(CATALOGUE, "  tiny:", "  any-suitable:"), "2: environments.any-suitable", "take another"),
        (CATALOGUE + replaced(GPU, '    cudnn: "9.5"\n', ""), "2: environments.tiny", "together or not at all"),
        (CATALOGUE + RECORDED, "2: environments.tiny", "recorded names tiny, which wheel_index does not"),
    ],
)
def test_a_mistake_is_one_line_with_its_place(catalogue: Path, text: str, place: str, told: str) -> None:
    line = refusal(Catalogue.load, catalogue, text)
    assert line.startswith(f":{place}: ")
    assert told in line


def test_the_recipe_changes_with_each_file_and_the_base_but_not_with_words(catalogue: Path) -> None:
    def digests() -> tuple[str, str]:
        entry = Catalogue.load(catalogue).entry("tiny")
        return recipe_sha256(entry), lock_sha256(entry)

    seen = [digests()]
    catalogue.write_text(CATALOGUE.replace("a test", "other words"))
    assert digests() == seen[0]
    catalogue.write_text(CATALOGUE.replace("0" * 64, OTHER))
    seen.append(digests())
    (catalogue.parent / "Dockerfile").write_text("other\n")
    seen.append(digests())
    assert len({lock for _, lock in seen}) == 1
    (catalogue.parent / "tiny.lock").write_text("# a comment\n")
    seen.append(digests())
    assert len({recipe for recipe, _ in seen}) == 4
    assert len({lock for _, lock in seen}) == 2


def test_what_was_verified_and_what_deviates_is_shown() -> None:
    lines = description(Catalogue.load(COMMITTED).entry("cuda116-paper"))
    parts = [(label, text.strip()) for label, _, text in (line.partition(":") for line in lines)]
    told = dict(parts)
    assert told["base"].startswith("debian:bullseye-slim@sha256:")
    assert told["base verified"].endswith("not pulled")
    assert "never installed" in told["hashes verified"]
    assert (told["CUDA"], told["cuDNN"], told["minimum driver"]) == ("11.6", "8.3.2", "450.80.02")
    assert told["machine code for"].startswith("6.0, 7.0, 7.5, 8.0, 8.6;")
    recorded = [text.partition(": ")[0] for label, text in parts if label == "recorded"]
    assert recorded == ["torch 1.12.1+cu116, confidence medium", "torchvision 0.13.1+cu116, confidence medium"]
    assert [label for label, _ in parts].count("deviation") == 3


def test_the_list_shows_it_when_asked(in_project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["images", "list"]) == ExitCode.OK
    short = capsys.readouterr().out
    assert run(["images", "list", "-v"]) == ExitCode.OK
    long = capsys.readouterr().out
    assert "base verified:" not in short
    for name, entry in Catalogue.load(COMMITTED).entries.items():
        section = long[long.index(f"\n{name} " if name != "cpu" else name) :]
        assert [line for line in description(entry) if line not in section] == []
    assert long.count("no lock: torch-tensorrt 2.13.0 needs") == short.count("no lock: torch-tensorrt") == 1


def test_pins_over_several_lines_with_comments(tmp_path: Path) -> None:
    lock = tmp_path / "x.lock"
    hashes = f"    --hash=sha256:{DIGEST} \\\n    --hash=sha256:{OTHER}"
    lock.write_text(f"# head\nMy_Pkg==1.0+cpu \\\n{hashes}\n    # via x\nother==2 --hash=sha256:{DIGEST}\n")
    pins = read_lock(lock)
    assert list(pins) == ["my-pkg", "other"]
    assert (pins["my-pkg"].version, pins["my-pkg"].sha256) == ("1.0+cpu", {DIGEST, OTHER})
    assert pins["my-pkg"].requirement == f"my-pkg==1.0+cpu --hash=sha256:{DIGEST} --hash=sha256:{OTHER}"


@pytest.mark.parametrize(
    ("line", "told"),
    [
        *((wrong, "expected name==version --hash=") for wrong in ("other>=2", "other==2.*", "-r base.in")),
        ("other==2", "other: this pin has no --hash"),
        (f"First==2 --hash=sha256:{DIGEST}", "first: this distribution is pinned twice"),
        (f"other==2 ; python_version > '3' --hash=sha256:{DIGEST}", "other: .* no markers"),
    ],
)
def test_a_bad_line_of_a_lock_is_named(tmp_path: Path, line: str, told: str) -> None:
    refused = refusal(read_lock, tmp_path / "x.lock", f"first==1 --hash=sha256:{DIGEST}\n{line}\n")
    assert re.match(f":2: {told}", refused)


def test_each_lock_of_ours_holds_all_of_the_one_before() -> None:
    pin = re.compile(r"^[A-Za-z0-9][^\s\\]*==[^\\\n]+?(?=\s*\\?$)", re.MULTILINE)
    texts = [(PROJECT / "requirements" / f"{name}.lock").read_text() for name in ("base", "report", "dev")]
    base, report, dev = (set(pin.findall(text)) for text in texts)
    assert len(base) > 10
    assert base < report < dev

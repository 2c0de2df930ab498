"""Every error in a YAML file names file, line and key, and says what was expected."""

from itertools import pairwise
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from orchestrator.config import load_inventory, load_sweep
from orchestrator.config.documents import MAX_BYTES, Source
from orchestrator.errors import ConfigurationError
from tests.conftest import PROJECT
from tests.refusals import refusal, replaced

# each list is nine times the one before it
ALIASES = b"".join(f"{key}: &{key} [{', '.join([f'*{before}'] * 9)}]\n".encode() for before, key in pairwise("abcdef"))
SWEEP = (PROJECT / "tests" / "data" / "rounds.yaml").read_text()
INVENTORY = (PROJECT / "hostinventory.yaml").read_text()
MISTAKES = {
    "version: 1": ("version: 2",),
    "rounds: 3": ("ronds: 3", "rounds: '3'", "rounds: 0"),
    "name: bert-base, ": ("",),
    "name: distilbert": ("name: distillbert",),
    "image_size: 224": ("image_size: 2024-01-01", "sequence_length: 224"),
    "onnxruntime]": ("onxruntime]",),
    "torchscript,": (
        "{name: torchscript, options: {freze: true}},",
        "{name: torchscript, options: {freeze: 1}},",
        "{name: torchscript, environments: cpus},",
    ),
    "[all]": ("[al]",),
    "batch: 1}": ("batch: 16}",),
    "warmup_min_ms": ("warmup_min",),
    "warmup_min_calls: 1": ("warmup_min_calls: 0", "procedure: strict"),
    "warmup_max_ms: 1500": ("warmup_max_ms: 15",),
    "  cycles: 10": ("  cycles: 4",),
    "seed: 2023": ("seed: 2023: 1", "seed: 2023\nseed: 1", "seed: [1", "targets: each-gpu", "targets: {gpu: 4}"),
}
GUARDS = (
    *("guards: {lod: flag}", "guards: strict", "guards:\n  load:", "guards:\n  load: warn"),
    *(f"guards:\n  load: {{{limits}}}" for limits in ("policy: warn", "wait_s: 5", "max_busy_permille: 2000")),
    "guards:\n  load: {policy: wait, wait_s: 0}",
    *(f"guards:\n  clocks: {{{limits}}}" for limits in ("require: locked", "max_busy_permille: 5")),
)
AXES = (
    "workloads: [{name: [bert-base, resnet5], batch: 1}]",
    "workloads: [{name: [], batch: 1}]",
    "workloads: [{name: [bert-base, resnet50], batch: 1, sequence_length: 8}]",
    "workloads: [{name: [bert, bert-base], batch: 1, options: {layers: 2}}]",
    "workloads: [{name: bert-base, batch: 1}]\nduplicate:\n  - {workload: bert-base, backend: eager}",
    "workloads: [{name: bert-base, batch: 1}]\nduplicate:\n  - {workload: bert-base, backend: tvm, batch: 1}",
    "workloads: [{family: speach, batch: 1}]",
    "workloads: [{family: speech, name: gpt2, batch: 1}]",
    "workloads: [{family: speech, batch: 1, sequence_length: 8}]",
)
BUDGETS = ("360", "0 s", "6 min\nrounds: 3", "6 min\nprecision: 0.03", "6 min\nprotocol: {procedure: legacy}")
HEAD = "version: 1\nname: s\nenvironments: cpu\n"


def test_a_wrong_sweep_gives_one_line_with_its_place(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    texts = {new: replaced(SWEEP, old, new) for old, mistakes in MISTAKES.items() for new in mistakes}
    texts |= {text: SWEEP + text for text in GUARDS}
    texts |= {text: f"{HEAD}backends: [eager, torchscript]\nrounds: 2\n{text}" for text in AXES}
    tiny = "backends: [eager]\nworkloads: [{name: tiny-bert, batch: 1}]\n"
    texts |= {text: f"{HEAD}{tiny}budget: {text}" for text in BUDGETS}
    told = {key: refusal(load_sweep, tmp_path / "sweep.yaml", text) for key, text in texts.items()}
    assert told == snapshot
    assert max(len(line.partition("did you mean")[2]) for line in told.values()) <= 200


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (None, "no such file"),
        (b"\xff\xfe", "cannot be read"),
        (b"", "expected keys and values"),
        (b"- 1\n", "expected keys and values"),
        (b"a: \x01\n", "not valid YAML"),
        (b"#" * (MAX_BYTES + 1), "longer than 262144 bytes"),
        (b"a: " + b"[" * 21 + b"]" * 21, "nested more than 20 deep"),
        (b"a: " + b"[" * 500 + b"]" * 500, "nested more than 20 deep"),
        (b"a: &a [1, 2, 3, 4, 5, 6, 7, 8, 9]\n" + ALIASES, "more than 20000 values, aliases followed"),
        (b"a: " + b"x" * 200_000 + b"\n", "1: a: longer than 4096 characters"),
        (b"x" * 900 + b"_" * 5000 + b": 1\n", "not valid YAML|longer than 4096 characters"),
        (b"a: " + b"9" * 5000 + b"\n", "not valid YAML"),
        (b"a: 99999999999999999999\n", "1: a: an integer beyond 64 bits"),
        (b'a: "\\ud800"\n', "1: a: half of a surrogate pair"),
        (b"a: .inf\n", "1: a: expected a finite number"),
        (b"? [a]\n: 1\n", "1: .*a value of type CommentedKeySeq is not supported"),
    ],
)
def test_a_file_that_is_no_document(tmp_path: Path, content: bytes | None, expected: str) -> None:
    path = tmp_path / "sweep.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigurationError, match=expected):
        load_sweep(path)


def test_what_was_read_once_names_its_lines_whatever_becomes_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "hosts.yaml"
    path.write_text(INVENTORY)
    inventory = load_inventory(path)
    path.unlink()
    assert inventory.file == Source(path, INVENTORY)
    error = inventory.error("it is odd", "hosts", "this-machine", "connection")
    assert str(error) == f"{path}:7: hosts.this-machine.connection: it is odd"
    assert str(inventory.error("it is odd")) == f"{path}: it is odd"
    sweep = load_sweep(Source(Path("then"), SWEEP))
    assert str(sweep.error("odd", "environments", 0)) == "then:4: environments.0: odd"
    assert str(sweep.model_copy(update={"rounds": 1}).error("odd", "rounds")) == "then:13: rounds: odd"

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
MISTAKES = (
    ("rounds: 3", "ronds: 3"),
    ("onnxruntime]", "onxruntime]"),
    ("name: distilbert", "name: distillbert"),
    ("warmup_min_ms", "warmup_min"),
    ("warmup_min_calls: 1", "warmup_min_calls: 0"),
    ("warmup_min_calls: 1", "procedure: strict"),
    ("rounds: 3", "rounds: '3'"),
    ("rounds: 3", "rounds: 0"),
    ("name: bert-base, ", ""),
    ("[all]", "[al]"),
    ("seed: 2023", "seed: 2023: 1"),
    ("seed: 2023", "seed: 2023\nseed: 1"),
    ("seed: 2023", "seed: [1"),
    ("seed: 2023", "targets: each-gpu"),
    ("seed: 2023", "targets: {gpu: 4}"),
    ("batch: 1}", "batch: 16}"),
    ("image_size: 224", "image_size: 2024-01-01"),
    ("image_size: 224", "sequence_length: 224"),
    ("torchscript,", "{name: torchscript, options: {freze: true}},"),
    ("torchscript,", "{name: torchscript, options: {freeze: 1}},"),
    ("torchscript,", "{name: torchscript, environments: cpus},"),
    ("warmup_max_ms: 1500", "warmup_max_ms: 15"),
    ("  cycles: 10", "  cycles: 4"),
    ("version: 1", "version: 2"),
)


def test_a_wrong_sweep_gives_one_line_with_its_place(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    path = tmp_path / "sweep.yaml"
    told = {new: refusal(load_sweep, path, replaced(SWEEP, old, new)) for old, new in MISTAKES}
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
    sweep = load_sweep(Source(Path("the sweep of then"), SWEEP))
    assert sweep.file.text == SWEEP
    assert str(sweep.error("odd", "environments", 0)) == "the sweep of then:4: environments.0: odd"
    assert str(sweep.model_copy(update={"rounds": 1}).error("odd", "rounds")) == "the sweep of then:13: rounds: odd"

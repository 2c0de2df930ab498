"""Every error in a YAML file names file, line and key, and says what was expected."""

from itertools import pairwise
from pathlib import Path

import pytest

from orchestrator.config import load_inventory, load_sweep
from orchestrator.config.documents import MAX_BYTES, Source
from orchestrator.errors import ConfigurationError, ExitCode

# each list is nine times the one before it
ALIASES = b"".join(f"{key}: &{key} [{', '.join([f'*{before}'] * 9)}]\n".encode() for before, key in pairwise("abcdef"))
SWEEP = (Path(__file__).parents[1] / "data" / "rounds.yaml").read_text()
INVENTORY = (Path(__file__).parents[2] / "hostinventory.yaml").read_text()


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("rounds: 3", "ronds: 3", ":13: ronds: unknown key; did you mean rounds?"),
        ("onnxruntime]", "onxruntime]", ":9: backends.2: unknown backend onxruntime; did you mean onnxruntime?"),
        (
            "name: distilbert",
            "name: distillbert",
            ":7: workloads.1: unknown workload distillbert; did you mean distilbert?",
        ),
        ("warmup_min_ms", "warmup_min", ":21: protocol.warmup_min: unknown key; did you mean warmup_min_ms?"),
        (
            "warmup_min_calls: 1",
            "warmup_min_calls: 0",
            ":20: protocol.warmup_min_calls: input should be greater than or equal to 1, but it is 0",
        ),
        (
            "warmup_min_calls: 1",
            "procedure: strict",
            ":20: protocol.procedure: input should be 'standard' or 'legacy', but it is \"strict\"",
        ),
        ("rounds: 3", "rounds: '3'", ':13: rounds: input should be a valid integer, but it is "3"'),
        ("rounds: 3", "rounds: 0", ":13: rounds: input should be greater than 0, but it is 0"),
        ("name: bert-base, ", "", ":6: workloads.0.name: this key is missing"),
        ("[all]", "[al]", ":11: threads.0: "),
        ("seed: 2023", "seed: 2023: 1", ":16: not valid YAML: mapping values are not allowed here"),
        ("seed: 2023", "seed: 2023\nseed: 1", ":17: not valid YAML: found duplicate key"),
        ("seed: 2023", "seed: [1", "not valid YAML"),
        ("batch: 1}", "batch: 16}", "duplicate names bert-base × eager × batch 16, which this sweep does not run"),
        (
            "image_size: 224",
            "image_size: 2024-01-01",
            ":8: workloads.2.image_size: a value of type date is not supported",
        ),
        ("image_size: 224", "sequence_length: 224", "workload resnet50 has no sequence_length; remove the key"),
        ("torchscript,", "{name: torchscript, options: {freze: true}},", "has no option freze; did you mean freeze?"),
        (
            "torchscript,",
            "{name: torchscript, options: {freeze: 1}},",
            "option freeze of backend torchscript must be one of True, False, not 1",
        ),
        ("warmup_max_ms: 1500", "warmup_max_ms: 15", ":19: protocol: warmup_max_ms is below warmup_min_ms"),
        ("  cycles: 10", "  cycles: 4", ":19: protocol: cycles is below min_cycles; raise it or lower the minimum"),
        ("version: 1", "version: 2", ":2: version: input should be less than or equal to 1, but it is 2"),
    ],
)
def test_a_wrong_sweep_gives_one_line_with_its_place(tmp_path: Path, old: str, new: str, expected: str) -> None:
    assert old in SWEEP
    path = tmp_path / "sweep.yaml"
    path.write_text(SWEEP.replace(old, new))
    with pytest.raises(ConfigurationError) as caught:
        load_sweep(path)
    message = str(caught.value)
    assert message.startswith(str(path))
    assert expected in message
    assert "\n" not in message
    assert caught.value.exit_code == ExitCode.USAGE


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (None, "no such file"),
        (b"\xff\xfe", "cannot be read"),
        (b"", "expected keys and values"),
        (b"- 1\n", "expected keys and values"),
        (b"a: \x01\n", "not valid YAML"),
        (b"#" * (MAX_BYTES + 1), "longer than 1048576 bytes"),
        (b"a: " + b"[" * 21 + b"]" * 21, "nested more than 20 deep"),
        (b"a: " + b"[" * 500 + b"]" * 500, "nested more than 20 deep"),
        (b"a: &a [1, 2, 3, 4, 5, 6, 7, 8, 9]\n" + ALIASES, "more than 100000 values, aliases followed"),
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

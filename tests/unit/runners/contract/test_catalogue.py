"""The declarations that both sides share agree with the code behind them."""

from dataclasses import replace

import pytest

from orchestrator.cli import run
from orchestrator.errors import ExitCode
from runners.backends import BACKENDS as BACKEND_TABLE
from runners.backends import backend_class
from runners.contract import BackendSpec, Protocol, TrialSpec, WorkloadSpec
from runners.contract.catalogue import BACKENDS, WORKLOADS, refusal, resolve_options, resolve_workload_options
from runners.workloads import WORKLOADS as WORKLOAD_TABLE
from runners.workloads import make_workload
from tests.conftest import PROJECT

TEXT = WorkloadSpec("bert-base", batch=1, sequence_length=128)
BERT = TrialSpec(TEXT, BackendSpec("eager", {}), "float32", "cpu", threads=1, seed=0, protocol=Protocol())


def test_tables_and_catalogue_have_the_same_names() -> None:
    assert set(BACKEND_TABLE) == set(BACKENDS)
    assert set(WORKLOAD_TABLE) == set(WORKLOADS)


@pytest.mark.parametrize("name", sorted(BACKENDS))
def test_every_backend_class_can_be_imported_without_its_framework(name: str) -> None:
    assert backend_class(name).__name__ in BACKEND_TABLE[name]


@pytest.mark.parametrize("name", sorted(WORKLOADS))
def test_every_workload_class_can_be_imported_without_its_framework(name: str) -> None:
    info = WORKLOADS[name]
    shape = WorkloadSpec(name, 1, info.sequence_length, info.image_size)
    preload = make_workload(replace(BERT, workload=shape)).preload
    wanted = {module.partition(".")[0] for module in preload} - {"runners"}
    assert wanted == set(WORKLOADS[name].frameworks)


@pytest.mark.parametrize("name", sorted(BACKENDS))
def test_defaults_are_allowed_values(name: str) -> None:
    defaults = resolve_options(BackendSpec(name, {}))
    assert {key: info.accepts(defaults[key]) for key, info in BACKENDS[name].options.items()} == dict.fromkeys(
        defaults, True
    )


def test_given_options_replace_defaults() -> None:
    given = BackendSpec("onnxruntime", {"optimization": 0})
    resolved = resolve_options(given)
    assert (resolved["optimization"], set(resolved)) == (0, set(BACKENDS["onnxruntime"].options))


@pytest.mark.parametrize("name", sorted(WORKLOADS))
def test_defaults_of_workloads_are_allowed_values(name: str) -> None:
    assert all(info.accepts(info.default) for info in WORKLOADS[name].options.values())


def test_options_of_a_workload_are_checked() -> None:
    wrong = replace(BERT, workload=WorkloadSpec("bert-base", 1, 128, None, {"size": "tiny"}))
    assert refusal(wrong) == "option size of workload bert-base is one of full, shrunk, not 'tiny'"
    assert resolve_workload_options(BERT.workload)["size"] == "full"


@pytest.mark.parametrize("spec", [BERT, replace(BERT, dtype="bfloat16", backend=BackendSpec("openvino", {}))])
def test_a_good_specification_is_not_refused(spec: TrialSpec) -> None:
    assert refusal(spec) is None


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (replace(BERT, workload=WorkloadSpec("bert-base", 1)), "needs sequence_length"),
        (replace(BERT, workload=WorkloadSpec("bert-base", 1, 128, 224)), "has no image_size"),
        (replace(BERT, backend=BackendSpec("eager", {"fuse": True})), "no option fuse; known: attention"),
        (replace(BERT, backend=BackendSpec("eager", {"attention": "flash"})), "one of sdpa, eager, not 'flash'"),
        (replace(BERT, backend=BackendSpec("torchscript", {"freeze": 1})), "one of True, False, not 1"),
        (replace(BERT, backend=BackendSpec("python", {})), "these can: eager, torchscript, onnxruntime"),
        (replace(BERT, dtype="float64"), "dtype float64"),
        (replace(BERT, dtype="bfloat16", backend=BackendSpec("onnxruntime", {})), "served: float32, float16"),
        (replace(BERT, device="cuda", backend=BackendSpec("openvino", {})), "served: cpu"),
        (replace(BERT, backend=BackendSpec("tensorrt", {})), "served: cuda"),
        (replace(BERT, dtype="float16", backend=BackendSpec("dynamic_int8", {})), "served: float32"),
        (replace(BERT, device="tpu"), "device tpu is not served by bert-base with eager; served: cpu, cuda"),
    ],
)
def test_a_refusal_names_what_is_known(spec: TrialSpec, words: str) -> None:
    assert words in (refusal(spec) or "")


def test_the_page_of_workloads_has_the_table_that_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["workloads", "--format", "markdown"]) == ExitCode.OK
    assert capsys.readouterr().out in (PROJECT / "docs" / "workloads.md").read_text()


def test_every_workload_says_what_it_is() -> None:
    assert [name for name, info in WORKLOADS.items() if not info.about] == []

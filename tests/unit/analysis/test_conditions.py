"""Conditions on axes: how they are written, and what they accept."""

import pytest
from syrupy.assertion import SnapshotAssertion

from orchestrator.analysis.axes import Value
from orchestrator.analysis.conditions import accepted, parse_conditions
from orchestrator.errors import ConfigurationError

GPUS: set[Value] = {"NVIDIA A100-SXM4-40GB", "NVIDIA A1000", "NVIDIA GeForce RTX 3090", "Quadro RTX 8000", "no GPU"}
BATCHES: set[Value] = {1, 2, 8, 64}
BACKENDS = {"eager", "torch_compile", "torch_compile(mode=reduce-overhead)", "x(a=1,b=2)"}
LENGTHS = {None, 8, 128}


@pytest.mark.parametrize(
    ("text", "known", "expected"),
    [
        ("gpu=A100", GPUS, {"NVIDIA A100-SXM4-40GB"}),
        ("gpu=a100", GPUS, {"NVIDIA A100-SXM4-40GB"}),
        ("gpu=RTX 8000", GPUS, {"Quadro RTX 8000"}),
        ("gpu=nvidia a1000", GPUS, {"NVIDIA A1000"}),
        ("gpu=A100,no GPU", GPUS, {"NVIDIA A100-SXM4-40GB", "no GPU"}),
        ("gpu!=no GPU,A1000", GPUS, GPUS - {"no GPU", "NVIDIA A1000"}),
        ("gpu~*rtx*", GPUS, {"NVIDIA GeForce RTX 3090", "Quadro RTX 8000"}),
        ("batch=1,8", BATCHES, {1, 8}),
        ("batch!=1", BATCHES, {2, 8, 64}),
        ("batch>=8", BATCHES, {8, 64}),
        ("batch<=2", BATCHES, {1, 2}),
        ("batch>8", BATCHES, {64}),
        ("batch<2", BATCHES, {1}),
        ("batch~*4", BATCHES, {64}),
        ("sequence_length=none", LENGTHS, {None}),
        ("sequence_length>8", LENGTHS, {128}),
        ("backend=torch_compile", BACKENDS, {"torch_compile"}),
        ("backend=reduce-overhead", BACKENDS, {"torch_compile(mode=reduce-overhead)"}),
        ("backend=x(a=1,b=2),eager", BACKENDS, {"x(a=1,b=2)", "eager"}),
        ("hw=ab", {"abc", "def", "cab"}, {"abc"}),
        ("campaign=night-2026", {"night-20261120", "day-20261120"}, {"night-20261120"}),
    ],
)
def test_what_a_condition_accepts(text: str, known: set[Value], expected: set[Value]) -> None:
    [condition] = parse_conditions(text)
    assert accepted(condition, known) == expected
    assert condition.text == text


def test_several_stand_in_one_text_or_in_several() -> None:
    found = parse_conditions("gpu=RTX 8000 batch>=8  backend=torch_compile(mode=reduce-overhead) dtype = float16")
    assert [(condition.axis.name, *condition.values) for condition in found] == [
        ("gpu", "RTX 8000"), ("batch", "8"), ("backend", "torch_compile(mode=reduce-overhead)"), ("dtype", "float16"),
    ]  # fmt: skip
    assert parse_conditions(["gpu=RTX 8000", "batch>=8"]) == parse_conditions("gpu=RTX 8000 batch>=8")
    assert parse_conditions(()) == ()
    by_age = parse_conditions(["campaign=newest", "campaign=x", "campaign!=newest"])
    assert [condition.is_recent for condition in by_age] == [True, False, False]


def refusal(text: str, known: set[Value]) -> str:
    with pytest.raises(ConfigurationError) as caught:
        accepted(parse_conditions(text, "--where")[0], known)
    assert str(caught.value).startswith("--where: ")
    return str(caught.value)


NO_CONDITIONS = ("gpu", "8", "", "gpuu=A100", "batch=", "batch=1,,2", "batch=one", "batch>=none", "gpu>=A100")
OTHERS: dict[str, set[Value]] = {"hw=c": {"cab", "cde"}, "gpu=A100": set(), "dtype!=float32": {"float32"}}
NOT_THERE = {
    **dict.fromkeys(("gpu=H200", "gpu=GeForce 3090", "gpu=RTX", "gpu~x*"), GPUS),
    **dict.fromkeys(("batch=3", "batch>64", "batch>=1,2"), BATCHES),
    **OTHERS,
}


def test_what_is_no_condition_or_meets_no_trial_is_refused(snapshot: SnapshotAssertion) -> None:
    assert {text: refusal(text, GPUS) for text in NO_CONDITIONS} == snapshot(name="no condition")
    assert {text: refusal(text, known) for text, known in NOT_THERE.items()} == snapshot(name="not there")

"""Conditions on axes: how they are written, and what they accept."""

import pytest

from orchestrator.analysis.axes import Value
from orchestrator.analysis.conditions import accepted, parse_conditions
from orchestrator.errors import ConfigurationError

GPUS = {"NVIDIA A100-SXM4-40GB", "NVIDIA A1000", "NVIDIA GeForce RTX 3090", "Quadro RTX 8000", "no GPU"}
BATCHES = {1, 2, 8, 64}
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
    assert [one.axis.name for one in found] == ["gpu", "batch", "backend", "dtype"]
    assert [one.values for one in found] == [
        ("RTX 8000",), ("8",), ("torch_compile(mode=reduce-overhead)",), ("float16",),
    ]  # fmt: skip
    assert parse_conditions(["gpu=RTX 8000", "batch>=8"]) == parse_conditions("gpu=RTX 8000 batch>=8")
    assert parse_conditions(()) == ()


def test_campaigns_may_be_meant_by_their_age() -> None:
    assert [one.is_recent for one in parse_conditions(["campaign=newest", "campaign=x", "campaign!=newest"])] == [
        True, False, False,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gpu", "'gpu' is no condition; write gpu=VALUE"),
        ("8", "is no condition; write axis=value"),
        ("", "is empty"),
        ("gpuu=A100", "no axis is called gpuu; did you mean gpu"),
        ("batch=", "a value is missing"),
        ("batch=1,,2", "a value is missing"),
        ("batch=one", "expected a whole number"),
        ("batch>=none", "expected a whole number"),
        ("gpu>=A100", "gpu is no number"),
    ],
)
def test_what_is_no_condition_is_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        parse_conditions(text, "--where")


@pytest.mark.parametrize(
    ("text", "known", "message"),
    [
        ("gpu=H200", GPUS, "no trial has gpu=H200; there are: NVIDIA A100"),
        ("gpu=GeForce 3090", GPUS, "did you mean NVIDIA GeForce RTX 3090"),
        ("gpu=RTX", GPUS, r"may be NVIDIA GeForce RTX 3090, Quadro RTX 8000; write one .* gpu~\*RTX\* for all"),
        ("batch=3", BATCHES, "no trial has batch=3; there are: 1, 2, 8, 64"),
        ("batch>64", BATCHES, "no trial meets batch>64; there are: 1, 2, 8, 64"),
        ("batch>=1,2", BATCHES, "expected one number"),
        ("gpu~x*", GPUS, "no trial meets gpu~x"),
        ("hw=c", {"cab", "cde"}, "may be cab, cde"),
        ("gpu=A100", set(), "there is no trial at all"),
        ("dtype!=float32", {"float32"}, "no trial meets"),
    ],
)
def test_a_value_that_no_trial_has_is_an_error(text: str, known: set[Value], message: str) -> None:
    [condition] = parse_conditions(text, "--where")
    with pytest.raises(ConfigurationError, match=message) as caught:
        accepted(condition, known)
    assert str(caught.value).startswith("--where: ")

"""The vocabulary of axes and metrics."""

from typing import Any

import pytest

from orchestrator.analysis.axes import axes, axis, backend_text, values_of, with_sweeps
from orchestrator.analysis.metrics import METRICS, default_metric, metric
from orchestrator.analysis.tax import DERIVED
from orchestrator.errors import ConfigurationError
from orchestrator.store import TRIALS

ROW = {
    "gpu_name": "NVIDIA A100-SXM4-40GB, Tesla T4", "driver_version": None, "workload": "bert-base",
    "workload_options": '{"mask":"ptb","size":"full"}', "sequence_length": None, "torch_version": None,
    "backend": "torch_compile", "backend_options": '{"mode":"reduce-overhead"}',
}  # fmt: skip


def test_values_are_those_that_people_name() -> None:
    chosen = axes(("gpu", "driver", "sequence_length", "torch", "backend", "options"))
    assert values_of(ROW, chosen) == (
        "NVIDIA A100-SXM4-40GB", "unknown", None, "none", "torch_compile(mode=reduce-overhead)", "mask=ptb",
    )  # fmt: skip
    without = {"gpu_name": None, "gpu_uuid": None, "driver_version": None}
    assert [axis(name).read(without) for name in ("gpu", "gpu_uuid", "driver")] == ["no GPU", "no GPU", "no driver"]
    assert axis("gpu_uuid").read({"gpu_name": "A100", "gpu_uuid": None}) == "unknown"
    assert axis("sequence_length").shown(None) == "none"
    named: list[dict[str, Any]] = [{"campaign_id": "c"}, {"campaign_id": "x"}, {"batch": 1}]
    [row, other, plain] = with_sweeps(named, {"c": "nightly"})
    assert (axis("sweep").read(row), axis("sweep").read(other), plain) == ("nightly", "unknown", {"batch": 1})


@pytest.mark.parametrize(
    ("name", "options", "shown"),
    [
        ("eager", "{}", "eager"),
        ("torch_compile", '{"mode":"default"}', "torch_compile"),
        ("of-a-later-version", '{"b":2,"a":1}', "of-a-later-version(a=1,b=2)"),
    ],
)
def test_options_at_their_defaults_are_not_told(name: str, options: str, shown: str) -> None:
    assert backend_text(name, options) == shown


@pytest.mark.parametrize(
    ("names", "message"),
    [(("gppu",), "no axis is called gppu; did you mean gpu"), (("batch", "gpu", "batch"), "batch stands twice")],
)
def test_a_wrong_axis_is_an_error(names: tuple[str, ...], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message) as caught:
        axes(names, "--rows")
    assert str(caught.value).startswith("--rows: ")


def test_every_metric_has_a_unit_a_direction_and_its_columns() -> None:
    for known in METRICS.values():
        assert known.unit
        where = DERIVED if known.column in DERIVED.names else TRIALS
        assert where.field(known.column).metadata[b"better"] in (b"lower", b"higher")
        assert set(known.columns) - {*DERIVED.names} <= set(TRIALS.names)
    assert metric("throughput").higher_is_better
    assert not metric("latency_sync").higher_is_better
    assert (metric("memory_peak").unit, metric("latency_sync").unit) == ("bytes", "s")
    assert metric("latency").on("cuda") is metric("latency_pipelined")
    with pytest.raises(ConfigurationError, match="no metric is called latenc; did you mean latency_"):
        metric("latenc")


def test_the_usual_metric_is_that_of_the_device() -> None:
    assert default_metric({"cpu"}).name == "latency_sync"
    assert default_metric({"cuda"}).name == "latency_pipelined"
    both = default_metric({"cpu", "cuda"})
    assert [both.on(device).name for device in ("cpu", "cuda")] == ["latency_sync", "latency_pipelined"]
    assert (both.unit, both.higher_is_better) == ("s", False)

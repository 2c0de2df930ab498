"""What a figure shows, before it is drawn: numbers, labels and colours. Tests and tables read the same values."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from orchestrator.analysis import Estimate
from orchestrator.analysis.axes import grouped
from orchestrator.analysis.paper import Gathered, Point, State
from orchestrator.analysis.tax import Regime
from orchestrator.report.figures.catalogue import PanelSpec, Y
from orchestrator.report.palette import BLACK, backend_colour, backend_label, categorical, marker, sequential

MILLI: Final = 1e3
_NAMES: Final = {
    "bert-base": "BERT-Base",
    "bert-large": "BERT-Large",
    "distilbert": "DistilBERT",
    "albert-base": "ALBERT-Base",
    "squeezebert": "SqueezeBERT",
    "mobilebert": "MobileBERT",
    "funnel-small": "Funnel (small)",
    "fnet-base": "FNet",
    "resnet18": "ResNet-18",
    "resnet50": "ResNet-50",
    "resnet101": "ResNet-101",
    "resnet152": "ResNet-152",
    "wide-resnet50": "Wide ResNet-50",
    "densenet161": "DenseNet-161",
    "mobilenet-v2": "MobileNetV2",
    "shufflenet-v2": "ShuffleNetV2",
    "squeezenet1-0": "SqueezeNet 1.0",
    "vgg16": "VGG-16",
    "mnasnet1-0": "MnasNet",
    "efficientnetv2-m": "EfficientNetV2-M",
    "efficientnet-lite1": "EfficientNet-Lite1",
    "gernet-m": "GENet-M",
    "vit-base-16": "ViT-B/16",
    "vit-large-16": "ViT-L/16",
    "vit-base-32": "ViT-B/32",
    "vit-large-32": "ViT-L/32",
}
_X_LABELS: Final = {"batch": "batch", "sequence_length": "sequence length, tokens", "macs": "multiply-adds per call"}
_ORDINAL: Final = ("layers", "hidden_size")
_BACKENDS: Final = ("eager", "torchscript", "onnxruntime", "cuda_graphs", "fastpath", "sdpa_nested")


Value = Callable[[Point], Estimate | None]
"""The number of a point in the unit of a panel; null if there is none."""


class Bound(Enum):
    """What decides a latency; the value is how legends say it."""

    FRAMEWORK = "filled: framework-bound"
    OTHER = "hollow: not framework-bound"
    UNKNOWN = "grey: not known which"


@dataclass(frozen=True)
class Mark:
    """One point of a line."""

    x: float
    estimate: Estimate | None
    """In the unit of the panel; null if there is no number."""
    state: State
    bound: Bound | None
    """Null where it is no matter."""


@dataclass(frozen=True)
class Line:
    """What has one colour."""

    label: str
    colour: str
    marker: str
    marks: tuple[Mark, ...]
    dashed: bool = False

    @property
    def drawn(self) -> tuple[Mark, ...]:
        """The points with a number."""
        return tuple(mark for mark in self.marks if mark.estimate is not None)


@dataclass(frozen=True)
class Panel:
    title: str
    x_label: str
    y_label: str
    lines: tuple[Line, ...]
    published: tuple[tuple[float, float], ...] = ()
    """What the paper prints, in the same units."""
    reference: float | None = None
    """A level to compare with, such as a ratio of 1."""
    missing: str | None = None
    """Why it is empty; null if it is not."""


def workload_label(name: str) -> str:
    return _NAMES.get(name, name)


def in_ms(estimate: Estimate | None) -> Estimate | None:
    return estimate and estimate.scaled(MILLI)


def series_of(spec: PanelSpec, points: Sequence[Point], baseline: str | None = None) -> list[tuple[str, list[Point]]]:
    """Points by the value that a panel's lines differ in, the baseline first, else in the order of the values."""
    found = grouped(points, lambda point: str(_value(spec.series, point)))
    return sorted(found.items(), key=lambda item: (item[0] != baseline, _natural(item[0])))


def styled(spec: PanelSpec, names: Sequence[str], name: str) -> tuple[str, str, str, bool]:
    """Label, colour, marker and whether it is dashed, of one of the lines of a figure."""
    number = names.index(name)
    if spec.series == "backend":
        return backend_label(name), backend_colour(name), marker(number), False
    if spec.series in _ORDINAL:
        if not name.isdigit():
            return workload_label(name), BLACK, "x", True
        numbers = [name for name in names if name.isdigit()]
        unit = "layers" if spec.series == "layers" else "wide"
        return f"{name} {unit}", sequential(numbers.index(name), len(numbers)), marker(number), False
    label = workload_label(name) if spec.series == "workload" else name
    return label, categorical(number), marker(number), False


def panel_of(
    spec: PanelSpec,
    gathered: Gathered,
    names: Sequence[str],
    value: Value,
    baseline: str | None = None,
    missing: str = "not measured",
) -> Panel:
    lines = []
    for name, points in series_of(spec, gathered.select(spec.where), baseline):
        marks = tuple(sorted((_mark(spec, point, value) for point in points), key=lambda mark: mark.x))
        label, colour, shape, dashed = styled(spec, names, name)
        lines.append(Line(label, colour, shape, marks, dashed))
    is_empty = not any(line.drawn for line in lines)
    why = why_empty(gathered.select(spec.where), missing)
    return Panel(
        spec.title,
        _X_LABELS[spec.x],
        spec.y.value,
        tuple(lines),
        missing=why if is_empty else None,
        reference=1.0 if spec.y is Y.RATIO else None,
    )


def names_of(panels: Sequence[PanelSpec], gathered: Gathered, baseline: str | None = None) -> list[str]:
    found = [name for spec in panels for name, _ in series_of(spec, gathered.select(spec.where), baseline)]
    return sorted(set(found), key=lambda name: (name != baseline, _natural(name)))


def latency_ms(gathered: Gathered) -> Value:
    return lambda point: in_ms(point.estimate(gathered.latency))


def tflops(point: Point) -> Estimate | None:
    """What a point reaches, in 10^12 operations per second."""
    found = point.estimate("achieved_flops_per_s")
    return found and found.scaled(1e-12)


def why_empty(points: Sequence[Point], missing: str) -> str:
    """What stands in an empty panel: what failed, or cannot be had on this device, is not to be measured."""
    tried = [point for point in points if point.state is not State.MEASURED]
    if tried and all(point.state in (State.FAILED, State.IMPOSSIBLE) for point in tried):
        return " / ".join(dict.fromkeys(point.reason or point.state.value for point in tried))
    return missing


def _mark(spec: PanelSpec, point: Point, value: Value) -> Mark:
    x = point.configuration.get(spec.x)
    assert isinstance(x, int)
    return Mark(float(x), value(point), point.state, _bound(point) if spec.y is Y.LATENCY else None)


def _bound(point: Point) -> Bound:
    if point.regime is None:
        return Bound.UNKNOWN
    return Bound.FRAMEWORK if point.regime is Regime.FRAMEWORK_BOUND else Bound.OTHER


def _value(series: str, point: Point) -> str | int:
    found = point.configuration.get(series)
    # DistilBERT has a fixed depth, so it is no number of an option
    return found if isinstance(found, str | int) else point.configuration.workload


def _natural(name: str) -> tuple[tuple[int, int, str], ...]:
    """Backends in the paper's order, numbers by size, also within names: ResNet-50 before ResNet-101."""
    if name in _BACKENDS:
        return ((0, _BACKENDS.index(name), ""),)
    parts = re.findall(r"\d+|\D+", name)
    return tuple((1, int(part), "") if part.isdigit() else (2, 0, part) for part in parts)

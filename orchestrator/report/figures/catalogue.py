"""Which figures and tables the paper has: their panels, in words, and the sweeps whose points they show.

Figure 2 is a drawing of two timelines, which nothing measures.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from orchestrator.errors import ConfigurationError, did_you_mean
from orchestrator.report.palette import backend_label

Where = Mapping[str, Any]
"""Values of configurations; a tuple stands for any of its own."""


class Kind(Enum):
    """How a figure is drawn: one module each."""

    MACS = "latency against multiply-adds"
    SPLIT = "latency split into kernels and overhead"
    LINES = "latency against the size of the input"
    PAIRS = "the same of several models, and their ratios"
    GENERATIONS = "the same of several GPUs"
    SIZES = "table 1"
    HARDWARE = "table 2"
    FRAMEWORKS = "table 3"


class Y(Enum):
    """What a panel has upwards; the value is its label."""

    LATENCY = "latency, ms"
    RATIO = "times as fast"
    FLOPS = "arithmetic, TFLOP/s"


@dataclass(frozen=True)
class PanelSpec:
    title: str
    where: Where
    series: str = "backend"
    """What its lines differ in: a field of configurations or an option."""
    x: str = "batch"
    y: Y = Y.LATENCY
    table_1: bool = False
    """Whether the latencies of the paper's table 1 belong into it."""


@dataclass(frozen=True)
class Spec:
    """One figure or table."""

    name: str
    """As `--figures` has it: `4` or `table-1`."""
    kind: Kind
    title: str
    sweeps: tuple[str, ...]
    """Files below `sweeps/paper`, without their ending."""
    gpu: str | None = None
    """A word of the model that the paper used; null where it does not say, or used several."""
    rows: tuple[tuple[PanelSpec, ...], ...] = ()
    baseline: str | None = None
    """Of pairs: the model that the others are compared with."""

    @property
    def stem(self) -> str:
        """Of its files: `figure-4` or `table-1`."""
        return self.name if self.is_table else f"figure-{self.name}"

    @property
    def label(self) -> str:
        """As the paper calls it: Figure 4."""
        return self.stem.replace("-", " ").capitalize()

    @property
    def is_table(self) -> bool:
        return self.name.startswith("table-")

    @property
    def panels(self) -> tuple[PanelSpec, ...]:
        return tuple(panel for row in self.rows for panel in row)


_BACKENDS: Final = ("eager", "torchscript", "onnxruntime")
_DTYPES: Final = ("float16", "float32")
_PLAIN: Final = {"sequence_length": 128}
_RESNETS: Final = ("resnet18", "resnet50", "resnet101", "resnet152")
_VITS: Final = ("vit-base-16", "vit-large-16", "vit-base-32", "vit-large-32")


def _by_dtype(what: str, where: Where, **more: Any) -> tuple[PanelSpec, ...]:
    return tuple(PanelSpec(f"{what}, {dtype}", {**where, "dtype": dtype}, **more) for dtype in _DTYPES)


def _by_backend(what: str, where: Where, series: str, y: Y = Y.LATENCY) -> tuple[PanelSpec, ...]:
    return tuple(
        PanelSpec(f"{what}, {backend_label(backend)}", {**where, "backend": backend}, series, y=y)
        for backend in _BACKENDS
    )


def _pairs(*dtypes: str | None, ys: tuple[Y, ...] = tuple(Y)) -> tuple[tuple[PanelSpec, ...], ...]:
    """Of each dtype latencies, ratios and what use is made of the device."""
    found = []
    for dtype in dtypes:
        where = {} if dtype is None else {"dtype": dtype}
        found += [_by_backend(dtype or "images", where, "workload", y) for y in ys]
    return tuple(found)


_ALL: Final = (
    Spec(
        "1", Kind.MACS, "Latency against multiply-adds, PyTorch", ("figure_1",), "2080 Ti",
        rows=(tuple(PanelSpec(f"batch {batch}", {"batch": batch}, "workload", "macs") for batch in (1, 8, 64)),),
    ),
    Spec(
        "3", Kind.SPLIT, "BERT-Base in PyTorch: the time of kernels and the rest", ("figure_3",), "RTX 8000",
        rows=(_by_dtype("BERT-Base", {}, table_1=True),),
    ),
    Spec(
        "4", Kind.LINES, "Latency against batch and sequence length by framework", ("figure_4",), "RTX 8000",
        rows=(
            _by_dtype("BERT-Base", {"workload": "bert-base", **_PLAIN}, table_1=True),
            _by_dtype("BERT-Base", {"workload": "bert-base", "batch": 1}, x="sequence_length", table_1=True),
            _by_dtype("ResNet-50", {"workload": "resnet50"}),
        ),
    ),
    Spec(
        "5", Kind.LINES, "BERT-Base on padded batches: CUDA graphs and nested tensors", ("figure_5",), "RTX 8000",
        rows=((PanelSpec("BERT-Base, lengths as in the Penn Treebank", {}),),),
    ),
    Spec(
        "6", Kind.LINES, "BERT in depth and in width", ("figure_6",), "RTX 8000",
        rows=(
            _by_backend("depth", {"workload": ("bert", "distilbert"), "hidden_size": (768, None)}, "layers"),
            _by_backend("width", {"workload": "bert", "layers": 12}, "hidden_size"),
        ),
    ),
    Spec(
        "7", Kind.PAIRS, "Funnel Transformer and BERT-Base", ("figure_7",), "RTX 8000", baseline="bert-base",
        rows=_pairs(*_DTYPES, ys=(Y.LATENCY, Y.RATIO)),
    ),
    Spec(
        "8", Kind.PAIRS, "SqueezeBERT, MobileBERT and BERT-Base", ("figure_8",), "RTX 8000", baseline="bert-base",
        rows=_pairs(*_DTYPES),
    ),
    Spec(
        "9", Kind.GENERATIONS, "Generations of GPUs, PyTorch", ("figure_9",),
        rows=(
            _by_dtype("BERT-Base", {"workload": "bert-base", **_PLAIN}, series="gpu"),
            _by_dtype("ResNet-50", {"workload": "resnet50"}, series="gpu"),
        ),
    ),
    Spec(
        "10", Kind.LINES, "GPT-2 writes 16 tokens", ("figure_10",), "RTX 8000",
        rows=(_by_dtype("GPT-2, 16 tokens", {}),),
    ),
    Spec(
        "11", Kind.LINES, "Models of images in depth and in width", ("figure_11",), "RTX 8000",
        rows=(
            _by_backend("ResNets, depth", {"workload": _RESNETS}, "workload"),
            _by_backend("ResNet-50, width", {"workload": ("resnet50", "wide-resnet50")}, "workload"),
            _by_backend("ViT", {"workload": _VITS}, "workload"),
        ),
    ),
    Spec(
        "12", Kind.PAIRS, "Efficient models of images and ResNet-50", ("figure_12",), "RTX 8000", baseline="resnet50",
        rows=_pairs(None),
    ),
    Spec(
        "13", Kind.LINES, "WavLM on 2 s of sound", ("figure_13",), "RTX 8000",
        rows=((PanelSpec("WavLM, 2 s at 16 kHz", {}),),),
    ),
    Spec("table-1", Kind.SIZES, "BERT in PyTorch by size and input", ("table_1", "table_1_legacy"), "RTX 8000"),
    Spec("table-2", Kind.HARDWARE, "Hardware", ("figure_9",)),
    Spec("table-3", Kind.FRAMEWORKS, "BERT-Base at batch 1 by framework", ("table_3", "table_3_legacy"), "RTX 8000"),
)  # fmt: skip
FIGURES: Final[Mapping[str, Spec]] = {spec.name: spec for spec in _ALL}
"""By name, in the paper's order, the tables last."""


def chosen(names: tuple[str, ...]) -> tuple[Spec, ...]:
    """The figures of names, in the paper's order; all of them without a name.

    Raises:
        ConfigurationError: the paper has no such figure, or it is a drawing.
    """
    wanted = [name.strip().lower().replace("_", "-").removeprefix("figure-") for name in names]
    for name, given in zip(wanted, names, strict=True):
        if name == "2":
            raise ConfigurationError("figure 2 is a drawing of two timelines; nothing measures it", key="--figures")
        if name not in FIGURES:
            raise ConfigurationError(f"the paper has no {given}; {did_you_mean(name, FIGURES)}", key="--figures")
    return tuple(spec for spec in _ALL if not wanted or spec.name in wanted)

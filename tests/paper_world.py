"""The made-up lab with all that the paper's sweeps ask for: what its figures are drawn from in tests."""

from collections.abc import Sequence
from pathlib import Path

from orchestrator.config import load_sweep
from orchestrator.planning import PlanningHost, specifications, unique
from runners.contract import STANDARD, TrialSpec
from tests import world
from tests.machines import System
from tests.world import Model

SWEEPS = Path(__file__).parents[1] / "sweeps" / "paper"
MODELS = {
    "bert-large": Model(578, 79.0),
    "albert-base": Model(290, 22.35, 0.95),
    "fnet-base": Model(190, 17.4, 0.9),
    "gpt2-generate": Model(290 * 16, 4.0, 0.6),
    "resnet18": Model(62, 3.64, 0.7),
    "resnet101": Model(345, 15.6, 0.7),
    "resnet152": Model(515, 23.0, 0.7),
    "wide-resnet50": Model(175, 22.8, 0.75),
    "densenet161": Model(569, 15.5, 0.5),
    "mobilenet-v2": Model(155, 0.63, 0.3),
    "shufflenet-v2": Model(170, 0.29, 0.25),
    "squeezenet1-0": Model(66, 1.64, 0.5),
    "vgg16": Model(39, 31.0, 0.8),
    "mnasnet1-0": Model(152, 0.65, 0.3),
    "efficientnetv2-m": Model(780, 10.7, 0.4),
    "efficientnet-lite1": Model(190, 1.2, 0.35),
    "gernet-m": Model(110, 6.0, 0.6),
    "vit-base-16": Model(290, 35.0),
    "vit-large-16": Model(578, 123.0),
    "vit-base-32": Model(290, 8.8),
    "vit-large-32": Model(578, 30.6),
    "wavlm-base": Model(620, 14.0, 0.8),
}
"""Operations and arithmetic of the models of figures that `tests.world` does not need: of the real order."""
SPEEDS = {"fastpath": 2.0, "sdpa_nested": 1.1}


def add_models() -> None:
    """Adds them to the made-up lab."""
    world.MODELS.update(MODELS)
    world.SPEEDS.update(SPEEDS)
    world.FUSION.update({"fastpath": 0.35, "sdpa_nested": 0.4})


def paper_design(system: System) -> Sequence[TrialSpec]:
    """All points of the paper's sweeps that a GPU is asked for; on a processor, in float32, batches up to 8 alone."""
    host = PlanningHost(system.host, {}, tuple(range(8)), {})
    sweeps = [load_sweep(path) for path in sorted(SWEEPS.glob("*.yaml"))]
    found = unique(
        spec
        for sweep in sweeps
        if sweep.protocol.procedure == STANDARD
        for spec in specifications(sweep.model_copy(update=_on(system)), host)
    )
    return [one for one in found if system.is_gpu or one.workload.batch <= 8]


def _on(system: System) -> dict[str, object]:
    return {} if system.is_gpu else {"device": "cpu", "dtypes": ("float32",), "threads": (8,)}

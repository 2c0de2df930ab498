"""Settings: the machine and the software that the numbers of one figure come from, never a mixture."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from orchestrator.analysis.axes import AXES, values_of
from orchestrator.analysis.paper.wanted import Configuration, Wanted, configuration_of

Row = dict[str, Any]
Cells = Mapping[Configuration, Sequence[Row]]
"""Trials by what they measure."""

_NAMES: Final = (
    "device",
    "gpu",
    "cpu",
    "hw",
    "system",
    "environment",
    "environment_id",
    "isolation",
    "method",
    "threads",
)
_AXES: Final = tuple(AXES[name] for name in _NAMES)
_ENOUGH: Final = 0.5
"""The paper's own GPU is drawn if it has at least this share of the points of the one that has most."""


@dataclass(frozen=True)
class Setting:
    """What all points of a figure share."""

    device: str
    """`cpu` or `cuda`."""
    gpu: str
    cpu: str
    hw: str
    system: str
    """Hardware, kernel, driver and settings: another driver is another setting."""
    environment: str
    environment_id: str
    isolation: str
    method: int
    threads: int

    @property
    def machine(self) -> str:
        """What computes, in words."""
        return self.cpu if self.device == "cpu" else self.gpu

    @property
    def text(self) -> str:
        """Machine and software in words."""
        threads = f"{self.threads} thread{'' if self.threads == 1 else 's'}"
        return f"{self.machine}, {self.environment}, {self.isolation}, {threads}"


def setting_of(row: Row) -> Setting:
    """The setting of a trial."""
    values: tuple[Any, ...] = values_of(row, _AXES)
    return Setting(*values)


def by_setting(rows: Sequence[Row]) -> dict[Setting, dict[Configuration, list[Row]]]:
    """Trials by setting, and by configuration within it."""
    found: dict[Setting, dict[Configuration, list[Row]]] = {}
    for row in rows:
        found.setdefault(setting_of(row), {}).setdefault(configuration_of(row), []).append(row)
    return found


def newest(cells: Cells, started: Mapping[str, datetime]) -> datetime:
    """When the last campaign of trials started."""
    return max(started[row["campaign_id"]] for rows in cells.values() for row in rows)


def choose(
    settings: Mapping[Setting, Cells], wanted: Wanted, gpu: str | None, started: Mapping[str, datetime]
) -> Setting | None:
    """The setting that a figure is drawn from; null if none has any of its points.

    GPUs come before processors, because the paper is about them. Among them the paper's own comes first if it has at
    least half the points of the one that has most; then the one with most points; then the newest.

    Args:
        settings: trials by setting and configuration.
        wanted: the points of the figure.
        gpu: a word that the model of the paper's GPU has.
        started: when each campaign started.
    """
    points = {one: points_measured(one, cells, wanted) for one, cells in settings.items()}
    candidates = [one for one in settings if points[one]]
    on_gpus = [one for one in candidates if one.device != "cpu"]
    candidates = on_gpus or candidates
    if not candidates:
        return None
    most = max(points[one] for one in candidates)

    def rank(one: Setting) -> tuple[bool, int, datetime, str]:
        is_the_papers = gpu is not None and names_model(gpu, one.gpu) and points[one] >= _ENOUGH * most
        return is_the_papers, points[one], newest(settings[one], started), one.system

    return max(candidates, key=rank)


def newest_by_gpu(
    settings: Mapping[Setting, Cells], wanted: Wanted, started: Mapping[str, datetime]
) -> dict[str, Setting]:
    """Of each model of GPU the setting that a figure of generations is drawn from."""
    models = {one.gpu for one in settings if one.device != "cpu"}
    found = {
        model: choose({one: cells for one, cells in settings.items() if one.gpu == model}, wanted, None, started)
        for model in sorted(models)
    }
    return {model: one for model, one in found.items() if one is not None}


def points_measured(setting: Setting, cells: Cells, wanted: Wanted) -> int:
    """How many points of a figure were measured in a setting."""
    return sum(any(row["status"] == "ok" for row in cells.get(one, ())) for one in wanted.on(setting.device))


def names_model(word: str, model: str) -> bool:
    """Whether a word names a model: `A100` is in `NVIDIA A100-PCIE-40GB`, and not in `NVIDIA A1000`."""
    letters = "".join(one if one.isalnum() else " " for one in model.lower()).split()
    wanted = "".join(one if one.isalnum() else " " for one in word.lower()).split()
    length = len(wanted)
    return any(letters[start : start + length] == wanted for start in range(len(letters) - length + 1))

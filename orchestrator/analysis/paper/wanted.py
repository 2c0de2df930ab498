"""What a figure of the paper needs: the points of its sweep. So the sweep file alone says when a figure is complete."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from orchestrator.analysis.axes import backend_text
from orchestrator.config import Sweep
from orchestrator.planning import PlanningHost, specifications, unique
from runners.contract import Protocol, WorkloadSpec
from runners.contract.catalogue import BACKENDS, WORKLOADS, resolve_workload_options

HALF, SINGLE = "float16", "float32"
Value = str | int | bool | None


@dataclass(frozen=True)
class Work:
    """What is computed and how it is executed; not where, and not how long it was measured."""

    workload: str
    options: tuple[tuple[str, Value], ...]
    """All options of the workload by name, the defaults written out."""
    batch: int
    sequence_length: int | None
    image_size: int | None
    backend: str
    """As the axis `backend` has it, with the options that are not at defaults."""
    dtype: str

    def get(self, name: str) -> Value:
        """One of its values: a field, or an option of the workload; null if it has none such."""
        if name in self.__dataclass_fields__:
            value: Value = getattr(self, name)
            return value
        return dict(self.options).get(name)

    def meets(self, where: Mapping[str, Value | tuple[Value, ...]]) -> bool:
        """Whether it has these values; a tuple stands for any of its own."""
        return all(
            self.get(name) in wanted if isinstance(wanted, tuple) else self.get(name) == wanted
            for name, wanted in where.items()
        )


@dataclass(frozen=True)
class Wanted:
    """The points of a figure."""

    sweeps: tuple[Sweep, ...]
    configurations: tuple[Work, ...]

    def on(self, device: str) -> tuple[Work, ...]:
        """The points as a device is asked for them.

        On processors float16 is slow or emulated, so that nobody serves models in it. A figure that the paper has in
        float16 alone is drawn in float32 there; where it has both, float16 stays missing.
        """
        if device != "cpu" or not self.in_float32_on_a_cpu:
            return self.configurations
        return tuple(replace(configuration, dtype=SINGLE) for configuration in self.configurations)

    @property
    def in_float32_on_a_cpu(self) -> bool:
        """Whether float32 takes the place of float16 on processors."""
        return {configuration.dtype for configuration in self.configurations} == {HALF}

    @property
    def rounds(self) -> int:
        """Processes per point that the paper's sweeps have."""
        return min(sweep.planned_rounds for sweep in self.sweeps)

    @property
    def series_ms(self) -> int:
        """The shortest time for a series of latencies that the paper's sweeps have, in milliseconds."""
        return min(series_ms(sweep.protocol) for sweep in self.sweeps)


def series_ms(protocol: Protocol) -> int:
    """The time for the shortest series of latencies that a protocol measures, in milliseconds."""
    in_turns = min(protocol.sync_budget_ms, protocol.cycles * protocol.turn_ms)
    return min(in_turns, protocol.pipelined_budget_ms or in_turns)


def wanted_of(*sweeps: Sweep) -> Wanted:
    """The points of sweeps, each once, in their order."""
    host = PlanningHost("any", {}, (0,), {})
    specs = unique(spec for sweep in sweeps for spec in specifications(sweep, host))
    found = {
        _configuration(
            spec.workload.name,
            spec.workload.batch,
            spec.workload.sequence_length,
            spec.workload.image_size,
            json.dumps(spec.workload.options, sort_keys=True),
            spec.backend.name,
            json.dumps(spec.backend.options, sort_keys=True),
            spec.dtype,
        )
        for spec in specs
    }
    return Wanted(sweeps, tuple(sorted(found, key=_sorting)))


def configuration_of(row: Mapping[str, Any]) -> Work:
    """What a trial measures."""
    names = ("workload", "batch", "sequence_length", "image_size", "workload_options", "backend", "backend_options")
    return _configuration(*(row[name] for name in names), row["dtype"])


def impossible(configuration: Work, device: str) -> str | None:
    """Why a device cannot have a point at all; null if it can."""
    info = BACKENDS.get(configuration.backend.partition("(")[0])
    is_for_gpus = device == "cpu" and "cuda_graph=True" in configuration.backend
    if is_for_gpus or (info is not None and device not in info.devices):
        return f"{configuration.backend} is for GPUs alone"
    if device == "cpu" and configuration.dtype == HALF:
        return "float16 is measured on GPUs alone"
    return None


@lru_cache(maxsize=65536)
def _configuration(
    workload: str,
    batch: int,
    sequence_length: int | None,
    image_size: int | None,
    options: str | None,
    backend: str,
    backend_options: str,
    dtype: str,
) -> Work:
    given = json.loads(options or "{}")
    if workload in WORKLOADS:
        # Rows that are older than an option had its default.
        given |= resolve_workload_options(WorkloadSpec(workload, batch, sequence_length, image_size, given))
    if given.get("intermediate_size") and given["intermediate_size"] == 4 * given.get("hidden_size", 0):
        # what 0, the default, stands for
        given["intermediate_size"] = 0
    named = tuple(sorted(given.items()))
    text = backend_text(backend, backend_options)
    return Work(workload, named, batch, sequence_length, image_size, text, dtype)


def _sorting(configuration: Work) -> tuple[object, ...]:
    sizes = (configuration.batch, configuration.sequence_length or 0, configuration.image_size or 0)
    return configuration.workload, str(configuration.options), configuration.backend, configuration.dtype, *sizes

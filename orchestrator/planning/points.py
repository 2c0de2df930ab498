"""The points of a sweep's parameter space."""

import itertools
from collections.abc import Iterable, Iterator

from orchestrator.config.sweep import BackendAxis, Sweep, WorkloadAxis
from orchestrator.planning.model import PlanningHost
from runners.contract import BackendSpec, TrialSpec, WorkloadSpec, digest
from runners.contract.catalogue import WORKLOADS


def specifications(sweep: Sweep, host: PlanningHost) -> Iterator[TrialSpec]:
    points = itertools.product(sweep.workloads, sweep.backends, sweep.dtypes, sweep.threads)
    for axis, backend, dtype, threads in points:
        for workload in _shapes(axis):
            yield TrialSpec(
                workload=workload,
                backend=_backend(backend),
                dtype=dtype,
                device=sweep.device,
                threads=len(host.cores_for(sweep.device)) if threads == "all" else threads,
                seed=sweep.seed,
                protocol=sweep.protocol,
            )


def unique(specs: Iterable[TrialSpec]) -> list[TrialSpec]:
    """The specifications without repetitions, in their order."""
    return list({digest(spec): spec for spec in reversed(list(specs))}.values())[::-1]


def _shapes(axis: WorkloadAxis) -> Iterator[WorkloadSpec]:
    for name in axis.name:
        info = WORKLOADS[name]
        sequences = axis.sequence_length or (info.sequence_length,)
        images = axis.image_size or (info.image_size,)
        points = itertools.product(axis.batch, sequences, images, axis.option_points(name))
        for batch, sequence_length, image_size, options in points:
            yield WorkloadSpec(name, batch, sequence_length, image_size, options)


def _backend(axis: BackendAxis) -> BackendSpec:
    return BackendSpec(axis.name, axis.all_options())

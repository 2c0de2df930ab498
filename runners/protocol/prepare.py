"""The first process of a trial, needed only when the cache lacks something: reference and artifact.

It is a process of its own because exporters and float64 models leave memory, threads and caches behind that
must not be there when the backend is measured.
"""

import os
import time
from dataclasses import asdict, replace
from typing import Any, Dict, cast

from runners.backends import make_backend
from runners.backends.base import Backend
from runners.contract import Phases, Status, TrialSpec
from runners.protocol.answer import Answer
from runners.protocol.cache import CacheEntries, Entry
from runners.protocol.verify import INPUTS, Reference
from runners.workloads import make_workload
from runners.workloads.base import Arithmetic, Errors, Workload

_DOCUMENT = "document"


def missing(backend: Backend, cached: CacheEntries) -> bool:
    """Whether a process has to prepare anything."""
    return not cached.reference.exists or (backend.has_artifact and not cached.artifact.exists)


def prepare(spec: TrialSpec, cached: CacheEntries, workspace: str) -> Answer:
    """Makes what is missing; runs in a process of its own.

    Args:
        spec: the trial.
        cached: where the results go.
        workspace: a directory on the file system of the cache; whoever starts the process removes it.
    """
    workload = make_workload(spec)
    reference_workload = make_workload(replace(spec, workload=replace(spec.workload, batch=cached.reference_batch)))
    # All cores: these results are not timed
    workload.set_threads(len(os.sched_getaffinity(0)))
    reference_s = artifact_s = None
    if not cached.reference.exists:
        start = time.perf_counter()
        directory = _subdirectory(workspace, "reference")
        _make_reference(reference_workload, os.path.join(directory, _DOCUMENT))
        cached.reference.publish(directory)
        reference_s = time.perf_counter() - start
    backend = make_backend(workload)
    if backend.has_artifact and not cached.artifact.exists:
        start = time.perf_counter()
        directory = _subdirectory(workspace, "artifact")
        facts = backend.make_artifact(directory)
        workload.arithmetic.save({"facts": facts}, os.path.join(directory, _DOCUMENT))
        cached.artifact.publish(directory)
        artifact_s = time.perf_counter() - start
    return Answer(status=Status.OK, phases=Phases(reference_s=reference_s, artifact_s=artifact_s))


def load_reference(workload: Workload, entry: Entry) -> Reference:
    """Reads what an earlier process computed, perhaps for a larger batch: the rows of this one come first."""
    arithmetic = workload.arithmetic
    document = arithmetic.load(entry.file(_DOCUMENT))
    rows = min(workload.spec.workload.batch, document["rows"])
    return Reference(
        outputs=tuple(arithmetic.first_rows(tuple(outputs), rows) for outputs in document["outputs"]),
        form=arithmetic.form(arithmetic.first_rows(tuple(document["example"]), rows)),
        rows=rows,
        eager=tuple(tuple(Errors(**error) for error in errors) for errors in document["eager"]),
        facts=document["facts"],
    )


def load_artifact_facts(arithmetic: Arithmetic, entry: Entry) -> Dict[str, Any]:
    """What the process that made the artifact recorded about it."""
    return cast("Dict[str, Any]", arithmetic.load(entry.file(_DOCUMENT))["facts"])


def _make_reference(workload: Workload, path: str) -> None:
    model = workload.reference_model()
    facts = dict(workload.facts(model), **workload.cost(model))
    eager = [workload.reference(index, model, double=False) for index in range(INPUTS)]
    exact = [workload.reference(index, model, double=True) for index in range(INPUTS)]
    arithmetic = workload.arithmetic
    errors = [arithmetic.errors(got, right) for got, right in zip(eager, exact)]
    document = {
        "outputs": exact,
        "example": eager[0],
        "eager": [[asdict(error) for error in each] for each in errors],
        "facts": facts,
        "rows": workload.spec.workload.batch,
    }
    arithmetic.save(document, path)


def _subdirectory(workspace: str, name: str) -> str:
    directory = os.path.join(workspace, name)
    os.makedirs(directory)
    return directory

"""Check 7: does the gate refuse TF32 in float32, and does eager in 16 bits pass it on deep networks?"""

import os
from typing import Any, Dict, Tuple

from runners.backends import make_backend
from runners.check.running import Context, Findings, forked
from runners.check.subjects import RESNET, sized, spec_of
from runners.contract import TrialSpec, WorkloadSpec
from runners.protocol.verify import INPUTS, Reference
from runners.protocol.verify import check as verified
from runners.workloads import make_workload

_GEMM = WorkloadSpec("op-gemm", 1, options={"width": 2048})
_DEEP = (
    WorkloadSpec("bert-large", 1, sequence_length=128),
    WorkloadSpec("resnet152", 1, image_size=224),
    WorkloadSpec("densenet161", 1, image_size=224),
)
_HALF = ("float16", "bfloat16")


def check(context: Context) -> Findings:
    """By trial: errors of eager, and what the gate says with TF32 on and off."""
    found = Findings()
    for workload in (_GEMM, RESNET):
        spec = spec_of(sized(workload, context.size))
        values = _one(found, context, workload.name + " float32", spec, tf32=True)
        if values is not None:
            found.require(values["passed_without_tf32"], "%s: float32 does not pass" % workload.name)
            # Matrices of an operator are TF32 as a whole; in a deep network the sums may hide it
            found.require(
                not values["passed_with_tf32"] or values["relative_l2_with_tf32"] < 2 * values["relative_l2"],
                "%s: TF32 passes as float32, with an error of %.3g" % (workload.name, values["relative_l2_with_tf32"]),
            )
    for workload in _DEEP[:1] if context.size.is_small else _DEEP:
        for dtype in _HALF:
            values = _one(
                found,
                context,
                "%s %s" % (workload.name, dtype),
                spec_of(sized(workload, context.size), dtype),
                tf32=False,
            )
            if values is not None:
                found.require(
                    values["passed"], "%s: eager %s fails the gate: %s" % (workload.name, dtype, values["problem"])
                )
    return found


def _one(found: Findings, context: Context, name: str, spec: TrialSpec, tf32: bool) -> Any:
    if context.left_s < 10:
        found.problems.append("%s: no time was left" % name)
        return None
    values, problem = forked((lambda: _with_and_without(spec)) if tf32 else (lambda: _gate(spec)), context.within(60))
    found.values[name] = values
    found.require(problem is None, "%s: %s" % (name, problem))
    return values


def _with_and_without(spec: TrialSpec) -> Dict[str, Any]:
    import torch

    call, reference, backend = _trial(spec)
    plain = _errors(backend, call, reference)
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cudnn.allow_tf32 = True
    rounded = _errors(backend, call, reference)
    return {
        "passed_without_tf32": plain["passed"],
        "relative_l2": plain["relative_l2"],
        "passed_with_tf32": rounded["passed"],
        "relative_l2_with_tf32": rounded["relative_l2"],
    }


def _gate(spec: TrialSpec) -> Dict[str, Any]:
    call, reference, backend = _trial(spec)
    return _errors(backend, call, reference)


def _trial(spec: TrialSpec) -> Tuple[Any, Reference, Any]:
    workload = make_workload(spec)
    workload.set_threads(len(os.sched_getaffinity(0)))
    reference_model = workload.reference_model()
    eager = [workload.reference(index, reference_model, double=False) for index in range(INPUTS)]
    exact = [workload.reference(index, reference_model, double=True) for index in range(INPUTS)]
    arithmetic = workload.arithmetic
    reference = Reference(
        outputs=tuple(exact),
        form=arithmetic.form(eager[0]),
        rows=spec.workload.batch,
        eager=tuple(arithmetic.errors(got, right) for got, right in zip(eager, exact)),
        facts={},
    )
    backend = make_backend(workload)
    return backend.load(backend.build(), None), reference, backend


def _errors(backend: Any, call: Any, reference: Reference) -> Dict[str, Any]:
    with backend.execution():
        outputs = [backend.outputs(call(*backend.workload.inputs(index))) for index in range(INPUTS)]
    checked = verified(backend.workload.arithmetic, backend.spec.dtype, outputs, reference, after_timing=False)
    seen = checked.verification
    return {
        "passed": checked.problem is None,
        "problem": checked.problem,
        "relative_l2": None if seen is None else seen.relative_l2,
        "cosine": None if seen is None else seen.cosine,
        "max_abs_error": None if seen is None else seen.max_abs_error,
    }

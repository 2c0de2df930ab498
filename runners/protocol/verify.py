"""The correctness gate: a fast wrong answer is not a result.

A backend is compared, output by output and for two inputs, with eager in float64. Eager's own error in the
trial's dtype is the yardstick: no backend has to be better than a few times that. The tolerance is a floor
under the yardstick, for models whose eager error happens to be small.

The floor for float32 lies between two measurements. Of all workloads on all backends of a CPU (docs/coverage.md) the
relative error was at most 3e-6, but for ONNX Runtime's Fourier transform in FNet, 1.6e-4: imprecise, but the same
function. Matrices rounded to TF32 or bfloat16, which a backend must not do in silence, made it 3.4e-4 to 7.2e-4, or
seven to eight times that, in five models (benchmarks/rounded_matrices.py); a wrong operator makes it 0.02 and more. Of
float16 and bfloat16 only small models were measured (9e-4 and 6e-3 for eager).

A relative error e implies a cosine of at least sqrt(1 - e^2), so that a limit of its own is left to the backends that
give up accuracy by design.
"""

from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Sequence, Tuple

from runners.contract import Verification
from runners.contract.record import FactValue
from runners.workloads.base import Arithmetic, Errors, Tolerance

INPUTS = 2

_TOLERANCE = {"float32": Tolerance(2.5e-4), "float16": Tolerance(5e-3), "bfloat16": Tolerance(2e-2)}
_EAGER_FACTOR = 5.0

Outputs = Tuple[Any, ...]


@dataclass(frozen=True)
class Reference:
    """What is right: outputs in float64 for each input, and eager's errors in the trial's dtype."""

    outputs: Tuple[Outputs, ...]
    form: str
    """Shapes and dtypes of the outputs in the trial's dtype."""
    rows: int
    """How many examples it covers, from the first."""
    eager: Tuple[Tuple[Errors, ...], ...]
    """Per input, per output."""
    facts: Dict[str, FactValue]
    """Properties of the model."""


@dataclass(frozen=True)
class Check:
    """A verdict over all inputs, and why it is negative."""

    verification: Optional[Verification]
    """None if the outputs cannot be compared: another form, or numbers that are not finite."""
    problem: Optional[str]


def check(
    arithmetic: Arithmetic,
    dtype: str,
    outputs: Sequence[Outputs],
    reference: Reference,
    after_timing: bool,
    tolerance: Optional[Tolerance] = None,
) -> Check:
    """Compares the outputs for each input with the reference.

    Args:
        arithmetic: of the workload.
        dtype: of the trial; decides the limits unless `tolerance` does.
        outputs: per input, with at least as many rows as the reference has.
        reference: what is right.
        after_timing: which of the two checks this is.
        tolerance: of a backend that gives up accuracy by design.
    """
    for index, result in enumerate(outputs):
        form = arithmetic.form(arithmetic.first_rows(result, reference.rows))
        if form != reference.form:
            return Check(None, "input %d: the outputs are %s, not %s" % (index, form, reference.form))
        if not arithmetic.finite(result):
            return Check(None, "input %d: an output is not finite" % index)
    rows = [arithmetic.first_rows(result, reference.rows) for result in outputs]
    errors = [arithmetic.errors(got, right) for got, right in zip(rows, reference.outputs)]
    distinguished = not arithmetic.same(rows[0], rows[1])
    problem = _first_problem(tolerance or _TOLERANCE[dtype], errors, reference.eager)
    if problem is None and not distinguished:
        problem = "two different inputs gave the same outputs"
    everything = [error for each in errors for error in each]
    eager = [error for each in reference.eager for error in each]
    verification = Verification(
        passed=problem is None,
        max_abs_error=max(e.max_abs_error for e in everything),
        relative_l2=max(e.relative_l2 for e in everything),
        cosine=min(e.cosine for e in everything),
        eager_max_abs_error=max(e.max_abs_error for e in eager),
        eager_relative_l2=max(e.relative_l2 for e in eager),
        inputs_distinguished=distinguished,
        after_timing=after_timing,
    )
    return Check(verification, problem)


def limits(tolerance: Tolerance, eager: Errors, max_abs_reference: float) -> Dict[str, float]:
    """The largest errors that pass."""
    return {
        "relative_l2": max(tolerance.relative_l2, _EAGER_FACTOR * eager.relative_l2),
        "max_abs_error": max(tolerance.relative_l2 * max_abs_reference, _EAGER_FACTOR * eager.max_abs_error),
    }


def _first_problem(
    tolerance: Tolerance, errors: List[Tuple[Errors, ...]], eager: Sequence[Tuple[Errors, ...]]
) -> Optional[str]:
    for index, (per_output, yardsticks) in enumerate(zip(errors, eager)):
        for output, (error, yardstick) in enumerate(zip(per_output, yardsticks)):
            where = "input %d, output %d: " % (index, output)
            for name, limit in limits(tolerance, yardstick, error.max_abs_reference).items():
                # Not a number is above every limit
                if not getattr(error, name) <= limit:
                    return where + "%s is %.3g, above %.3g" % (name, getattr(error, name), limit)
            if tolerance.min_cosine is not None and not error.cosine >= tolerance.min_cosine:
                return where + "cosine is %.6f, below %s" % (error.cosine, tolerance.min_cosine)
    return None

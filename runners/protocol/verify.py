"""The correctness gate: a fast wrong answer is not a result.

A backend is compared, output by output and for two inputs, with eager in float64. Eager's own error in the
trial's dtype is the yardstick: no backend has to be better than a few times that. The tolerance is a floor
under the yardstick, for models whose eager error happens to be small.

The floor for float32 comes from measurements: the relative error of BERT-base, DistilBERT and ResNet-50 was
3e-7 to 8e-7 in eager, TorchScript and ONNX Runtime alike, so 1e-5 leaves a factor of ten for other kernels, and
is still far below what a wrong operator does. Of float16 and bfloat16 only small models were measured (9e-4 and
6e-3 for eager).
"""

from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Sequence, Tuple

from runners.contract import Verification
from runners.contract.record import FactValue
from runners.workloads.base import Arithmetic, Errors

INPUTS = 2

_TOLERANCE = {"float32": 1e-5, "float16": 5e-3, "bfloat16": 2e-2}
_EAGER_FACTOR = 5.0
_MIN_COSINE = 0.999

Outputs = Tuple[Any, ...]


@dataclass(frozen=True)
class Reference:
    """What is right: outputs in float64 for each input, and eager's errors in the trial's dtype."""

    outputs: Tuple[Outputs, ...]
    form: str
    """Shapes and dtypes of the outputs in the trial's dtype."""
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
    arithmetic: Arithmetic, dtype: str, outputs: Sequence[Outputs], reference: Reference, after_timing: bool
) -> Check:
    """Compares the outputs for each input with the reference."""
    for index, result in enumerate(outputs):
        form = arithmetic.form(result)
        if form != reference.form:
            return Check(None, "input %d: the outputs are %s, not %s" % (index, form, reference.form))
        if not arithmetic.finite(result):
            return Check(None, "input %d: an output is not finite" % index)
    errors = [arithmetic.errors(got, right) for got, right in zip(outputs, reference.outputs)]
    distinguished = not arithmetic.same(outputs[0], outputs[1])
    problem = _first_problem(dtype, errors, reference.eager)
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


def limits(dtype: str, eager: Errors, max_abs_reference: float) -> Dict[str, float]:
    """The largest errors that pass."""
    tolerance = _TOLERANCE[dtype]
    return {
        "relative_l2": max(tolerance, _EAGER_FACTOR * eager.relative_l2),
        "max_abs_error": max(tolerance * max_abs_reference, _EAGER_FACTOR * eager.max_abs_error),
    }


def _first_problem(dtype: str, errors: List[Tuple[Errors, ...]], eager: Sequence[Tuple[Errors, ...]]) -> Optional[str]:
    for index, (per_output, yardsticks) in enumerate(zip(errors, eager)):
        for output, (error, yardstick) in enumerate(zip(per_output, yardsticks)):
            where = "input %d, output %d: " % (index, output)
            for name, limit in limits(dtype, yardstick, error.max_abs_reference).items():
                # Not a number is above every limit
                if not getattr(error, name) <= limit:
                    return where + "%s is %.3g, above %.3g" % (name, getattr(error, name), limit)
            if not error.cosine >= _MIN_COSINE:
                return where + "cosine is %.6f, below %s" % (error.cosine, _MIN_COSINE)
    return None

"""What passes the correctness gate, and what does not."""

import math
from dataclasses import replace

import pytest

from runners.protocol.verify import Check, Reference, check, limits
from runners.workloads.base import Errors, Tolerance
from runners.workloads.synthetic import ListArithmetic

LISTS = ListArithmetic()
RIGHT = (([[1.0, -2.0, 3.0, 4.0]],), ([[2.0, -1.0, 4.0, 3.0]],))
EXACT = (Errors(0.0, 0.0, 1.0, 4.0),)
REFERENCE = Reference(RIGHT, LISTS.form(RIGHT[0]), 1, (EXACT, EXACT), {})


def verdict(first: list[float], second: list[float], eager: tuple[Errors, ...] = EXACT) -> Check:
    reference = replace(REFERENCE, eager=(eager, eager))
    return check(LISTS, "float32", [([first],), ([second],)], reference, after_timing=False)


@pytest.mark.parametrize(("factor", "passes"), [(1.0, True), (1 + 2e-4, True), (1 + 3e-4, False)])
def test_the_tolerance_is_a_floor_under_eagers_error(factor: float, passes: bool) -> None:
    outcome = verdict(*[[factor * value for value in rows[0]] for (rows,) in RIGHT])
    assert outcome.verification is not None
    assert (outcome.problem is None, outcome.verification.passed) == (passes, passes)
    assert outcome.verification.cosine == pytest.approx(1.0)


def test_eagers_own_error_is_the_yardstick() -> None:
    coarse = (Errors(max_abs_error=1e-3, relative_l2=1e-3, cosine=1.0, max_abs_reference=4.0),)
    assert verdict([1.001, -2.002, 3.003, 4.004], [2.002, -1.001, 4.004, 3.003], coarse).problem is None
    assert limits(Tolerance(1e-5), coarse[0], 4.0) == {"relative_l2": 5e-3, "max_abs_error": 5e-3}


def test_a_network_whose_eager_errs_by_percents_passes_with_an_error_of_that_size() -> None:
    """Deep networks in 16 bits: a fixed floor of the cosine, 0.999, refused eager itself."""
    deep = (Errors(max_abs_error=1.0, relative_l2=0.02, cosine=0.9998, max_abs_reference=4.0),)
    outcome = verdict([1.2, -2.0, 3.0, 4.0], [2.0, -1.2, 4.0, 3.0], deep)
    assert outcome.problem is None
    assert outcome.verification is not None
    assert outcome.verification.cosine < 0.9995


def test_one_wrong_number_fails_and_is_named() -> None:
    outcome = verdict([1.0, -2.0, 3.0, 4.0], [2.0, -1.0, 4.0, 3.1])
    assert outcome.problem is not None
    assert outcome.problem.startswith("input 1, output 0: relative_l2 is")
    assert outcome.verification is not None
    assert outcome.verification.max_abs_error == pytest.approx(0.1)
    assert not outcome.verification.passed


def test_a_graph_that_ignores_its_input_fails() -> None:
    baked = RIGHT[0][0][0]
    outcome = verdict(baked, baked)
    assert outcome.verification is not None
    assert not outcome.verification.inputs_distinguished
    assert outcome.problem is not None


def test_same_outputs_fail_even_if_the_reference_is_the_same() -> None:
    reference = replace(REFERENCE, outputs=(RIGHT[0], RIGHT[0]))
    outcome = check(LISTS, "float32", [RIGHT[0], RIGHT[0]], reference, after_timing=True)
    assert outcome.problem == "two different inputs gave the same outputs"


@pytest.mark.parametrize(
    ("first", "problem"),
    [
        ([1.0, -2.0, math.nan, 4.0], "an output is not finite"),
        ([1.0, -2.0], "the outputs are float[1, 2], not float[1, 4]"),
    ],
)
def test_what_is_not_finite_or_of_another_form_is_not_compared(first: list[float], problem: str) -> None:
    assert verdict(first, RIGHT[1][0][0]) == Check(None, "input 0: " + problem)


def test_a_large_batch_is_verified_in_its_first_rows_and_finite_in_all() -> None:
    for last, problem in ((9.0, None), (math.inf, "input 0: an output is not finite")):
        outputs = [([*rows[0], [9.0, 9.0, 9.0, last]],) for rows in RIGHT]
        assert check(LISTS, "float32", outputs, REFERENCE, after_timing=False).problem == problem


def test_a_lossy_backend_has_limits_of_its_own() -> None:
    outputs = [([[1.01 * value for value in rows[0][0]]],) for rows in RIGHT]
    assert check(LISTS, "float32", outputs, REFERENCE, False).problem is not None
    assert check(LISTS, "float32", outputs, REFERENCE, False, Tolerance(0.02, 0.99)).problem is None

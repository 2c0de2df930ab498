"""Schedules of TVM's kernels, searched by MetaSchedule for as long as a budget lasts, and kept beside their log."""

import inspect
import os
import shutil
import tempfile
import time
from typing import Any, List, NamedTuple, Sequence
from unittest import mock

from runners.workloads.base import Unsupported

_CANDIDATES = 8
"""That are built and measured between two looks at the clock."""
_MEASUREMENT_MS = 10
_MEASUREMENT_TIMEOUT_S = 10
_NO_LIMIT = 1_000_000
_SEED = 1
_SPENT = "the tuning budget is spent"


class Search(NamedTuple):
    """What a search was about, and what it found."""

    module: Any
    """The module with the best schedules; kernels without a valid candidate stay as they were."""
    kernels: int
    """Distinct ones that could be tuned."""
    tuned: int
    candidates: int
    """That were tried, those that failed included."""


class _Clock:
    """The budget, from the first candidate on: what MetaSchedule does before takes as long for any budget."""

    def __init__(self, budget_s: float) -> None:
        self._budget_s = budget_s
        self._end = float("inf")
        self.candidates = 0
        self.batches = 0
        """That were built and whose results are not in the database yet."""

    def start(self) -> None:
        if self._end == float("inf"):
            self._end = time.monotonic() + self._budget_s

    @property
    def is_over(self) -> bool:
        return time.monotonic() >= self._end


def search(module: Any, target: Any, directory: str, threads: int, budget_s: float) -> Search:
    """Searches for schedules, and applies the best.

    Args:
        module: of fused kernels.
        target: what they are compiled for.
        directory: gets the database and the logs of MetaSchedule.
        threads: of the search; kernels are measured with those of TVM's pool.
        budget_s: seconds after the first candidate, when no further one is built; those that are built are measured.

    Raises:
        Unsupported: no candidate could be measured.
    """
    import tvm
    from tvm.relax.transform import MetaScheduleApplyDatabase
    from tvm.s_tir import meta_schedule
    from tvm.s_tir.meta_schedule.relax_integration import extract_tasks, extracted_tasks_to_tune_contexts
    from tvm.s_tir.meta_schedule.runner import EvaluatorConfig, LocalRunner

    os.makedirs(directory, exist_ok=True)
    _import_intrinsics()
    clock = _Clock(budget_s)
    # Few candidates at a time, so that the clock is looked at often
    strategy = meta_schedule.search_strategy.EvolutionarySearch(
        population_size=4 * _CANDIDATES, init_min_unmeasured=_CANDIDATES, max_fail_count=2, genetic_num_iters=1
    )
    tasks, weights = extracted_tasks_to_tune_contexts(
        extract_tasks(module, target), directory, strategy=strategy, num_threads=threads, seed=_SEED
    )
    # One process for all candidates: it is replaced when a candidate crashes it or takes too long
    evaluation = EvaluatorConfig(number=1, repeat=1, min_repeat_ms=_MEASUREMENT_MS, enable_cpu_cache_flush=False)
    runner = LocalRunner(timeout_sec=_MEASUREMENT_TIMEOUT_S, evaluator_config=evaluation)
    libraries = tempfile.mkdtemp()
    try:
        meta_schedule.tune_tasks(
            tasks=tasks,
            task_weights=weights,
            work_dir=directory,
            max_trials_global=_NO_LIMIT,
            num_trials_per_iter=_CANDIDATES,
            builder=_builder(libraries, clock),
            runner=runner,
            # A learned model of costs would need XGBoost, which brings libraries of CUDA along
            cost_model="random",
            measure_callbacks=[*meta_schedule.MeasureCallback.create("default"), _deadline(clock)],
        )
    except RuntimeError:
        # As such TVM passes on what its callbacks raise
        if not clock.is_over:
            raise
    finally:
        runner.pool.shutdown()
        shutil.rmtree(libraries)
    database = meta_schedule.database.JSONDatabase(work_dir=directory)
    tuned = sum(1 for task in tasks if _has_schedule(database, task))
    if not tuned:
        raise Unsupported("no schedule was measured within a tuning budget of %d s" % budget_s)
    with target, tvm.transform.PassContext(opt_level=3):
        return Search(MetaScheduleApplyDatabase(directory)(module), len(tasks), tuned, clock.candidates)


def _import_intrinsics() -> None:
    """Imports what MetaSchedule would import, in seconds in place of minutes.

    Each of its hundreds of intrinsics asks for the stack, and Python searches all modules for each frame of it.
    """
    with mock.patch.object(inspect, "getmodule", return_value=None):
        import tvm.s_tir.tensor_intrin  # noqa: F401 - it registers them


def _has_schedule(database: Any, task: Any) -> bool:
    return database.query_tuning_record(task.mod, task.target, task.task_name) is not None


def _builder(directory: str, clock: _Clock) -> Any:
    """Builds candidates in this process.

    TVM's own builder starts a process for each batch, and each of them spends half a minute on the import of TVM and of
    tensor intrinsics.
    """
    import tvm
    from tvm.ir.utils import derived_object
    from tvm.s_tir.meta_schedule.builder import BuilderResult, PyBuilder
    from tvm.s_tir.transform import RemoveWeightLayoutRewriteBlock
    from tvm.support.tar import tar

    prepared = RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)

    def built(candidate: Any) -> Any:
        if clock.is_over:
            return BuilderResult(None, _SPENT)
        path = os.path.join(tempfile.mkdtemp(dir=directory), "candidate." + tar.output_format)
        try:
            tvm.driver.build(prepared(candidate.mod), target=candidate.target).export_library(path, fcompile=tar)
        except Exception as error:  # noqa: BLE001 - a candidate that cannot be built is a result of the search
            return BuilderResult(None, str(error))
        return BuilderResult(path, None)

    class Builder(PyBuilder):  # type: ignore[misc]
        def build(self, candidates: List[Any]) -> List[Any]:
            clock.start()
            results = [built(candidate) for candidate in candidates]
            clock.batches += bool(_tried(results))
            return results

    return derived_object(Builder)()


def _deadline(clock: _Clock) -> Any:
    """Ends the search when the budget is spent and all results are in the database.

    They come late: in the first round MetaSchedule asks for them when it has sent candidates of each kernel.
    """
    from tvm.ir.utils import derived_object
    from tvm.s_tir.meta_schedule.measure_callback import PyMeasureCallback

    class Deadline(PyMeasureCallback):  # type: ignore[misc]
        def apply(self, scheduler: Any, task: int, candidates: Any, built: Any, measured: Any) -> None:
            tried = _tried(built)
            clock.candidates += tried
            clock.batches -= bool(tried)
            if clock.is_over and not clock.batches:
                raise TimeoutError(_SPENT)

    return derived_object(Deadline)()


def _tried(built: Sequence[Any]) -> int:
    return sum(1 for result in built if result.error_msg != _SPENT)

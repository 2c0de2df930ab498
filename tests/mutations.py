"""Faults seeded into a copy of the product, one at a time: do the tests find each?

python -m tests.mutations [WORD ...]        those whose name has one of the words; by default all
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.conftest import PROJECT
from tests.tracked import tracked

LIMIT_S: Final = 300
"""Of the tests of one fault."""
PASSED, FAILED = 0, 1
"""Exit codes of pytest."""


@dataclass(frozen=True)
class Mutation:
    """A fault, and the tests of `make test` or `make test-all` that must find it."""

    name: str
    file: str
    old: str
    """Stands once in the file."""
    new: str
    killers: tuple[str, ...]


MUTATIONS: Final = (
    Mutation("swapped ratio: theirs by ours", "orchestrator/analysis/ratios.py",
             "return np.array([up - down for up, down in means])", "return np.array([down - up for up, down in means])",
             ("tests/unit/analysis/test_ratios.py",)),
    Mutation("missing factor: nanoseconds of a warm-up are kept as seconds", "runners/protocol/timing.py",
             "samples), steady, elapsed / 1e9, float(recent[-1]))", "samples), steady, elapsed, float(recent[-1]))",
             ("tests/unit/runners/protocol/test_timing.py",)),
    Mutation("dropped key: the last field of a specification is not in its identity", "runners/contract/codec.py",
             "in sorted(f.name for f in dataclasses.fields(cls)))",
             "in sorted(f.name for f in dataclasses.fields(cls))[:-1])", ("tests/unit/runners/contract",)),
    Mutation("off by one: a warm-up ends a call too early", "runners/protocol/timing.py",
             "enough = calls >= protocol.warmup_min_calls", "enough = calls + 1 >= protocol.warmup_min_calls",
             ("tests/unit/runners/protocol/test_timing.py",)),
    Mutation("a resume repeats what is measured", "orchestrator/campaign/resume.py",
             "    if last.status is not Status.INFRASTRUCTURE_ERROR:\n        return None\n", "",
             ("tests/integration/test_campaign.py",)),
    Mutation("verdicts of a table are reached each alone, without Holm", "orchestrator/analysis/verdict.py",
             "        level = (1 - LEVEL) / (len(tested) - done)", "        level = 1 - LEVEL",
             ("tests/unit/analysis/test_verdict.py",)),
    Mutation("wrong exit code: a sweep with failures ends with 0", "orchestrator/cli/sweep.py",
             "ExitCode.TRIALS_FAILED if failed or", "ExitCode.TRIALS_FAILED if not failed and",
             ("tests/unit/cli/test_errors.py", "tests/integration/test_sweep_control.py")),
    Mutation("the lock of a host is not taken", "orchestrator/execution/runner_process.py",
             "fcntl.flock(whole, fcntl.LOCK_SH if part else fcntl.LOCK_EX)", "fcntl.flock(whole, fcntl.LOCK_SH)",
             ("tests/unit/hosts/test_lock.py",)),
    Mutation("the validator lets numbers through that are not finite", "orchestrator/store/validation.py",
             "lambda values: pc.invert(pc.is_finite(values)))", "lambda values: pc.is_null(values, nan_is_null=False))",
             ("tests/unit/store/test_validation.py",)),
    Mutation("text of a store is markup in the report", "orchestrator/report/page/html.py",
             'return "" if value is None else html.escape(str(value))', 'return "" if value is None else str(value)',
             ("tests/unit/report/page/test_parts.py", "tests/integration/test_report_page.py")),
    Mutation("the floor is the small twin, its arithmetic included", "orchestrator/analysis/tax.py",
             "({TWIN_GROWTH} * small_s - large_s) / {TWIN_GROWTH - 1})", "small_s)",
             ("tests/unit/analysis/test_tax.py",)),
    Mutation("an output with fifty times eager's error passes", "runners/protocol/verify.py",
             "_EAGER_FACTOR = 5.0", "_EAGER_FACTOR = 50.0", ("tests/unit/runners/protocol/test_verify.py",)),
    Mutation("what ratios scatter between campaigns is in no interval", "orchestrator/analysis/ratios.py",
             "between = reading.between / math.sqrt(len(places))", "between = 0.0",
             ("tests/unit/analysis/test_ratios.py", "tests/unit/analysis/comparison")),
    Mutation("a process is not stopped while another has its turn", "runners/supervision/process.py",
             "        self._signal(signal.SIGSTOP)", "        pass", ("tests/contract/test_runner_sessions.py",)),
    Mutation("a record with a broken checksum is taken", "runners/contract/codec.py",
             "if whole[-_CHECK_BYTES:] != _CHECK % zlib.crc32(body):",
             "if not whole[-_CHECK_BYTES:].startswith(_CHECK[:10]):", ("tests/unit/runners/contract/test_codec.py",)),
)  # fmt: skip


def main(words: list[str]) -> int:
    """Tries each fault; 1 if the tests overlook one, or fail without it."""
    chosen = [one for one in MUTATIONS if not words or any(word in one.name for word in words)]
    with tempfile.TemporaryDirectory(prefix="mutations-") as directory:
        copy = Path(directory)
        for path in tracked("*"):
            target = copy / path.relative_to(PROJECT)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, target, follow_symlinks=False)
        (copy / ".venv").symlink_to(PROJECT / ".venv")
        killers = sorted({killer for mutation in chosen for killer in mutation.killers})
        if _tests(copy, killers) != PASSED:
            print("the tests fail without any fault")
            return 1
        survivors = [mutation for mutation in chosen if not _is_found(copy, mutation)]
    print(f"{len(chosen) - len(survivors)} of {len(chosen)} faults found")
    return 1 if survivors else 0


def _is_found(copy: Path, mutation: Mutation) -> bool:
    path = copy / mutation.file
    text = path.read_text(encoding="utf-8")
    if text.count(mutation.old) != 1:
        raise SystemExit(f"{mutation.name}: {mutation.file} has {mutation.old!r} {text.count(mutation.old)} times")
    begin = time.monotonic()
    path.write_text(text.replace(mutation.old, mutation.new), encoding="utf-8")
    try:
        code = _tests(copy, mutation.killers)
    finally:
        path.write_text(text, encoding="utf-8")
    word = {PASSED: "SURVIVED", FAILED: "found"}.get(code, f"pytest ended with {code}")
    print(f"{word:9} {time.monotonic() - begin:4.0f} s  {mutation.name} ({mutation.file})", flush=True)
    return code == FAILED


def _tests(copy: Path, killers: tuple[str, ...] | list[str]) -> int:
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *killers]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, timeout=LIMIT_S * 2)
    if done.returncode not in (PASSED, FAILED):
        print(done.stdout[-2000:], done.stderr[-1000:])
    return done.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""A small store whose answers are known: two campaigns on two hosts, of which one got a new driver between them."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from orchestrator.store import Row, Store, campaign_row, campaign_totals, environment_row, system_row
from runners.contract import Status

SHARED = {
    "replicate": 0, "attempt": 1, "workload": "bert-base", "backend_options": "{}", "dtype": "float32",
    "device": "cpu", "threads": 2, "seed": 0, "protocol": "{}", "method_version": 1, "contract_version": 1,
    "isolation": "docker",
}  # fmt: skip
SYSTEMS = {
    "d28dcd30": {"cpu_model": "EPYC", "driver_version": "570.1", "kernel": "6.1.0"},
    "9b0c11aa": {"cpu_model": "EPYC", "driver_version": "580.2", "kernel": "6.2.0"},
    "474f4d9e": {"cpu_model": "Xeon", "driver_version": None, "kernel": "6.1.0"},
}
ENVIRONMENTS = {"cpu": {"python": "3.11.2", "torch": "2.13.0"}, "cpu-next": {"python": "3.12.1", "torch": "2.14.0"}}
STARTED = {"paper-1": datetime(2025, 11, 20, tzinfo=UTC), "paper-2": datetime(2025, 12, 5, tzinfo=UTC)}

_LATENCY_S = {(1, "eager"): 0.010, (1, "onnxruntime"): 0.005, (8, "eager"): 0.040, (8, "onnxruntime"): 0.032}
_FACTOR = {"eager": (1, 1.5, 1.25), "onnxruntime": (1, 1, 1.25)}
"""Of the latency, by round."""

_FRACTION = {(1, "eager"): 0.6, (1, "onnxruntime"): 0.5, (8, "eager"): 0.2, (8, "onnxruntime"): None}


def trials() -> list[Row]:
    """The rows of `trials`, in the order in which they started."""
    rows = [*_first_campaign(), *_second_campaign()]
    for number, row in enumerate(rows):
        row |= {"trial_id": f"t{number:02d}", "order": number}
        row["started_at"] = STARTED[str(row["campaign_id"])] + timedelta(seconds=number)
    return rows


def make(directory: Path) -> None:
    """Writes the store."""
    rows = trials()
    texts = {"sweep_document": "", "inventory_document": "", "plan_digest": "p", "taxmeter_version": "1"}
    with Store.open(directory).writer() as writer:
        for system, hot in SYSTEMS.items():
            writer.put("systems", [system_row(system, f"h-{hot['cpu_model']}", hot, _fingerprint(hot))])
        for name, versions in ENVIRONMENTS.items():
            row = environment_row(f"e-{name}", name, versions, {}, image_digest=None, lock_sha256=None)
            writer.put("environments", [row])
        for campaign, started in STARTED.items():
            mine = [row for row in rows if row["campaign_id"] == campaign]
            writer.put_campaign(campaign_row(campaign, started, "paper", planned_trials=24, git_commit=None, **texts))
            writer.append(mine)
            writer.seal()
            statuses = [Status(str(row["status"])) for row in mine]
            totals = campaign_totals(started + timedelta(hours=1), statuses, rows=len(mine))
            writer.finish_campaign(campaign, **totals)


def _first_campaign() -> Iterator[Row]:
    for round_ in (1, 2, 3):
        for host, system, slowness in (("lab1", "d28dcd30", 1), ("lab2", "474f4d9e", 2)):
            for batch, backend in _LATENCY_S:
                latency_s = _LATENCY_S[batch, backend] * _FACTOR[backend][round_ - 1] * slowness
                yield _trial("paper-1", host, system, "cpu", round_, batch, backend) | _measured(
                    batch, backend, latency_s
                )


def _second_campaign() -> Iterator[Row]:
    for backend, latency_s in (("eager", 0.008), ("onnxruntime", 0.005)):
        watched = _guarded(700.0 if backend == "eager" else 20.0)
        yield (
            _trial("paper-2", "lab1", "9b0c11aa", "cpu-next", 1, 1, backend)
            | _measured(1, backend, latency_s)
            | watched
        )
    yield _trial("paper-2", "lab2", "474f4d9e", "cpu", 1, 1, "eager") | _measured(1, "eager", 0.018)
    for round_ in (1, 2):
        failed = {"status": "oom", "reason": "no memory left"}
        yield _trial("paper-2", "lab1", "9b0c11aa", "cpu-next", round_, 8, "eager") | failed
    yield _trial("paper-2", "lab2", "474f4d9e", "cpu", 1, 8, "eager") | {"status": "crashed"}
    skipped = {"status": "skipped", "reason": "not in this environment"}
    yield _trial("paper-2", "lab2", "474f4d9e", "cpu", 1, 8, "onnxruntime") | skipped


def _trial(campaign: str, host: str, system: str, environment: str, round_: int, batch: int, backend: str) -> Row:
    return {
        **SHARED,
        **SYSTEMS[system],
        "campaign_id": campaign,
        "host": host,
        "system_id": system,
        "environment": environment,
        "environment_id": f"e-{environment}",
        "trial_key": f"{batch}-{backend}-{environment}",
        "round": round_,
        "batch": batch,
        "backend": backend,
    }


def _measured(batch: int, backend: str, latency_s: float) -> Row:
    share = _FRACTION[batch, backend]
    return {
        "status": "ok",
        "latency_sync_median_s": latency_s,
        "latency_sync_p10_s": latency_s,
        "throughput_examples_per_s": batch / latency_s,
        "latency_pipelined_median_s": latency_s,
        "busy_s": None if share is None else (1 - share) * latency_s,
        "samples_sync_s": [latency_s * 1.1, latency_s, latency_s * 0.9],
    }


def _guarded(others_permille: float) -> Row:
    is_flagged = others_permille > 100
    seen = {
        "guard": "load", "moment": "after", "policy": "flag", "outcome": "flagged" if is_flagged else "passed",
        "observed": others_permille, "limit": 100.0, "unit": "permille", "detail": "cores 0-1", "waited_s": 0.0,
    }  # fmt: skip
    return {"guards": [seen], "guard_flags": ["load"] if is_flagged else []}


def _fingerprint(hot: Row) -> Row:
    gpu = {"name": "H200", "power_limit_mw": 700_000}
    kernel = {"release": hot["kernel"], "mitigations": {"retbleed": "Not affected"}}
    cpu = {"model_name": hot["cpu_model"], "governor": "performance", "max_frequency_hz": 3_700_000_000}
    return {"cpu": cpu, "kernel": kernel, "gpus": [gpu, gpu], "gpu_driver_version": hot["driver_version"]}

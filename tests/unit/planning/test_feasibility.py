"""Which environment can serve which machine, decided from scripted fingerprints before anything is built."""

import re
from dataclasses import replace
from functools import cache

import pytest

from orchestrator.environments import Catalogue
from orchestrator.planning import Demands, GpuFacts, Machine, environment_problem, model_problem, newest_suitable
from runners.contract import BackendSpec, Protocol, TrialSpec, WorkloadSpec
from runners.contract.catalogue import WORKLOADS, resolve_workload_options
from tests.conftest import PROJECT

GIB = 2**30
PASCAL = GpuFacts("NVIDIA GeForce GTX 1080 Ti", "6.1", 11 * GIB)
A100 = GpuFacts("NVIDIA A100-PCIE-40GB", "8.0", 40 * GIB)
H200 = GpuFacts("NVIDIA H200", "9.0", 141 * GIB)
NO_GPU = Machine(None, (), "NVML does not start: Driver Not Loaded", 20 * GIB)
TINY = WorkloadSpec("tiny-bert", 1, 16, None, {})


@cache
def catalogue() -> dict[str, Demands]:
    known = Catalogue.load(PROJECT / "docker/images.yaml")
    return {name: entry.demands for name, entry in known.entries.items()}


def machine(*gpus: GpuFacts, driver: str | None = "580.95.05") -> Machine:
    return Machine(driver, gpus, None, 20 * GIB)


def serving(gpu: GpuFacts, driver: str = "580.95.05") -> set[str]:
    here = machine(gpu, driver=driver)
    return {name for name, needs in catalogue().items() if environment_problem(needs, here, "cuda") is None}


OLDEST, OLDER = {"cuda116-paper"}, {"cuda116-paper", "cuda126"}
ALL = {*OLDER, "cuda13"}


def test_older_drivers_and_gpus_serve_fewer_environments() -> None:
    for capability, driver, served in (
        *(("8.0", "450.80.01", set()), ("8.0", "450.80.02", OLDEST), ("8.0", "470.82", OLDEST)),
        *(("8.0", "525.60.13", OLDER), ("8.0", "579.99", OLDER), ("8.0", "580.65.06", ALL)),
        # machine code serves higher minor numbers of its major one
        *((capability, "580.95.05", set()) for capability in ("5.2", "11.0", "13.0")),
        *(("7.2", "580.95.05", OLDER), ("8.7", "580.95.05", ALL), ("12.1", "580.95.05", {"cuda13"})),
    ):
        assert serving(GpuFacts("a GPU", capability, 16 * GIB), driver) == served, (capability, driver)


def test_a_part_of_a_driver_s_version_counts_by_the_number_it_begins_with() -> None:
    demands = Demands("2026-10", "13.0", "580.65.06", ("9.0",))
    new_enough = ["580.65.06-open", "580.65.x", "580.65.06.1", "1000"]
    machines = [
        machine(H200, driver=driver) for driver in (*new_enough, "580.65.05-open", "580.64.x", "580.65", " 570.1")
    ]
    served = [here for here in machines if environment_problem(demands, here, "cuda") is None]
    assert [here.driver_version for here in served] == new_enough


def test_the_table_of_the_documentation_is_what_is_decided() -> None:
    text = (PROJECT / "docs/environments.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([^|]+) \| (\d[\d., ]*) \| (\w+) \| (\w+) \| (\w+) \| `(\S+)` \|$", text, re.MULTILINE)
    assert len(rows) == 4
    for name, capabilities, *answers, chosen in rows:
        known = zip(("cuda13", "cuda126", "cuda116-paper"), answers, strict=True)
        documented = {environment for environment, answer in known if answer == "yes"}
        for capability in capabilities.split(", "):
            gpu = GpuFacts(name, capability, 16 * GIB)
            assert serving(gpu) == documented
            assert newest_suitable(catalogue(), {}, machine(gpu), "cuda")[0] == chosen


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_processors_of_another_architecture_are_refused_unless_it_is_unknown(device: str) -> None:
    grace = replace(machine(H200), architecture="aarch64")
    reason = "this environment is built for x86_64 processors, and this host's are aarch64"
    for name, demands in catalogue().items():
        problem = environment_problem(demands, grace, device)
        assert problem == reason if name != "tensorrt" else problem is not None
    chosen, reasons = newest_suitable(catalogue(), {}, grace, device)
    assert chosen is None
    resolved = [name for name, demands in catalogue().items() if demands.unresolved is None]
    assert f"{', '.join(resolved)}: {reason}" in reasons
    for same in ("x86_64", "AMD64", None):
        for name in ("cpu", "cuda13"):
            assert environment_problem(catalogue()[name], replace(NO_GPU, architecture=same), "cpu") is None


def test_why_a_gpu_is_not_served() -> None:
    few = Demands("2026-10", "13.0", "580", ("8.6", "9.0"))
    for demands, here, reason in (
        (catalogue()["cuda126"], machine(A100, driver="470.82"), "driver 470.82 is older than 525.60.13"),
        (
            catalogue()["cuda13"],
            machine(PASCAL),
            "6.1 of NVIDIA GeForce GTX 1080 Ti cannot run machine code for 7.5, 8.0, ",
        ),
        (few, machine(A100), "8.0 of NVIDIA A100-PCIE-40GB cannot run machine code for 8.6, 9.0"),
        (catalogue()["cuda13"], NO_GPU, "no GPU: NVML does not start: Driver Not Loaded"),
        (catalogue()["cpu"], machine(H200), "it has no CUDA, which device cuda needs"),
    ):
        assert reason in str(environment_problem(demands, here, "cuda"))


def test_what_is_unknown_or_for_cuda_to_decide_is_not_refused() -> None:
    for here in (
        None,
        *(machine(H200, driver=driver) for driver in (None, "N/A", "")),
        *(machine(replace(H200, compute_capability=capability)) for capability in (None, "N/A")),
        machine(PASCAL, H200),  # another is served
    ):
        assert environment_problem(catalogue()["cuda13"], here, "cuda") is None


def test_on_a_processor_any_suitable_is_an_environment_made_for_processors() -> None:
    assert newest_suitable(catalogue(), {}, NO_GPU, "cpu")[0] == "cpu"
    assert newest_suitable(catalogue(), {"cpu": "there is no Python 3.11"}, NO_GPU, "cpu")[0] == "cpu-2022"


def test_if_nothing_is_suitable_each_environment_has_its_reason_in_one_line() -> None:
    chosen, reasons = newest_suitable(catalogue(), {"cuda126": "no Python 3.11"}, NO_GPU, "cuda")
    for_processors = [name for name, demands in catalogue().items() if demands.cuda is None and not demands.unresolved]
    assert chosen is None
    assert f"{', '.join(for_processors)}: this environment is made for processors" in reasons
    assert "cuda13, cuda116-paper: no GPU: NVML does not start: Driver Not Loaded" in reasons
    assert "cuda126: no Python 3.11" in reasons
    assert "tensorrt: this environment has no lock: " in reasons
    assert "\n" not in reasons


def spec(workload: WorkloadSpec, dtype: str = "float32", device: str = "cuda") -> TrialSpec:
    return TrialSpec(workload, BackendSpec("eager", {}), dtype, device, threads=1, seed=0, protocol=Protocol())


def deep_bert(layers: int = 96, width: int = 8192) -> WorkloadSpec:
    return WorkloadSpec("bert", 1, 128, None, {"layers": layers, "hidden_size": width, "heads": 64})


def test_a_model_whose_weights_exceed_the_memory_is_refused() -> None:
    computed = WORKLOADS["bert"].parameters
    assert callable(computed)
    # of `bert-base-uncased` with its pooler
    assert computed(resolve_workload_options(WorkloadSpec("bert", 1, 128, None, {}))) == 109_482_240
    # 96 × 12 × 8192² parameters and the embeddings
    reason = model_problem(spec(deep_bert()), machine(H200))
    assert reason == "the weights of bert are 289.2 GiB in float32, and NVIDIA H200 has 141.0 GiB"
    assert "144.6 GiB in float16" in str(model_problem(spec(deep_bert(), "float16"), machine(H200)))
    assert model_problem(spec(deep_bert(90), "float16"), machine(H200)) is None
    reason = model_problem(spec(deep_bert(), device="cpu"), machine(H200))
    assert reason == "the weights of bert are 289.2 GiB in float32, and a trial on this host may take 20.0 GiB"


def test_every_published_model_fits_the_smallest_gpu_of_the_paper() -> None:
    for name, info in WORKLOADS.items():
        if info.parameters is not None:
            workload = WorkloadSpec(name, 1, info.sequence_length, info.image_size, {})
            assert model_problem(spec(workload), machine(PASCAL)) is None


def test_a_shrunk_model_and_an_operator_have_no_weights_to_speak_of() -> None:
    shrunk = WorkloadSpec("bert-base", 1, 128, None, {"size": "shrunk"})
    nothing = machine(GpuFacts("a small one", "7.5", 1))
    assert model_problem(spec(TINY), nothing) is not None
    for workload, here in (
        (shrunk, nothing),
        (WorkloadSpec("op-mha", 1, None, None, {}), nothing),
        (TINY, None),
        (TINY, replace(nothing, gpus=(GpuFacts(None, None, None),))),
    ):
        assert model_problem(spec(workload), here) is None

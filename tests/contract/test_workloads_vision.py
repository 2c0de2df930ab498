"""The models of images with the libraries of the `cpu` environment: all of them without weights, small ones at work."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runners.contract import Status, Trial, WorkloadSpec
from runners.contract.catalogue.vision import IMAGES
from tests.conftest import NO_NNPACK
from tests.tasks import BRIEF, evaluated, named, on_one_thread, recorded

pytestmark = pytest.mark.environment

# Of each kind of network that is shrunk: grouped and depthwise filters, concatenations, channel splits, transformers
TWINS = ("resnet18", "resnext50", "shufflenet-v2", "squeezenet1-0", "efficientnet-lite1", "vit-base-32")
CHECKS = """
from runners.contract.catalogue.vision import IMAGES
from runners.workloads.construction import allocate, without_storage
from runners.workloads.vision import network_of

parameters, norms = {}, {}
for name, row in IMAGES.items():
    model = network_of(row.builder, row.arguments)
    parameters[name] = sum(parameter.numel() for parameter in model.parameters())
    norms[name] = sorted({float(b.sum()) / b.numel() for n, b in model.named_buffers() if n.endswith("running_var")})
seen["parameters"], seen["running variances"] = parameters, norms

for name in %(twins)r:
    one = workload(name, image_size=64)
    twin = make_workload(replace(one.spec, workload=one.shrunk()))
    large = make_workload(replace(one.spec, workload=twin.enlarged()))
    model = twin.build()
    first, second = (run(model, *twin.inputs(index))[0] for index in (0, 1))
    seen["twin of " + name] = {
        "calls": [calls(each) for each in (large, one, twin)],
        "parameters": twin.facts(model)["parameters"],
        "finite": bool(first.isfinite().all()),
        "apart": float((first - second).norm() / first.norm()),
    }

deep = workload("resnet152", image_size=32)
model = deep.build()
first, second = (run(model, *deep.inputs(index))[0] for index in (0, 1))
seen["deep"] = {
    "classes": list(first.shape),
    "largest": float(first.abs().max()),
    "apart": float((first - second).norm() / first.norm()),
}
one = workload("resnet18", batch=3, image_size=32)
model = one.build()
together = run(model, *one.inputs(0))[0]
alone = run(model, *workload("resnet18", image_size=32).inputs(0))[0]
seen["rows are independent of the batch"] = float((together[:1] - alone).abs().max())
again = workload("resnet18", image_size=32).build()
seen["weights depend on the seed alone"] = all(
    torch.equal(a, b) for a, b in zip(model.state_dict().values(), again.state_dict().values())
)
last = workload("resnet18", image_size=32, channels_last=True)
other = last.build()
seen["layout"] = {
    "inputs": last.inputs(0)[0].is_contiguous(memory_format=torch.channels_last),
    "weights": other.body.conv1.weight.is_contiguous(memory_format=torch.channels_last),
    "fact": last.facts(other)["memory_format"],
    "difference": float((run(other, *last.inputs(0))[0] - alone).abs().max()),
}
vit = workload("vit-base-32", image_size=32, size="shrunk")
seen["attention"] = {str(asked): vit.facts(vit.build(asked))["attn_implementation"] for asked in (None, "sdpa", "eager")}
by_sdpa, by_eager = (run(vit.build(asked), *vit.inputs(0))[0] for asked in ("sdpa", "eager"))
seen["attention differs by"] = float((by_sdpa - by_eager).abs().max())


class Shared(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
        self.second.weight = self.first.weight
        self.register_buffer("kept", torch.arange(3))


with without_storage():
    shared = Shared()
seen["without storage"] = [shared.first.weight.is_meta, shared.kept.tolist()]
allocate(shared)
seen["with storage"] = [shared.first.weight.is_meta, shared.first.weight is shared.second.weight]
seen["later modules have storage"] = not torch.nn.Linear(2, 2).weight.is_meta
print(json.dumps(seen))
"""


@pytest.fixture(scope="module")
def seen(cpu_python: Path) -> dict[str, Any]:
    """What the checks saw."""
    flags = ("-W", "error", "-W", NO_NNPACK)
    facts: dict[str, Any] = evaluated(cpu_python, CHECKS % {"twins": TWINS}, *flags)
    return facts


def test_every_model_is_as_large_as_the_published_one(seen: dict[str, Any]) -> None:
    assert seen["parameters"] == {name: row.parameters for name, row in IMAGES.items()}


def test_running_statistics_survive_construction(seen: dict[str, Any]) -> None:
    convolutional = {name for name, variances in seen["running variances"].items() if variances == [1.0]}
    without_norms = {"alexnet", "squeezenet1-0", "vgg16", "vit-base-16", "vit-base-32", "vit-large-16", "vit-large-32"}
    assert convolutional == set(IMAGES) - without_norms


@pytest.mark.parametrize("name", TWINS)
def test_both_twins_run_the_operators_of_the_model_on_next_to_no_weights(seen: dict[str, Any], name: str) -> None:
    twin = seen["twin of " + name]
    large, full, small = twin["calls"]
    assert full == small == large
    assert sum(full.values()) > 50
    assert twin["parameters"] < IMAGES[name].parameters / 40
    assert twin["finite"]
    assert twin["apart"] > 0.01


def test_the_outputs_of_a_deep_network_have_a_scale_and_depend_on_the_image(seen: dict[str, Any]) -> None:
    deep = seen["deep"]
    assert deep["classes"] == [1, 1000]
    # Without damped branches it is a billion
    assert 0.1 < deep["largest"] < 100
    # More than float16 or bfloat16 lose
    assert deep["apart"] > 0.05


def test_inputs_and_weights_depend_on_the_seed_alone(seen: dict[str, Any]) -> None:
    assert seen["weights depend on the seed alone"]
    assert seen["rows are independent of the batch"] < 1e-5


def test_channels_last_is_a_layout_and_not_another_result(seen: dict[str, Any]) -> None:
    layout = seen["layout"]
    assert (layout["inputs"], layout["weights"], layout["fact"]) == (True, True, "channels_last")
    assert layout["difference"] < 1e-5


def test_a_transformer_runs_the_attention_that_was_asked_for(seen: dict[str, Any]) -> None:
    assert seen["attention"] == {"None": "sdpa", "sdpa": "sdpa", "eager": "eager"}
    assert seen["attention differs by"] < 1e-5


def test_parameters_have_no_storage_until_they_are_allocated(seen: dict[str, Any]) -> None:
    assert seen["without storage"] == [True, [0, 1, 2]]
    assert seen["with storage"] == [False, True]
    assert seen["later modules have storage"]


def trial(workload: str, backend: str, image_size: int, options: Any = None, chosen: Any = None) -> Trial:
    shape = WorkloadSpec(workload, 1, image_size=image_size, options=options or {})
    return on_one_thread(shape, backend, chosen, protocol=replace(BRIEF, floor_budget_ms=10))


def test_the_runner_measures_models_of_both_libraries(tmp_path: Path, cpu_python: Path) -> None:
    trials = [
        trial("resnet18", "eager", 64),
        trial("resnet18", "torchscript", 64, {"channels_last": True}),
        trial("vit-base-32", "eager", 32, {"size": "shrunk"}),
        trial("alexnet", "eager", 32),
        trial("resnet18", "eager", 32, chosen={"attention": "eager"}),
    ]
    names = [str(index) for index in range(len(trials))]
    found = recorded(tmp_path, cpu_python, *named(dict(zip(names, trials, strict=True))))
    records = [found[name] for name in names]
    assert [(r.status, r.reason) for r in records] == [
        (Status.OK, None),
        (Status.OK, None),
        (Status.OK, None),
        (Status.UNSUPPORTED, "image_size of workload alexnet is 63 or more, not 32"),
        (Status.UNSUPPORTED, "workload resnet18 has no attention to choose"),
    ]
    assert [r.facts["floor_alike"] for r in records[:3]] == [True] * 3
    assert records[0].facts["library_model"] == "torchvision resnet18"
    assert records[1].facts["memory_format"] == "channels_last"
    assert records[2].facts["attn_implementation"] == "sdpa"

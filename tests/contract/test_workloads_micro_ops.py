"""The micro-operators with the real framework: what they compute, and each as a trial."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runners.contract import Status, Trial, WorkloadSpec
from runners.contract.catalogue import WORKLOADS
from runners.contract.catalogue.micro_ops import WORKLOADS as OPERATORS
from tests.contract.conftest import facts_of
from tests.tasks import BRIEF, evaluated, named, on_one_thread, recorded

pytestmark = pytest.mark.environment


QUICK = replace(BRIEF, pipelined_budget_ms=5, floor_budget_ms=5)
SMALL: dict[str, dict[str, Any]] = {
    "op-feedforward": {"hidden_size": 32, "layers": 3},
    "op-conv2d": {"image_size": 14, "in_channels": 16, "out_channels": 16},
    "op-mbconv2d": {"image_size": 14, "in_channels": 16, "out_channels": 16},
    "op-conv1d": {"input_length": 64},
    "op-rnn": {"hidden_size": 32, "layers": 2, "sequence_length": 5},
    "op-lstm": {"hidden_size": 32, "layers": 2, "sequence_length": 5},
    "op-layernorm": {"hidden_size": 32},
    "op-mha": {"hidden_size": 32, "heads": 4},
}
# The narrowest that the paper's grids have: the outputs of an untrained network would be zeros
NARROW: dict[str, list[dict[str, Any]]] = {
    "op-feedforward": [
        {"hidden_size": width, "layers": layers, "sequence_length": 1} for width in (1, 2) for layers in (1, 16)
    ],
    "op-conv1d": [
        {"input_length": 1, "in_channels": channels, "out_channels": 1, "kernel_size": 9} for channels in (1, 5)
    ],
    "op-conv2d": [{"image_size": 7, "in_channels": 1, "out_channels": 1, "kernel_size": 1, "stride": 5}],
    "op-mbconv2d": [
        {"image_size": 7, "in_channels": 1, "out_channels": out, "expand_ratio": ratio, "stride": stride}
        for out in (1, 2)
        for ratio in (1, 6)
        for stride in (1, 2)
    ],
    "op-rnn": [{"hidden_size": 1, "layers": 4, "nonlinearity": kind} for kind in ("relu", "tanh")],
    "op-lstm": [{"hidden_size": 1, "layers": 4}],
    "op-layernorm": [{"hidden_size": 2}],
    "op-mha": [{"hidden_size": 16, "heads": 16, "sequence_length": 1}],
}


def trial(name: str, backend: str, sizes: dict[str, Any]) -> Trial:
    info = WORKLOADS[name]
    options = dict(sizes)
    length = options.pop("sequence_length", info.sequence_length)
    image = options.pop("image_size", info.image_size)
    return on_one_thread(WorkloadSpec(name, 2, length, image, options), backend, protocol=QUICK)


def test_each_operator_is_a_trial_with_a_twin_of_its_structure(tmp_path: Path, cpu_python: Path) -> None:
    assert set(SMALL) == set(OPERATORS)
    eager = {name: trial(name, "eager", sizes) for name, sizes in SMALL.items()}
    traced = {f"{name}-traced": trial(name, "torchscript", SMALL[name]) for name in ("op-lstm", "op-mha")}
    impossible = {"impossible": trial("op-mha", "eager", {"hidden_size": 32, "heads": 5})}
    records = recorded(tmp_path, cpu_python, *named(eager | traced | impossible))
    refused = records.pop("impossible")
    assert (refused.status, refused.reason) == (Status.UNSUPPORTED, "5 heads do not divide hidden_size 32")
    for name, record in records.items():
        facts = facts_of(record)
        assert (name, facts["floor_alike"]) == (name, True), facts["floor_problem"]
        assert (name, "of another structure" in str(facts["floor_large_problem"])) == (name, False)
    counted = {name: records[name].facts["flops_per_example"] for name in SMALL}
    # Expand, filter, project
    assert counted["op-mbconv2d"] == 2 * 14 * 14 * (16 * 96 + 96 * 9 + 96 * 16)
    assert counted["op-mha"] == 4 * 2 * 128 * 32 * 32 + 4 * 128 * 128 * 32


def test_the_narrowest_operators_tell_their_inputs_apart(cpu_python: Path) -> None:
    cases = [(name, sizes) for name, each in NARROW.items() for sizes in each]
    found = evaluated(
        cpu_python,
        f"""
found = []
for name, sizes in {cases!r}:
    one = workload(name, batch=1, **sizes)
    model = one.build()
    first, second = (model(*one.inputs(index)) for index in range(2))
    pairs = list(zip(first, second))
    found.append([all(bool(t.isfinite().all()) for t in first), any(not torch.equal(a, b) for a, b in pairs)])
print(json.dumps(found))
""",
    )
    assert dict(zip(map(str, cases), found, strict=True)) == {str(case): [True, True] for case in cases}


def test_recurrent_networks_return_the_sequence_and_the_final_states(cpu_python: Path) -> None:
    found = evaluated(
        cpu_python,
        """
found = {}
for name in ("op-rnn", "op-lstm"):
    one = workload(name, batch=3, sequence_length=7, layers=2, hidden_size=16)
    sequence, *states = one.build()(*one.inputs(0))
    found[name] = [list(sequence.shape), [list(s.shape) for s in states], bool((sequence[:, -1] == states[0][:, -1]).all())]
print(json.dumps(found))
""",
    )
    assert found == {
        "op-rnn": [[3, 7, 16], [[3, 2, 16]], True],
        "op-lstm": [[3, 7, 16], [[3, 2, 16], [3, 2, 16]], True],
    }


def test_both_attentions_are_the_same_function(cpu_python: Path) -> None:
    found = evaluated(
        cpu_python,
        """
one = workload("op-mha", batch=2, hidden_size=48, heads=4, sequence_length=9)
inputs = [tensor.double() for tensor in one.inputs(0)]
outputs = [one.build(attention).double()(*inputs)[0] for attention in ("sdpa", "eager")]
names = [one.facts(one.build(attention))["attn_implementation"] for attention in ("sdpa", "eager")]
reference = torch.nn.MultiheadAttention(48, 4, batch_first=True).double()
weights = one.build().double()
parts = (weights.query, weights.key, weights.value)
reference.in_proj_weight.copy_(torch.cat([part.weight for part in parts]))
reference.in_proj_bias.copy_(torch.cat([part.bias for part in parts]))
reference.out_proj.load_state_dict(weights.output.state_dict())
outputs.append(reference(*inputs * 3, need_weights=False)[0])
errors = [float((output - outputs[0]).abs().max() / outputs[0].abs().max()) for output in outputs]
print(json.dumps([errors, names]))
""",
    )
    errors, names = found
    assert max(errors) < 1e-12
    assert names == ["sdpa", "eager"]


def test_a_mobile_block_adds_its_input_where_the_shapes_agree(cpu_python: Path) -> None:
    cases: list[tuple[dict[str, Any], bool]] = [
        ({"out_channels": 4}, True),
        ({"out_channels": 4, "expand_ratio": 1}, True),
        ({"out_channels": 8}, False),
        ({"out_channels": 4, "stride": 2}, False),
        ({"out_channels": 4, "padding": "none"}, False),
        ({"out_channels": 4, "kernel_size": 1, "padding": "none"}, True),
    ]
    found = evaluated(
        cpu_python,
        f"""
found = []
for options in {[options for options, _ in cases]!r}:
    one = workload("op-mbconv2d", batch=2, image_size=8, in_channels=4, **options)
    model = one.build()
    inputs, = one.inputs(0)
    output, = model(inputs)
    found.append(not torch.equal(output, model.body(inputs)) and output.shape == inputs.shape)
print(json.dumps(found))
""",
    )
    assert found == [adds_its_input for _, adds_its_input in cases]


def test_outputs_keep_their_scale_through_long_and_deep_networks(cpu_python: Path) -> None:
    found = evaluated(
        cpu_python,
        """
cases = [workload("op-rnn", batch=2, sequence_length=128, layers=4, hidden_size=512),
         workload("op-rnn", batch=2, sequence_length=128, layers=4, hidden_size=512, nonlinearity="tanh"),
         workload("op-lstm", batch=2, sequence_length=128, layers=4, hidden_size=256),
         workload("op-feedforward", batch=2, layers=16, hidden_size=512, sequence_length=8)]
print(json.dumps([[float(t.abs().max()) for t in one.build()(*one.inputs(0))] for one in cases]))
""",
    )
    assert all(1e-4 < largest < 1e4 for each in found for largest in each)

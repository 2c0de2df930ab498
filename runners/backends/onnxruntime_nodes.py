"""What a session of ONNX Runtime executes: its nodes, where they run, and which of them its optimizer made."""

import json
import os
import tempfile
from dataclasses import dataclass, replace
from typing import Any, Dict, Iterable, Set, Tuple

from runners.backends.onnx_backend import Node
from runners.backends.onnx_export import input_names
from runners.backends.onnxruntime_runs import PlainRuns
from runners.backends.onnxruntime_session import CPU_PROVIDER, SessionSettings, open_session
from runners.contract.record import FactValue
from runners.examination.counts import counts_as_text
from runners.workloads.base import Inputs

_SUFFIX = "_kernel_time"
_ELEMENTARY = frozenset(
    (
        *("Cast", "Concat", "Constant", "Expand", "Flatten", "Gather", "Identity", "MemcpyFromHost", "MemcpyToHost"),
        *("ReorderInput", "ReorderOutput", "Reshape", "Shape", "Slice", "Split", "Squeeze", "Transpose", "Unsqueeze"),
        *("Abs", "Add", "And", "Clip", "Div", "Equal", "Erf", "Exp", "Greater", "Less", "Log", "Max", "Min", "Mul"),
        *("Neg", "Not", "Or", "Pow", "Reciprocal", "ReduceMax", "ReduceMean", "ReduceSum", "Sigmoid", "Sqrt", "Sub"),
        *("Sum", "Tanh", "Where"),
    )
)
"""Operators that rearrange, or make one step of arithmetic. The runtime adds the first where it changes a layout or a
dtype, and the others where it has no kernel for a larger operator and takes it to pieces: neither is a fusion."""


@dataclass(frozen=True)
class Executed:
    """One node of one run."""

    name: str
    operator: str
    provider: str


def executed_nodes(settings: SessionSettings, inputs: Inputs) -> Tuple[Executed, ...]:
    """Runs the graph once in a session of its own that writes a profile, and reads which nodes were executed.

    Nothing but the profile is written, some 700 bytes per node.
    """
    with tempfile.TemporaryDirectory() as directory:
        profiled = replace(settings, cuda_graph=False, profile_prefix=os.path.join(directory, "profile"))
        session = open_session(profiled)
        runs = PlainRuns(session, input_names(len(inputs)))
        runs(*runs.native(inputs))
        with open(session.end_profiling()) as file:
            return executed_in(json.load(file))


def executed_in(events: Iterable[Dict[str, Any]]) -> Tuple[Executed, ...]:
    """The nodes in the events of a profile; those of a loop count each time."""
    return tuple(
        Executed(event["name"][: -len(_SUFFIX)], event["args"]["op_name"], event["args"]["provider"])
        for event in events
        if event.get("cat") == "Node" and event["name"].endswith(_SUFFIX)
    )


def node_facts(executed: Tuple[Executed, ...], exported: Set[Node], provider: str) -> Dict[str, FactValue]:
    """Facts about the nodes of one run.

    A node that the export does not have, by name and operator, was made by the runtime. It counts as fused unless its
    operator is an elementary one.

    Args:
        executed: the nodes of one run.
        exported: the nodes of the graph before it was optimized.
        provider: the one that nodes should run on.

    Returns:
        `ort_nodes_executed`; `ort_provider_nodes` of them on `provider`, `ort_cpu_nodes` on the CPU's;
        `ort_operators`, how many of each operator; `ort_fused_nodes` and `ort_fused`, the same for those that were
        fused; `ort_inserted_casts`, conversions for operators without a kernel in the dtype of the graph.
    """
    made = [node for node in executed if (node.name, node.operator) not in exported]
    fused = [node.operator for node in made if node.operator not in _ELEMENTARY]
    return {
        "ort_nodes_executed": len(executed),
        "ort_provider_nodes": sum(1 for node in executed if node.provider == provider),
        "ort_cpu_nodes": sum(1 for node in executed if node.provider == CPU_PROVIDER),
        "ort_operators": counts_as_text(node.operator for node in executed),
        "ort_fused_nodes": len(fused),
        "ort_fused": counts_as_text(fused),
        "ort_inserted_casts": sum(1 for node in made if node.operator == "Cast"),
    }

"""`python -m runners.system`: prints what is known about this system as JSON.

With `--environment` it imports the frameworks and prints what is installed and how they are built instead.
"""

import contextlib
import importlib
import importlib.util
import json
import sys
from typing import Optional

from runners.contract import encode
from runners.system import (
    collect,
    hot_columns,
    hw_id,
    observe_environment,
    observe_versions,
    read_conditions,
    system_id,
)

FRAMEWORKS = (
    "torch",
    # As the runner does it, before anything that imports torchvision
    "runners.workloads.torchvision_import",
    "torchvision",
    # The first imports little; the second, what every model needs
    "transformers",
    "transformers.modeling_utils",
    "timm",
    "onnx",
    "onnxscript",
    "onnxruntime",
    "openvino",
    "torch_tensorrt",
)
"""What the workloads and backends import, in this order, if it is installed."""

# They come from the host: an image holds neither, and that it cannot be imported without them is no fault of it.
_OF_THE_DRIVER = ("libcuda.so", "libnvidia-ml.so")


def main() -> None:
    if "--environment" in sys.argv[1:]:
        print_environment()
        return
    fingerprint = collect()
    document = {
        "hw_id": hw_id(fingerprint),
        "system_id": system_id(fingerprint),
        "columns": hot_columns(fingerprint),
        "fingerprint": encode(fingerprint),
        "conditions": read_conditions(),
    }
    print(json.dumps(document, indent=2))


def print_environment() -> None:
    """Prints versions and facts as one line, the last. What cannot be imported though it is there is an error."""
    with contextlib.redirect_stdout(sys.stderr):
        for name in FRAMEWORKS:
            problem = import_problem(name)
            if problem is not None:
                sys.exit(problem)
        facts = observe_environment()
    print(json.dumps({"versions": observe_versions(), "facts": facts}), flush=True)


def import_problem(name: str) -> Optional[str]:
    """Imports a module if its package is installed. Returns why it cannot be imported, in one line, or None."""
    if importlib.util.find_spec(name.partition(".")[0]) is None:
        return None
    try:
        importlib.import_module(name)
    except Exception as error:  # noqa: BLE001 - in an unknown environment an import may raise anything
        reason = "%s cannot be imported: %s: %s" % (name, type(error).__name__, " ".join(str(error).split()))
        if not any(library in reason for library in _OF_THE_DRIVER):
            return reason
        print(reason + " (it needs a GPU's driver)", file=sys.stderr)
    return None


if __name__ == "__main__":
    main()

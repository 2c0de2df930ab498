"""The shortest honest loop, written by hand: what the stored medians have to agree with.

It knows nothing of the runner. Run it in the measured environment, on a quiet machine:

    python benchmarks/hand_loop.py --threads 2 --workload bert-base resnet50 --backend eager --batch 1 8

Each configuration gets a process of its own and one line of JSON.
"""

import argparse
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

WORKLOADS = ("bert-base", "distilbert", "resnet50")
BACKENDS = ("eager", "torchscript", "onnxruntime")
SEQUENCE_LENGTH = 128
IMAGE_SIZE = 224


def main() -> int:
    """Measures one configuration here, or starts a process for each of several."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", nargs="+", choices=WORKLOADS, default=list(WORKLOADS))
    parser.add_argument("--backend", nargs="+", choices=BACKENDS, default=list(BACKENDS))
    parser.add_argument("--batch", nargs="+", type=int, default=[1])
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--seconds", type=float, default=5.0)
    arguments = parser.parse_args()
    configurations = list(itertools.product(arguments.workload, arguments.batch, arguments.backend))
    if len(configurations) == 1:
        print(json.dumps(measure(*configurations[0], arguments.threads, arguments.seconds)), flush=True)
        return 0
    common = ["--threads", str(arguments.threads), "--seconds", str(arguments.seconds)]
    failures = 0
    for workload, batch, backend in configurations:
        choice = ["--workload", workload, "--batch", str(batch), "--backend", backend]
        failures += subprocess.run([sys.executable, __file__, *choice, *common]).returncode != 0
    return 1 if failures else 0


def measure(workload: str, batch: int, backend: str, threads: int, seconds: float) -> dict:
    """The median of single calls, after a warm-up of a fifth of the time."""
    import torch

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    model, inputs = build(workload, batch)
    with torch.inference_mode():
        call = load(backend, model, inputs, threads)
        loop(call, seconds / 5)
        durations = loop(call, seconds)
    return {
        "workload": workload,
        "backend": backend,
        "batch": batch,
        "threads": threads,
        "calls": len(durations),
        "median_s": statistics.median(durations),
        "min_s": min(durations),
    }


def loop(call, seconds: float) -> list:
    """Times single calls, at least three."""
    durations = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(durations) < 3:
        start = time.perf_counter()
        call()
        durations.append(time.perf_counter() - start)
    return durations


def build(workload: str, batch: int):
    """A model with the weights of its own initialiser, and one input."""
    import torch
    import transformers

    if workload == "resnet50":
        config = transformers.ResNetConfig(num_labels=1000, return_dict=False)
        inputs = torch.randn(batch, 3, IMAGE_SIZE, IMAGE_SIZE)
        return transformers.ResNetForImageClassification(config).eval(), inputs
    if workload == "bert-base":
        model = transformers.BertModel(transformers.BertConfig(return_dict=False))
    else:
        model = transformers.DistilBertModel(transformers.DistilBertConfig(return_dict=False))
    return model.eval(), torch.randint(model.config.vocab_size, (batch, SEQUENCE_LENGTH))


def load(backend: str, model, inputs, threads: int):
    """The module itself, the traced and frozen module, or a session on the exported module."""
    import torch

    if backend == "eager":
        return lambda: model(inputs)
    if backend == "torchscript":
        with torch.no_grad():
            traced = torch.jit.freeze(torch.jit.trace(model, (inputs,), check_trace=False))
        return lambda: traced(inputs)
    return session(model, inputs, threads)


def session(model, inputs, threads: int):
    """An ONNX Runtime session on the exported module."""
    import onnxruntime as ort
    import torch

    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "model.onnx"
        with torch.inference_mode(False), torch.no_grad():
            torch.onnx.export(model, (inputs,), path, dynamo=True, verbose=False)
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        loaded = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    feed = {loaded.get_inputs()[0].name: inputs.numpy()}
    return lambda: loaded.run(None, feed)


if __name__ == "__main__":
    sys.exit(main())

"""The shortest honest loop, written by hand: what the stored ratios have to agree with.

It knows nothing of the runner. Run it in the measured environment, on a quiet machine:

    python benchmarks/hand_loop.py --threads 1 --workload tiny-bert --batch 1 8 --sequence-length 16 --sessions 5

In each session the backends of a workload and batch have a fresh process each; they call in turns of 30 ms, in random
order, while the others wait. A line of JSON for each backend: its median latency, and how many times faster than eager
it is by the 10th percentiles of all its calls, as the mean over sessions on logarithms.
"""

import argparse
import functools
import itertools
import json
import math
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TINY = {
    "vocab_size": 1024,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 128,
}
TEXTS = {"bert-base": ("Bert", {}), "tiny-bert": ("Bert", TINY), "distilbert": ("DistilBert", {})}
IMAGES = {"resnet50": "resnet50", "shufflenet-v2": "shufflenet_v2_x1_0"}
BACKENDS = ("eager", "torchscript", "onnxruntime")
IMAGE_SIZE = 224
TOKENS = 128
TURN_S = 0.03
WARMUP_S = 0.5


def main() -> int:
    """Measures in turns, or is one of the processes that take them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", nargs="+", choices=(*TEXTS, *IMAGES), default=["bert-base", "resnet50"])
    parser.add_argument("--batch", nargs="+", type=int, default=[1])
    parser.add_argument(
        "--sequence-length", type=int, default=TOKENS, help="of texts, in tokens (default: %(default)s)"
    )
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--sessions", type=int, default=5)
    parser.add_argument("--cycles", type=int, default=40)
    parser.add_argument("--turns-of", choices=BACKENDS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.turns_of is not None:
        take_turns(given.workload[0], given.batch[0], given.sequence_length, given.turns_of, given.threads)
        return 0
    for workload, batch in itertools.product(given.workload, given.batch):
        shape = [workload, "--batch", str(batch), "--sequence-length", str(given.sequence_length)]
        command = [*shape, "--threads", str(given.threads)]
        sessions = [session_of(command, given.cycles) for _ in range(given.sessions)]
        for backend in BACKENDS:
            print(json.dumps(account(workload, batch, backend, sessions)), flush=True)
    return 0


def account(workload: str, batch: int, backend: str, sessions: list) -> dict:
    """What sessions say of one backend; a session has a list of turns, each a list of seconds, by backend."""
    medians = [statistics.median(itertools.chain.from_iterable(session[backend])) for session in sessions]
    logs = [math.log(fastest(session["eager"]) / fastest(session[backend])) for session in sessions]
    spread = statistics.stdev(logs) if len(logs) > 1 else float("nan")
    return {
        "workload": workload,
        "backend": backend,
        "batch": batch,
        "sessions": len(sessions),
        "median_s": statistics.median(medians),
        "times_faster_than_eager": math.exp(statistics.mean(logs)),
        "standard_error_of_log": spread / math.sqrt(len(logs)),
    }


def session_of(command: list, cycles: int) -> dict:
    """Starts a process for each backend and lets them take turns; returns the turns of each."""
    processes = {}
    try:
        for backend in BACKENDS:
            processes[backend] = subprocess.Popen(
                [sys.executable, __file__, "--workload", *command, "--turns-of", backend],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
            said(processes[backend])
        turns = {backend: [] for backend in BACKENDS}
        for _ in range(cycles):
            for backend in random.sample(BACKENDS, len(BACKENDS)):
                processes[backend].stdin.write("go\n")
                processes[backend].stdin.flush()
                turns[backend].append(said(processes[backend]))
        return turns
    finally:
        for process in processes.values():
            process.communicate()


def said(process: subprocess.Popen):
    """The next line of a process."""
    for line in process.stdout:
        if line.startswith("["):
            return json.loads(line)
    raise SystemExit(f"a process ended with {process.wait()}")


def take_turns(workload: str, batch: int, tokens: int, backend: str, threads: int) -> None:
    """Warms up, and then calls for a turn whenever it is told to."""
    import torch

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    model, inputs = build(workload, batch, tokens)
    with torch.inference_mode():
        call = load(backend, model, inputs, threads)
        print(loop(call, WARMUP_S), flush=True)
        for _ in sys.stdin:
            call()
            print(loop(call, TURN_S), flush=True)


def fastest(turns: list) -> float:
    """The 10th percentile of the calls of a process."""
    return statistics.quantiles(itertools.chain.from_iterable(turns), n=10, method="inclusive")[0]


def loop(call, seconds: float) -> list:
    """Times single calls, four at least, as a turn of a trial does whose budget has room for them."""
    durations = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(durations) < 4:
        start = time.perf_counter()
        call()
        durations.append(time.perf_counter() - start)
    return durations


def build(workload: str, batch: int, tokens: int):
    """A model with the weights of its own initialiser, and one input."""
    import torch

    declare_operators()
    if workload in IMAGES:
        import torchvision

        return getattr(torchvision.models, IMAGES[workload])().eval(), torch.randn(batch, 3, IMAGE_SIZE, IMAGE_SIZE)
    import transformers

    name, sizes = TEXTS[workload]
    config = getattr(transformers, f"{name}Config")(return_dict=False, **sizes)
    model = getattr(transformers, f"{name}Model")(config)
    return model.eval(), torch.randint(config.vocab_size, (batch, tokens))


@functools.cache
def declare_operators() -> None:
    """What PyPI's torchvision, which transformers imports, wants and does not load beside a CPU build of torch."""
    import torch

    for name in ("nms", "qnms"):
        torch.library.define(f"torchvision::{name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


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

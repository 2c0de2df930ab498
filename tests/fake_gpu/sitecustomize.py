"""Gives torch for CPUs a device `cuda`: tensors stay where they are, and what CUDA would be asked is noted.

The profiler's traces get what CUPTI would have added: a launch and a kernel for each call, and the wait at its end.
If TAXMETER_FAKE_GPU_LOSES names a file that is not there, it is made, and the trace of that moment lacks its kernels.
"""

import contextlib
import json
import os
import sys
from types import SimpleNamespace

_TRACE_KERNEL_US = 100


def _note(step):
    path = os.environ.get("TAXMETER_FAKE_GPU")
    if path and os.access(path, os.W_OK):
        with open(path, "a") as stream:
            stream.write(f"{os.getpid()} {step}\n")


class _Stream:
    cuda_stream = 0

    def wait_stream(self, other):
        _note("wait_stream")


class _Graph:
    def replay(self):
        pass


def _on_cpu(function):
    def called(*arguments, **settings):
        if settings.get("device") == "cuda":
            settings["device"] = "cpu"
        return function(*arguments, **settings)

    return called


def _loses():
    path = os.environ.get("TAXMETER_FAKE_GPU_LOSES")
    try:
        return bool(path) and not open(path, "x").close()
    except FileExistsError:
        return False


def _with_kernels(export):
    def exported(self, path):
        loses = _loses()
        export(self, path)
        with open(path) as stream:
            document = json.load(stream)
        calls = [e for e in document["traceEvents"] if e.get("name") in ("iteration", "replay") and e.get("ph") == "X"]
        for number, call in enumerate(calls, 10_000_001):
            at = float(call["ts"]) + 0.001
            common = {"ph": "X", "pid": 0, "tid": 7, "args": {"correlation": number, "stream": 7}}
            launch = {**common, "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": at, "dur": 0.5}
            # shorter than a call without the profiler, however long this one with it took on a busy machine
            busy_us = min(float(call["dur"]) / 2, _TRACE_KERNEL_US)
            kernel = {**common, "cat": "kernel", "name": "k", "ts": at + 1, "dur": busy_us}
            kernel["args"] = {**common["args"], "est. achieved occupancy %": 50}
            waited = {**common, "cat": "cuda_runtime", "name": "cudaDeviceSynchronize", "ts": at + 0.002, "dur": 0.1}
            waited["args"] = {"correlation": number + 1_000_000}
            document["traceEvents"] += [launch, waited] if loses else [launch, kernel, waited]
        with open(path, "w") as stream:
            json.dump(document, stream)

    return exported


def _pretend(torch):
    import pynvml

    @contextlib.contextmanager
    def stream(which):
        _note("stream")
        yield

    @contextlib.contextmanager
    def graph(which):
        _note("capture")
        yield

    properties = SimpleNamespace(
        uuid=pynvml.UUID, name="Fake GPU", major=9, minor=0, total_memory=80 << 30, multi_processor_count=132
    )
    main = _Stream()
    fakes = {
        "is_available": lambda: True,
        "init": lambda: None,
        "current_device": lambda: 0,
        "get_device_properties": lambda *_: properties,
        "get_device_capability": lambda *_: (9, 0),
        "synchronize": lambda: _note("synchronize"),
        "Stream": _Stream,
        "stream": stream,
        "current_stream": lambda: main,
        "set_stream": lambda _: _note("set_stream"),
        "CUDAGraph": _Graph,
        "graph": graph,
        "reset_peak_memory_stats": lambda: _note("reset_peak"),
        "max_memory_allocated": lambda: 1000,
        "max_memory_reserved": lambda: 2000,
        "_sleep": lambda _: None,
    }
    for name, fake in fakes.items():
        setattr(torch.cuda, name, fake)
    torch.version.cuda = "13.0"
    for owner, names in ((torch, ("ones", "zeros", "empty")), (torch.Tensor, ("to",)), (torch.nn.Module, ("to",))):
        for name in names:
            setattr(owner, name, _on_cpu(getattr(owner, name)))
    profile = torch.profiler.profile

    class Profile(profile):
        def __init__(self, *arguments, **settings):
            _note("profile")
            settings["activities"] = [torch.profiler.ProfilerActivity.CPU]
            super().__init__(*arguments, **settings)

    Profile.export_chrome_trace = _with_kernels(profile.export_chrome_trace)
    torch.profiler.profile = Profile


if sys.argv[0:1] != ["-c"]:
    try:
        import torch
    except ImportError:
        pass
    else:
        import torch.profiler

        _pretend(torch)
